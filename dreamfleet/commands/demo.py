"""`dreamfleet demo`: trains a small Dreamer on CartPole, then shows what it has learned with the commands for that."""

import argparse
import contextlib
import re
import shlex
import sys
from pathlib import Path

import numpy as np

from dreamfleet.base.extras import install_command
from dreamfleet.errors import ConfigError
from dreamfleet.results.extras import load_extra

FLAGS = ("logdir",)
EPISODES = 40  # of the evaluation at the end
TRIAL_EPISODES, TRIAL_SEED = 20, 1_000_000  # of each checkpoint, to find the best; the last evaluation has other seeds
GOOD = 495.0  # of 500, in these episodes: a policy that does not owe its score to them
MORE_STEPS = (40_000, 52_000)  # as long as no checkpoint is that good
EXTRAS = {"plot": ("matplotlib",), "video": ("av", "PIL.Image", "pygame")}  # what is shown with them

OTHER_RUN = re.compile(r"--(run\.)?(task|steps|updates|duration|preset)\b")  # options that make the above meaningless

EXAMPLES = """\
examples:
  dreamfleet demo
  dreamfleet demo --logdir ~/logdir/demo-1 --seed 1

Runs `dreamfleet train --preset demo`, looks for the best of its last checkpoints, and evaluates, plots and films it.
If none of them balances the pole reliably, training goes on for another 12,000 steps, twice at most.
Run it again to go on after an interruption. The extras plot and video are needed for the figure and the film only."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares where the run goes; all else are options of `dreamfleet train`."""
    parser.usage = "dreamfleet demo [--logdir DIR] [--KEY VALUE ...]"
    parser.epilog = EXAMPLES
    parser.add_argument("--logdir", default="~/logdir/demo", metavar="DIR", help="log directory (default: %(default)s)")


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Trains to the end, and runs every command that shows the result, also when one of them fails."""
    missing = [extra for extra in EXTRAS if not _has_extra(extra)]
    if missing:
        remedy = install_command(",".join(missing))
        print(f"the result will be shown without {' and '.join(missing)}; for all of it: {remedy}")
    train = ("train", "--preset", "demo", "--logdir", args.logdir, *words)
    if code := _command(*train):
        return code
    logdir = Path(args.logdir)
    best, score = _find_best(logdir.expanduser())
    for steps in () if OTHER_RUN.search(" ".join(words)) else MORE_STEPS:
        if score >= GOOD:
            break
        print(f"\n{score:.1f} of 500: training goes on", flush=True)
        if code := _command(*train, "--steps", str(steps)):
            return code
        best, score = _find_best(logdir.expanduser())
    codes = [_command("eval", str(logdir), "--checkpoint", best, "--episodes", str(EPISODES))]
    if "plot" not in missing:
        codes.append(_command("plot", str(logdir), "--out", str(logdir / "curve.png")))
    if "video" not in missing:
        codes.append(_command("record", str(logdir), "--checkpoint", best, "--dreams", "0"))
    print(f"\nscores, losses and roles in the browser: dreamfleet dashboard {shlex.quote(str(logdir))}", flush=True)
    return max(codes)


def _find_best(logdir: Path) -> tuple[str, float]:
    """The name of the checkpoint that does best in a few episodes, of equals the newest; and its mean score.

    A small model with a high train ratio has good and bad moments until its learning rate has decayed, and the scores
    of training lag behind them.
    """
    from dreamfleet.launch.trained import load_run, make_eval_env, make_trained_agent
    from dreamfleet.results.rollout import Rollout, play

    print("\nlooking for the best checkpoint", flush=True)
    agent, means = None, {}
    for name in sorted(path.name for path in (logdir / "ckpt").glob("step-*")):
        try:
            saved = load_run(logdir, ("--seed", str(TRIAL_SEED)), name)
        except ConfigError as error:  # this one is damaged
            print(error, file=sys.stderr)
            continue
        agent = make_trained_agent(saved, agent)
        with Rollout(agent, make_eval_env(saved.options), TRIAL_EPISODES, saved.options.run.eval_policy) as rollout:
            means[name] = float(np.mean([episode.score for episode in play(rollout, TRIAL_EPISODES)]))
        print(f"{name}  {means[name]:6.1f}", flush=True)
    best = max(means, key=lambda name: (means[name], name), default="latest")
    return best, means.get(best, 0.0)


def _command(*argv: str) -> int:
    """Shows a command as a user would type it, and runs it."""
    from dreamfleet.cli import main

    print(f"\n$ dreamfleet {shlex.join(argv)}", flush=True)
    return main(argv)


def _has_extra(extra: str) -> bool:
    with contextlib.suppress(ConfigError):
        for module in EXTRAS[extra]:
            load_extra(module, extra, "demo")
        return True
    return False
