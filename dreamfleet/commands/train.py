"""`dreamfleet train`: builds and checks the options, then starts or resumes the run."""

import argparse
import contextlib
import shlex
import sys
from pathlib import Path

from dreamfleet.base.platforms import check_platform
from dreamfleet.checkpoint import Checkpoint
from dreamfleet.commands.dashboard import open_dashboard
from dreamfleet.launch.modules import check_modules
from dreamfleet.metrics.progress import read_progress
from dreamfleet.options import (
    Options,
    change_options,
    check_options,
    format_options,
    load_options,
    option_help,
    place_replica,
)

FLAGS = ("preset", "seeds", "dry-run", "dashboard")

EXAMPLES = """\
examples:
  dreamfleet train --task gym_CartPole-v1 --steps 1e5 --logdir ~/logdir/cartpole
  dreamfleet train --preset cartpole debug --run.envs 8 --run.agent_process False
  dreamfleet train --preset cartpole --seeds 0 1 2

Run the same command with the same --logdir to resume. Ctrl-C, SIGTERM and SIGHUP save a checkpoint and stop.
Exit codes: 0 complete, 1 failed, 2 refused, 128 + the number of a signal that stopped the run.
Options are set with --KEY VALUE or --KEY=VALUE and override the presets."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags that are not options of a run."""
    parser.usage = "dreamfleet train [--preset NAME ...] [--seeds N ...] [--dashboard] [--dry-run] [--KEY VALUE ...]"
    parser.epilog = f"{EXAMPLES}\n\n{option_help()}"
    add_preset(parser)
    parser.add_argument("--seeds", nargs="+", type=int, metavar="N", help="one run per seed, each in LOGDIR/seed_N")
    parser.add_argument("--dashboard", action="store_true", help="show the run in the browser while it lasts")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved config and exit")


def add_preset(parser: argparse.ArgumentParser) -> None:
    """Declares `--preset`, which every command that builds options has."""
    parser.add_argument(
        "--preset",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="presets, applied in order",
    )


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Trains once, or once per seed; all of them are checked before the first run starts."""
    check_platform("train")
    options = load_options(words, args.preset, flags=FLAGS)
    runs = [_with_seed(options, seed) for seed in dict.fromkeys(args.seeds)] if args.seeds else [options]
    runs = [place_replica(options) for options in runs]
    resumed = [_check(options) for options in runs]
    if args.dry_run:
        print("---\n".join(map(format_options, runs)), end="")
        return 0
    command = _resume_command(args.argv, options.logdir)
    with open_dashboard(options.logdir) if args.dashboard else contextlib.nullcontext():
        for run_options, is_resumed in zip(runs, resumed, strict=True):
            if code := _train(run_options, is_resumed, command):
                return code
    return 0


def _with_seed(options: Options, seed: int) -> Options:
    return change_options(options, {"seed": seed, "logdir": f"{options.logdir}/seed_{seed}"})


def _check(options: Options) -> bool:
    """Raises ConfigError for invalid options; returns whether the log directory holds a run to resume."""
    from dreamfleet.launch.history import check_start

    check_options(options)
    check_modules(options, "agent", "task", "logger.outputs")
    return check_start(options)


def _train(options: Options, is_resumed: bool, command: str) -> int:
    """Runs to the end, whose kind is said by the last line and by the exit code that is returned."""
    from dreamfleet.launch.history import find_checkpoint
    from dreamfleet.launch.run import run_options

    print(_summary(options, is_resumed), flush=True)
    outcome = run_options(options)
    checkpoint = find_checkpoint(options.logdir)
    step = _position(options, *_find_position(options, checkpoint))
    saved = f"checkpoint {checkpoint.name}" if checkpoint else "no checkpoint"
    if outcome.state == "stopped":
        _say(f"stopped by {outcome.stop_reason}: {step} | {saved} | resume with: {command}")
    elif outcome.is_old:
        _say(f"complete already: {step} | {saved} | raise --steps, --updates or --duration to go on")
    else:
        _say(f"complete: {step} | {saved}")
    return outcome.exit_code


def _find_position(options: Options, checkpoint: Checkpoint | None) -> tuple[int, int]:
    """Steps and updates of the checkpoint, or what the logger knows without one."""
    if checkpoint:
        return checkpoint.step, checkpoint.manifest["updates"]
    progress = read_progress(options.logdir)
    return (progress.step, progress.updates) if progress else (0, 0)


def _position(options: Options, step: int, updates: int) -> str:
    """How far the run is, in what limits it; without environments in updates."""
    run = options.run
    parts = [] if run.is_offline else [("step", step, run.steps)]
    parts += [("update", updates, run.updates)] if run.is_offline or run.updates else []
    return ", ".join(f"{unit} {done:,}" + (f"/{total:,}" if total else "") for unit, done, total in parts)


def _say(text: str) -> None:
    """Prints to whichever of the two outputs is still there."""
    for stream in (sys.stdout, sys.stderr):
        try:
            print(text, file=stream, flush=True)
            return
        except OSError:
            continue


def _resume_command(argv: list[str], logdir: str) -> str:
    """What the user typed, with the log directory that it chose if none was named."""
    program = "dreamfleet" if Path(sys.argv[0]).stem == "dreamfleet" else "python -m dreamfleet"
    is_named = any(word.partition("=")[0] == "--logdir" for word in argv)
    return f"{program} {shlex.join(argv if is_named else [*argv, '--logdir', logdir])}"


def _summary(options: Options, is_resumed: bool) -> str:
    envs = "remote" if options.run.remote_envs else f"{options.run.envs} train, {options.run.eval_envs} eval"
    kind = "resuming" if is_resumed else "new run"
    return f"{kind}: task {options.task} | agent {options.agent} | envs {envs} | logdir {options.logdir}"
