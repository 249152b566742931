"""`dreamfleet doctor`: what is installed, what this machine offers, and whether a small fleet works on it."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from dreamfleet.commands import refuse_words
from dreamfleet.launch import diagnosis
from dreamfleet.launch.diagnosis import Finding

FLAGS = ("logdir", "no-test")
MARKS = {"ok": "ok  ", "warning": "!   ", "error": "FAIL", "missing": "-   "}

EXAMPLES = """\
examples:
  dreamfleet doctor
  dreamfleet doctor --logdir /data/runs --no-test

The output can be pasted into a report.
Exit code: 0 runs can be started here (maybe with warnings), 1 they cannot."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares where to look and what to leave out."""
    parser.usage = "dreamfleet doctor [--logdir DIR] [--no-test]"
    parser.epilog = EXAMPLES
    parser.add_argument("--logdir", default="~/logdir", metavar="DIR", help="where runs go (default: ~/logdir)")
    parser.add_argument("--no-test", action="store_true", help="leave out the run of a small fleet (about 10 s)")


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Prints findings as they come, and the verdict."""
    refuse_words(words, "doctor", FLAGS)
    levels = []
    for section, findings in _sections(args):
        print(f"\n{section}" if levels else section, flush=True)
        for finding in findings:
            levels.append(finding.level)
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            print(f"  {MARKS[finding.level]} {finding.what}: {finding.text}{remedy}", flush=True)
    errors, warnings = levels.count("error"), levels.count("warning")
    verdict = f"{errors} problems: runs cannot be started here" if errors else "runs can be started here"
    print(f"\n{verdict}" + (f", {warnings} warnings" if warnings else ""))
    return int(errors > 0)


def _sections(args: argparse.Namespace) -> Iterator[tuple[str, Iterator[Finding]]]:
    logdir = Path(args.logdir).expanduser().absolute()
    yield "versions", diagnosis.check_versions()
    yield "devices", diagnosis.check_devices()
    yield "machine", diagnosis.check_machine()
    yield f"files ({args.logdir})", diagnosis.check_files(logdir)
    yield "connections", diagnosis.check_connections()
    yield "extras", diagnosis.check_extras()
    if not args.no_test:
        yield "self-test", diagnosis.check_fleet()
