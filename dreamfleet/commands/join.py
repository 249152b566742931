"""`dreamfleet join`: adds environments, or another role, to a run, given the one file that its trainer wrote."""

import argparse
import dataclasses
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from dreamfleet.base.joined import FOLDER
from dreamfleet.commands import refuse_words
from dreamfleet.errors import ConfigError

if TYPE_CHECKING:
    from dreamfleet.options import Options

FLAGS = ("role", "show")
KINDS = ("envs", "replay", "logger")

EXAMPLES = """\
examples:
  dreamfleet join join.json
  dreamfleet join join.json --envs 32 --run.envs_per_worker 4
  dreamfleet join join.json --role replay --logdir /scratch/replay
  dreamfleet join --show ~/logdir/remote | ssh worker dreamfleet join -

`dreamfleet train` writes LOGDIR/join.json with addresses, key, versions and options, for its user alone. Copy it to the
other machine, and keep it secret: whoever has it can join. Any number of machines may, and leave and come back.
Options that concern the role can be changed as in `dreamfleet train`; --envs is the number of processors by default."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the file and the kind of role."""
    parser.usage = "dreamfleet join FILE [--role KIND] [--KEY VALUE ...]\n       dreamfleet join --show LOGDIR"
    parser.epilog = EXAMPLES
    parser.add_argument("file", nargs="?", metavar="FILE", help="join.json of the run, or - for standard input")
    parser.add_argument("--role", choices=KINDS, default="envs", help="what to start (default: envs)")
    parser.add_argument("--show", metavar="LOGDIR", help="print what is in join.json of a run as one line")


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Joins the run until it is over, or shows how to."""
    from dreamfleet.launch.invitation import read_invitation

    if args.show:
        refuse_words(words, "join --show", FLAGS)
        print(read_invitation(args.show).to_line())
        return 0
    if not args.file:
        raise ConfigError("join", "", "names no file", "give join.json of the run, or - for standard input")
    from dreamfleet.launch.modules import check_modules
    from dreamfleet.launch.run import run_role
    from dreamfleet.options import change_options, check_role

    invitation = read_invitation(args.file)
    options = change_options(invitation.make_options(args.role), words, flags=FLAGS)
    invitation.check_reach(args.role, options.run)
    check_role(options, args.role, (args.role,) if args.role != "envs" else ())
    if args.role == "envs":
        check_modules(options, "task")
    return run_role(args.role, _with_key(options, invitation.key)).exit_code


def _with_key(options: "Options", key: str) -> "Options":
    """The options with a file of its own for the key, if there is one."""
    if not key:
        return options
    from dreamfleet.rpc import store_key

    # A name for each key: processes that have joined another run from here read theirs when they restart.
    name = f"run-{hashlib.sha256(key.encode()).hexdigest()[:16]}.key"
    path = Path(options.logdir).expanduser() / FOLDER / name
    store_key(path, key)
    return dataclasses.replace(options, run=dataclasses.replace(options.run, key_file=str(path)))
