"""`dreamfleet status`: how a run does, in a few lines and as an exit code, for people, containers and schedulers."""

import argparse
import json
import time
from pathlib import Path

from dreamfleet.base.joined import FOLDER, judge
from dreamfleet.commands import refuse_words
from dreamfleet.errors import ConfigError

FLAGS = ("ready", "json")
FRESH_S = 30.0  # a supervisor writes every second
ENDED = ("complete", "stopped")

EXAMPLES = """\
examples:
  dreamfleet status ~/logdir/cartpole
  dreamfleet status ~/logdir --ready

LOGDIR is a run, or a directory of runs, of which the newest counts. Only files are read: it works on a copy, and on a
file system that machines share.
Machines that have joined have a line each, and do not change the exit code.
Exit code: 0 the run is alive or has ended in order, or there is none yet; 1 it has failed or was not heard of for 30 s.
With --ready it is 0 only while the run trains, and when it is complete."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the directory and what counts as well."""
    parser.usage = "dreamfleet status LOGDIR [--ready] [--json]"
    parser.epilog = EXAMPLES
    parser.add_argument("logdir", metavar="LOGDIR", help="log directory of a run, or a directory of runs")
    parser.add_argument("--ready", action="store_true", help="only a run that trains, or is complete, is well")
    parser.add_argument("--json", action="store_true", help="print progress and status as JSON")


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Prints how the run does."""
    refuse_words(words, "status", FLAGS)
    directory = Path(args.logdir).expanduser()
    if not directory.is_dir():
        raise ConfigError("logdir", args.logdir, "is not a directory", "name the log directory of a run")
    found = find_run(directory)
    is_well, text, details = describe(found, args.ready, time.time()) if found else (not args.ready, "no run yet", {})
    print(json.dumps({"well": is_well, "run": str(found or ""), **details}) if args.json else text)
    return int(not is_well)


def find_run(directory: Path) -> Path | None:
    """The run in a directory, or the newest below it; not what has joined another one."""
    if (directory / "status.json").exists():
        return directory
    files = [path for path in directory.glob("**/status.json") if FOLDER not in path.relative_to(directory).parts]
    return max(files, key=lambda path: path.stat().st_mtime).parent if files else None


def describe(logdir: Path, must_train: bool, now: float) -> tuple[bool, str, dict]:
    """Whether all is well with a run, its line and one for each machine that has joined, and what they were made of."""
    from dreamfleet.launch.supervise.status import read_status
    from dreamfleet.metrics.bottlenecks import find_phase
    from dreamfleet.metrics.panel import format_line, format_machine
    from dreamfleet.metrics.progress import Progress, read_progress

    progress = read_progress(logdir) or Progress()
    try:
        status = read_status(logdir)
        state, age_s = status["state"], now - status["time"]
        line, phase = format_line(progress, status), find_phase(progress, status)
        machines = [format_machine(name, age(machine, age_s)) for name, machine in status.get("machines", {}).items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return False, f"{logdir}/status.json cannot be read: {type(error).__name__}: {error}", {}
    is_heard = state in ENDED or age_s < FRESH_S
    is_well = is_heard and (phase in ("training", "finished") if must_train else state != "failed")
    text = line if is_heard else f"not heard of for {age_s:.0f} s | {line}"
    return is_well, "\n".join([text, *machines]), {"progress": vars(progress), "status": status}


def age(machine: dict, age_s: float) -> dict:
    """A machine as it is known `age_s` after the status was written: that of a run that is over stays as it is."""
    seen_s = machine["seen_s"] + max(0.0, age_s)
    return {**machine, "seen_s": seen_s, "state": judge(machine["state"], seen_s)}
