"""`dreamfleet demo`: trains a small Dreamer on CartPole, then shows what it has learned with the commands for that."""

import argparse
import contextlib
import shlex
from pathlib import Path

from dreamfleet.base.extras import install_command
from dreamfleet.checkpoint import Checkpoints
from dreamfleet.errors import ConfigError
from dreamfleet.results.extras import load_extra

FLAGS = ("logdir",)
EPISODES = 40  # of the evaluation at the end
EXTRAS = {"plot": ("matplotlib",), "video": ("av", "PIL.Image", "pygame")}  # what is shown with them

EXAMPLES = """\
examples:
  dreamfleet demo
  dreamfleet demo --logdir ~/logdir/demo-1 --seed 1

Runs `dreamfleet train --preset demo`, then evaluates, plots and films the best checkpoint. Run it again to go on after
an interruption. The extras plot and video are needed for the figure and the film only."""


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
    kept = "best" if Checkpoints(logdir).best() else "latest"  # a run that was made very short has no score
    codes = [_command("eval", str(logdir), "--checkpoint", kept, "--episodes", str(EPISODES))]
    if "plot" not in missing:
        codes.append(_command("plot", str(logdir), "--out", str(logdir / "curve.png")))
    if "video" not in missing:
        codes.append(_command("record", str(logdir), "--checkpoint", kept, "--dreams", "0"))
    print(f"\nscores, losses and roles in the browser: dreamfleet dashboard {shlex.quote(str(logdir))}", flush=True)
    return max(codes)


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
