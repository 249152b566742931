"""The command `dreamfleet`: runs a subcommand and turns errors into one line and an exit code.

Exit codes: 0 success or a complete run, 1 the run failed, 2 invalid usage or configuration, and 128 + the number of the
signal that stopped it: 129 SIGHUP, 130 SIGINT (Ctrl-C), 141 SIGPIPE (the reader of a pipe is gone), 143 SIGTERM.
"""

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from dreamfleet.errors import ConfigError, DreamfleetError, RunRefused

# Name and summary; `dreamfleet.commands.NAME` is imported only when it is used, so that help is quick.
COMMANDS = {
    "demo": "train on CartPole for some minutes and show the result",
    "train": "train an agent or resume a run",
    "join": "join a run from another machine",
    "role": "join a run by addresses, key and options",
    "replay": "inspect a replay buffer, export or import episodes",
    "import-reference": "take over a run of danijar/dreamerv3",
    "check-env": "test an environment with random actions",
    "eval": "evaluate a checkpoint",
    "record": "record videos of episodes and open-loop predictions",
    "plot": "plot learning curves",
    "status": "how a run does, in one line and as an exit code",
    "dashboard": "show runs in the browser, live or finished",
    "export": "export the policy for use without dreamfleet",
    "doctor": "check the installation and this machine",
}


class Parser(argparse.ArgumentParser):
    """An argument parser with one-line errors, which leaves unknown `--KEY` words alone."""

    def __init__(self, **kwargs):
        # No abbreviations: --seed is a config option, not short for --seeds.
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Names the nearest choice where argparse only lists them."""
        if action.choices is not None and value not in action.choices:
            from dreamfleet.base.hints import choose_from

            reason = f"invalid choice: {value!r}, {choose_from(str(value), map(str, action.choices))}"
            raise argparse.ArgumentError(action, reason)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see `{self.prog} --help`\n")


class ShowVersion(argparse.Action):
    """Prints the version, which is looked up only then: reading metadata takes time."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        import dreamfleet

        print(f"dreamfleet {dreamfleet.__version__}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    os.umask(os.umask(0o077) | 0o002)  # nobody else may write to what a run writes, whatever the user's own mask is
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a letter that a terminal does not have is no reason to end a run
            stream.reconfigure(errors="backslashreplace")
    code = _run(argv)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # nobody reads it; Python would complain at its exit, and change the exit code
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _run(argv: list[str]) -> int:
    try:
        return _dispatch(argv)
    except (ConfigError, RunRefused) as error:
        return _fail(error, 2)
    except DreamfleetError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except BrokenPipeError:
        return 141
    except SystemExit as exit:  # argparse, after it printed help or an error
        return exit.code if isinstance(exit.code, int) else 1


def _dispatch(argv: list[str]) -> int:
    parser = Parser(
        prog="dreamfleet",
        description="Train world-model agents (DreamerV3) with one process per role.",
        epilog="example:\n  dreamfleet train --task gym_CartPole-v1 --steps 1e5",
    )
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND-NAME", required=True)
    module = None
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=as_sentence(summary))
        if argv[:1] == [name]:
            module = importlib.import_module(f"dreamfleet.commands.{name.replace('-', '_')}")
            module.add_arguments(command)
            argv = _with_dashes(argv, module.FLAGS)
    args, words = parser.parse_known_args(argv)
    args.argv = argv
    if module is None:
        parser.error(f"{argv[0]!r} comes before the command; write dreamfleet COMMAND {argv[0]} ...")
    return module.run(args, words)


def as_sentence(summary: str) -> str:
    """A summary that stands by itself; names in it keep their capitals."""
    return f"{summary[0].upper()}{summary[1:]}."


def _with_dashes(argv: list[str], flags: Iterable[str]) -> list[str]:
    """Writes the flags of a command with dashes where the user put underscores."""
    spellings = {f"--{flag.replace('-', '_')}": f"--{flag}" for flag in flags}
    parts = [word.partition("=") for word in argv]
    return [spellings.get(name, name) + equals + value for name, equals, value in parts]


def _fail(error: DreamfleetError, code: int) -> int:
    _say(f"error: {error}")
    return code


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal is gone
        print(text, file=sys.stderr, flush=True)
