"""`dreamfleet plot`: plots learning curves, aggregated over seeds, beside reference curves."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dreamfleet.base.hints import did_you_mean
from dreamfleet.base.logdir import SERIES
from dreamfleet.commands import refuse_words
from dreamfleet.errors import ConfigError

FLAGS = ("out", "metric", "x", "by", "reference")
FORMATS = (".png", ".svg", ".html")
BY = ("config", "folder", "task", "run")

EXAMPLES = """\
examples:
  dreamfleet plot ~/logdir/cartpole
  dreamfleet plot ~/logdir/tuned ~/logdir/plain --by folder --out curves.html
  dreamfleet plot ~/logdir/pong --metric eval_episode/score --x hours --out pong.svg
  dreamfleet plot ~/logdir/pong --reference published.json

LOGDIR is a run or a directory of runs, such as that of `dreamfleet train --seeds 0 1 2`. One panel per task; lines are
means over seeds, bands one standard deviation.
Reference curves are JSON: [{"name": "paper", "task": "gym_CartPole-v1", "seed": 0, "xs": [0, 1e4], "ys": [20, 400]}],
or CSV with columns step, score and optionally name, task, seed. Without a task they appear in every panel.
Requires the extra plot."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the runs and the figure."""
    parser.usage = (
        "dreamfleet plot LOGDIR ... [--out FILE] [--metric NAME] [--x step|hours] [--by config|folder|task|run]"
        " [--reference FILE ...]"
    )
    parser.epilog = EXAMPLES
    parser.add_argument("logdirs", nargs="+", type=Path, metavar="LOGDIR", help="runs, or directories of runs")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("curves.png"),
        metavar="FILE",
        help="output file: .png, .svg or .html (default: curves.png)",
    )
    parser.add_argument(
        "--metric",
        default="episode/score",
        metavar="NAME",
        help="metric, such as train/loss/total (default: episode/score)",
    )
    parser.add_argument("--x", choices=("step", "hours"), default="step", help="x-axis: step or hours (default: step)")
    parser.add_argument(
        "--by",
        choices=BY,
        default="config",
        help="aggregate runs with equal config except the seed (config, default), with equal folder name (folder),"
        " of the same task (task), or not at all (run)",
    )
    parser.add_argument(
        "--reference", nargs="+", type=Path, default=[], metavar="FILE", help="JSON or CSV files with reference curves"
    )


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Writes the figure and prints a summary of each curve."""
    refuse_words(words, "plot", FLAGS)
    if args.out.suffix not in FORMATS:
        raise ConfigError("out", str(args.out), "has an unknown figure type", f"use {', '.join(FORMATS)}")
    if args.reference and args.x != "step":
        raise ConfigError(
            "x", args.x, "cannot be combined with --reference, whose x-axis is step", "use --x step or drop --reference"
        )
    from dreamfleet.results.curves import load_reference
    from dreamfleet.results.figure import draw

    curves = [curve for path in args.reference for curve in load_reference(path.expanduser())]
    drawn = draw([*_load_curves(args), *curves], args.out.expanduser(), args.metric, args.x)
    for curve, task, band in drawn:
        kind = "reference" if curve.is_reference else f"{len(curve.runs)} run{'s' * (len(curve.runs) > 1)}"
        spread = f" ± {band.std[-1]:,.1f}" if len(curve.runs) > 1 else ""
        print(f"{task}: {curve.label} ({kind}), final {band.mean[-1]:,.1f}{spread}, best {band.mean.max():,.1f}")
    print(f"wrote {args.out}")
    return 0


def _load_curves(args: argparse.Namespace) -> list:
    """One curve per group of runs."""
    from dreamfleet.metrics.reading import read_series
    from dreamfleet.results.curves import Curve, find_runs, load_run_curve

    runs = dict.fromkeys(run for logdir in args.logdirs for run in find_runs(logdir.expanduser().absolute()))
    groups: dict[tuple, list] = {}
    for logdir in runs:
        series = load_run_curve(logdir, args.metric, args.x)
        if len(series.xs):
            groups.setdefault(_group(logdir, args.by), []).append((logdir, series))
    if not groups:
        where = ", ".join(map(str, args.logdirs))
        keys = {key for logdir in runs for file in SERIES for key in read_series(logdir / file)}
        remedy = did_you_mean(args.metric, keys, "use a key of metrics.jsonl, or wait for the first episode to finish")
        raise ConfigError("metric", args.metric, f"has not been logged by the runs in {where}", remedy)
    return [
        Curve(_label([logdir for logdir, _ in members], args.by), task, [series for _, series in members])
        for (task, _), members in groups.items()
    ]


def _group(logdir: Path, by: str) -> tuple[str, Any]:
    """The task of a run, and the key by which runs are aggregated."""
    from dreamfleet.options.saved import find_saved, read_saved
    from dreamfleet.results.curves import group_key, label_of

    options = read_saved(find_saved(logdir))
    if by == "config":
        return options["task"], group_key(options)
    return options["task"], {"folder": label_of(logdir), "task": "", "run": logdir}[by]


def _label(logdirs: Sequence[Path], by: str) -> str:
    from dreamfleet.results.curves import label_of

    if by == "task":
        return "all runs"
    if by == "run":
        return "/".join(logdirs[0].parts[-2:])
    names = list(dict.fromkeys(map(label_of, logdirs)))
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
