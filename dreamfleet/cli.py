"""The command `dreamfleet`: finds the sub-command, runs it, and turns errors into a line and an exit code.

Exit codes: 0 done, 1 the run failed, 2 the user asked for something impossible, 130 stopped with Ctrl-C.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from dreamfleet.errors import ConfigError, DreamfleetError, RunRefused

# Name and summary; `dreamfleet.commands.NAME` is imported only when it is used, so that help is quick.
COMMANDS = {
    "train": "train an agent, or resume a training run",
    "role": "join a running fleet from another machine",
    "replay": "show what a replay holds, export or import its episodes",
    "check-env": "step an environment and say what is wrong with it",
    "eval": "let a trained agent play and say how well it does",
    "record": "film a trained agent, and what its world model dreams",
    "plot": "draw learning curves of one or several runs",
    "export": "write the trained policy as files that need no dreamfleet",
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, and which leaves `--KEY` words that it does not know alone."""

    def __init__(self, **kwargs):
        # No abbreviations: --seed is an option of the config, not short for --seeds.
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see `{self.prog} --help`\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    os.umask(os.umask(0o077) | 0o002)  # nobody else may write to what a run writes, whatever the user's own mask is
    try:
        return _dispatch(argv)
    except (ConfigError, RunRefused) as error:
        return _fail(error, 2)
    except DreamfleetError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except SystemExit as exit:  # argparse, after it printed help or an error
        return exit.code if isinstance(exit.code, int) else 1


def _dispatch(argv: list[str]) -> int:
    parser = Parser(
        prog="dreamfleet",
        description="Train world-model agents with one process per role.",
        epilog="example:\n  dreamfleet train --task gym_CartPole-v1 --steps 1e5",
    )
    commands = parser.add_subparsers(metavar="COMMAND-NAME", required=True)
    module = None
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary.capitalize()}.")
        if argv[:1] == [name]:
            module = importlib.import_module(f"dreamfleet.commands.{name.replace('-', '_')}")
            module.add_arguments(command)
            argv = _with_dashes(argv, module.FLAGS)
    args, words = parser.parse_known_args(argv)
    if module is None:
        parser.error(f"{argv[0]!r} stands before the command; write dreamfleet COMMAND first")
    return module.run(args, words)


def _with_dashes(argv: list[str], flags: Iterable[str]) -> list[str]:
    """Writes the flags of a command with dashes where the user put underscores."""
    spellings = {f"--{flag.replace('-', '_')}": f"--{flag}" for flag in flags}
    parts = [word.partition("=") for word in argv]
    return [spellings.get(name, name) + equals + value for name, equals, value in parts]


def _fail(error: DreamfleetError, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code
