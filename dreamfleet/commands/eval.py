"""`dreamfleet eval`: evaluates a checkpoint and prints scores with bootstrap confidence intervals."""

import argparse
import contextlib
import json
import sys
from typing import Any

import numpy as np

from dreamfleet.errors import ConfigError
from dreamfleet.launch.modules import check_modules

FLAGS = ("episodes", "envs", "checkpoint", "json")

EXAMPLES = """\
examples:
  dreamfleet eval ~/logdir/cartpole
  dreamfleet eval ~/logdir/cartpole --checkpoint best --episodes 100 --json
  dreamfleet eval ~/logdir/cartpole --checkpoint step-000000020000-0003 --dreamer.greedy_eval True
  dreamfleet eval ~/logdir/cartpole --task mine:HarderCartPole --seed 7

Uses the options of the run; --task and any other can be overridden as in `dreamfleet train`.
IQM is the interquartile mean; intervals are 95% bootstrap CIs over episodes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the run and the evaluation."""
    parser.usage = (
        "dreamfleet eval LOGDIR [--episodes N] [--envs K] [--checkpoint best|latest|NAME] [--json] [--KEY VALUE ...]"
    )
    parser.epilog = EXAMPLES
    add_run_arguments(parser)
    parser.add_argument("--episodes", type=int, default=20, metavar="N", help="evaluation episodes (default: 20)")
    parser.add_argument("--envs", type=int, default=8, metavar="K", help="parallel environments (default: 8)")
    parser.add_argument("--json", action="store_true", help="print all results, including per-episode scores, as JSON")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares LOGDIR and `--checkpoint`, which every command that uses a trained agent has."""
    parser.add_argument("logdir", metavar="LOGDIR", help="log directory of a run")
    parser.add_argument(
        "--checkpoint", metavar="NAME", help="best, latest, or the name or path of one (default: latest)"
    )


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Evaluates in this process and prints the statistics."""
    for key in ("episodes", "envs"):
        if getattr(args, key) < 1:
            raise ConfigError(key, getattr(args, key), "is too small", "use at least 1")
    from dreamfleet.launch.trained import load_run, make_eval_env, make_trained_agent
    from dreamfleet.results.rollout import Rollout, play

    saved = load_run(args.logdir, words, args.checkpoint, FLAGS)
    check_modules(saved.options, "agent", "task")
    # Environments may print; standard output is for the result.
    with contextlib.redirect_stdout(sys.stderr):
        agent = make_trained_agent(saved)
        count, mode = min(args.envs, args.episodes), saved.options.run.eval_policy
        with Rollout(agent, make_eval_env(saved.options), count, mode) as rollout:
            played = []
            for episode in play(rollout, args.episodes):
                played.append(episode)
                _show_progress(played, args.episodes)
    result = _result(saved, played)
    print(json.dumps(result, indent=2) if args.json else _format(result))
    return 0


def _show_progress(played: list, total: int) -> None:
    if sys.stderr.isatty():
        mean = np.mean([episode.score for episode in played])
        end = "\n" if len(played) == total else ""
        print(f"\r{len(played)}/{total} episodes, mean score {mean:.1f} ", end=end, file=sys.stderr, flush=True)


def _result(saved: Any, played: list) -> dict[str, Any]:
    from dreamfleet.results.statistics import summarize

    scores = [episode.score for episode in played]
    stats = sorted({name for episode in played for name in episode.stats})
    return {
        "logdir": saved.options.logdir,
        "checkpoint": saved.checkpoint.name,
        "step": saved.checkpoint.step,
        "task": saved.options.task,
        "episodes": len(played),
        **{name: estimate._asdict() for name, estimate in summarize(scores).items()},
        "std": float(np.std(scores)),
        "min": min(scores),
        "max": max(scores),
        "length": float(np.mean([episode.length for episode in played])),
        "scores": scores,
        "lengths": [episode.length for episode in played],
        "stats": {name: float(np.mean([e.stats[name] for e in played if name in e.stats])) for name in stats},
    }


def _format(result: dict[str, Any]) -> str:
    lines = [
        f"{result['task']} | {result['episodes']} episodes | step {result['step']:,} ({result['checkpoint']})",
        f"{'score':<8}{'value':>10}   95% CI (bootstrap)",
    ]
    for name, title in (("mean", "mean"), ("median", "median"), ("iqm", "IQM")):
        estimate = result[name]
        lines.append(f"{title:<8}{estimate['value']:>10,.2f}   [{estimate['low']:,.2f}, {estimate['high']:,.2f}]")
    spread = f"min {result['min']:,.2f}, max {result['max']:,.2f}, std {result['std']:,.2f}"
    lines.append(f"{spread}, mean episode length {result['length']:,.1f}")
    return "\n".join(lines)
