"""`dreamfleet role`: adds a role to a run on another machine, given its addresses and key."""

import argparse
import dataclasses
import os
from pathlib import Path

from dreamfleet.base.logdir import KEY_FILE, KEY_VARIABLE
from dreamfleet.commands.train import add_preset
from dreamfleet.errors import ConfigError
from dreamfleet.launch.modules import check_modules
from dreamfleet.options import SERVERS, Options, RunOptions, change_options, check_role, key_file, role_options
from dreamfleet.options.addresses import is_tcp

FLAGS = (*(f"addr-{role}" for role in SERVERS), "key", "index", "eval", "preset")

# Several machines that join would each bring evaluation environments, numbered as training ones of the next.
JOINED = Options(run=RunOptions(eval_envs=0))

# The addresses that each kind of role needs, and those of them that it listens on itself.
NEEDS = {"env": ("actor", "logger"), "envs": ("actor", "logger"), "replay": ("replay",), "logger": ("logger",)}
LISTENS = {"env": (), "envs": (), "replay": ("replay",), "logger": ("logger",)}

EXAMPLES = f"""\
examples:
  dreamfleet role envs --addr-actor trainer:5000 --addr-logger trainer:5002 --key {KEY_FILE} \\
      --logdir ~/logdir/joined --task gym_CartPole-v1 --envs 8
  dreamfleet role replay --addr-replay 0.0.0.0:5001 --key {KEY_FILE} --logdir ~/logdir/joined

Options are set as in `dreamfleet train` and should match those of the run (LOGDIR/config.yaml there).
The key is LOGDIR/{KEY_FILE} of the run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the kind of role and how to reach the fleet."""
    kinds = "|".join(NEEDS)
    parser.usage = (
        f"dreamfleet role {kinds} [--addr-ROLE ADDRESS ...] [--key FILE] [--preset NAME ...] [--KEY VALUE ...]"
    )
    parser.epilog = EXAMPLES
    parser.add_argument("kind", choices=tuple(NEEDS), metavar="KIND", help=f"role to start: {', '.join(NEEDS)}")
    for role in SERVERS:
        needed = ", ".join(kind for kind in NEEDS if role in NEEDS[kind])
        parser.add_argument(f"--addr-{role}", metavar="ADDRESS", help=f"address of the {role} (required for {needed})")
    parser.add_argument("--key", metavar="FILE", help=f"key file of the run, required for TCP (or set {KEY_VARIABLE})")
    parser.add_argument(
        "--index",
        type=int,
        metavar="N",
        help="number of the first environment (default: the next free one)",
    )
    parser.add_argument("--eval", action="store_true", help="run as an evaluation environment")
    add_preset(parser)


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Checks the options of the role and runs it until it is stopped."""
    options = _with_addresses(change_options(JOINED, words, args.preset, FLAGS), args)
    _check_numbers(args)
    check_role(options, args.kind, LISTENS[args.kind])
    if args.kind in ("env", "envs"):
        check_modules(options, "task")
    options = _with_key(options, args)
    from dreamfleet.launch.run import run_role

    return run_role(args.kind, options, index=args.index, is_eval=args.eval).exit_code


def _check_numbers(args: argparse.Namespace) -> None:
    """Refuses what concerns environments where there are none, or several kinds of them."""
    if args.index is not None and args.kind not in ("env", "envs"):
        raise ConfigError("index", args.index, f"has no meaning for role {args.kind}", "leave it out")
    if args.index is not None and args.index < 0:
        raise ConfigError("index", args.index, "is negative", "environments are numbered from 0")
    if args.eval and args.kind != "env":
        raise ConfigError("eval", True, "is for role env", "set --eval-envs N and --envs 0 for role envs")


def _with_addresses(options: Options, args: argparse.Namespace) -> Options:
    given = {f"{role}_addr": getattr(args, f"addr_{role}") for role in SERVERS}
    run = dataclasses.replace(options.run, **{key: addr for key, addr in given.items() if addr is not None})
    options = dataclasses.replace(options, run=run)
    for role in NEEDS[args.kind]:
        addr = role_options(options).address(role)
        if "{auto}" in addr:
            reason = f"is not an address that role {args.kind} can reach"
            raise ConfigError(f"addr-{role}", addr, reason, f"set --addr-{role} HOST:PORT")
    return options


def _with_key(options: Options, args: argparse.Namespace) -> Options:
    """The options with the file that holds the run's key, where there is one or has to be one."""
    given = args.key or options.run.key_file
    roles = role_options(options, key_file=given)
    path = key_file(roles)
    if Path(path).is_file():
        return dataclasses.replace(options, run=dataclasses.replace(options.run, key_file=path))
    tcp = [addr for role in NEEDS[args.kind] if is_tcp(addr := roles.address(role))]
    remedy = f"copy {KEY_FILE} from the log directory of the run"
    if given or os.environ.get(KEY_VARIABLE):
        raise ConfigError("key", path, "is not a file", f"{remedy}, mode 600")
    if roles.transport != "portal" and tcp:
        raise ConfigError("key", path, f"is missing, but {', '.join(tcp)} needs a key", f"{remedy} and set --key FILE")
    return options
