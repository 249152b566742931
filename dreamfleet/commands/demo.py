"""`dreamfleet demo`: trains a small Dreamer on CartPole, then shows what it has learned with the commands for that."""

import argparse
import contextlib
import io
import json
import shlex
from pathlib import Path

from dreamfleet.base.extras import install_command
from dreamfleet.errors import ConfigError
from dreamfleet.results.extras import load_extra

FLAGS = ("logdir",)
EPISODES = 40  # of the evaluation at the end
TRIAL_EPISODES, TRIAL_SEED = 10, 1_000_000  # of each checkpoint, to find the best; the last evaluation has other seeds
EXTRAS = {"plot": ("matplotlib",), "video": ("av", "PIL.Image", "pygame")}  # what is shown with them

EXAMPLES = """\
examples:
  dreamfleet demo
  dreamfleet demo --logdir ~/logdir/demo-1 --seed 1

Runs `dreamfleet train --preset demo`, looks for the best of its last checkpoints, and evaluates, plots and films it.
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
    if code := _command("train", "--preset", "demo", "--logdir", args.logdir, *words):
        return code
    logdir = Path(args.logdir)
    best = _find_best(logdir.expanduser())
    codes = [_command("eval", str(logdir), "--checkpoint", best, "--episodes", str(EPISODES))]
    if "plot" not in missing:
        codes.append(_command("plot", str(logdir), "--out", str(logdir / "curve.png")))
    if "video" not in missing:
        codes.append(_command("record", str(logdir), "--checkpoint", best, "--dreams", "0"))
    print(f"\nscores, losses and roles in the browser: dreamfleet dashboard {shlex.quote(str(logdir))}", flush=True)
    return max(codes)


def _find_best(logdir: Path) -> str:
    """The name of the checkpoint that does best in a few episodes, of equals the newest.

    A small model with a high train ratio has good and bad moments until its learning rate has decayed, and the scores
    of training lag behind them.
    """
    from dreamfleet.cli import main

    print("\nlooking for the best checkpoint", flush=True)
    means = {}
    for name in sorted(path.name for path in (logdir / "ckpt").glob("step-*")):
        options = ("--episodes", str(TRIAL_EPISODES), "--seed", str(TRIAL_SEED), "--json")
        with contextlib.redirect_stdout(io.StringIO()) as output:
            code = main(["eval", str(logdir), "--checkpoint", name, *options])
        if not code:
            means[name] = json.loads(output.getvalue())["mean"]["value"]
            print(f"{name}  {means[name]:6.1f}", flush=True)
    return max(means, key=lambda name: (means[name], name), default="latest")


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
