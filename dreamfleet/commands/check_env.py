"""`dreamfleet check-env`: steps an environment with random actions and reports contract violations."""

import argparse
import contextlib
import functools
import json
import sys

from dreamfleet.commands.train import add_preset
from dreamfleet.errors import ConfigError
from dreamfleet.launch.modules import check_modules
from dreamfleet.options import load_options

FLAGS = ("steps", "json", "preset")

EXAMPLES = """\
examples:
  dreamfleet check-env gym_CartPole-v1
  dreamfleet check-env mine:MyEnv --steps 5000
  dreamfleet check-env atari_pong --env.atari.size 64 --json

Options are set as in `dreamfleet train`.
Exit code: 0 no errors (maybe warnings), 1 errors, 2 unknown task."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the task and how to report."""
    parser.usage = "dreamfleet check-env TASK [--steps N] [--json] [--preset NAME ...] [--KEY VALUE ...]"
    parser.epilog = EXAMPLES
    parser.add_argument("task", metavar="TASK", help="SUITE_NAME or module:attr, as in train --task")
    parser.add_argument("--steps", type=int, default=1000, metavar="N", help="number of steps (default: 1000)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_preset(parser)


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Checks the environment in this process and prints the report."""
    if args.steps < 2:
        raise ConfigError("steps", args.steps, "is too small", "use at least 2")
    options = load_options([*words, "--task", args.task], args.preset, flags=FLAGS)
    from dreamfleet.envs import make_env
    from dreamfleet.envs.checker import check_env

    check_modules(options, "task")

    make = functools.partial(_make_env, make_env, options.task, options.env)
    # Environments may print; standard output is for the report.
    with contextlib.redirect_stdout(sys.stderr):
        report = check_env(make, args.steps, options.seed)
    print(json.dumps({"task": options.task, **report.as_dict()}, indent=2) if args.json else report)
    return 0 if report.is_ok else 1


def _make_env(make_env, task, options, seed):
    return make_env(task, seed, options)
