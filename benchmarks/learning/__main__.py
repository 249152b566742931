"""Trains named tasks over seeds, writes one line per run, and compares them with recorded curves.

Interrupted, the same command takes up the run under way and skips those that are done.
"""

import json
import math
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.learning.compare import compare, read_reference
from benchmarks.learning.runs import run_to_end
from benchmarks.learning.tasks import TASKS, VARIANTS, Task
from benchmarks.report import parse_args
from dreamfleet.results.curves import load_reference
from dreamfleet.results.statistics import Estimate


def main() -> None:
    parser = parse_args(__doc__ or "")
    parser.add_argument("--out", type=Path, required=True, help="directory of the runs: OUT/TASK/VARIANT/seed_N")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["cartpole"], help="default: cartpole")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["fleet"], help="default: fleet")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="default: 0 1 2")
    parser.add_argument("--reference", type=Path, help="file of curves to compare with, as `dreamfleet plot` reads it")
    args = parser.parse_args()
    lines = []
    for name in args.tasks:
        for variant in args.variants:
            runs = []
            for seed in args.seeds:
                logdir = args.out / name / variant / f"seed_{seed}"
                runs.append(run_to_end(logdir, TASKS[name], VARIANTS[variant], seed))
                lines.append({"task": name, "variant": variant, "seed": seed, **runs[-1]})
                print(json.dumps(lines[-1]), flush=True)
            if args.reference:
                _show_comparison(f"{name}, {variant}", runs, TASKS[name], args.reference)
    _show(lines)
    if args.json:
        args.json.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _show(lines: list[dict]) -> None:
    """A table of all runs: the return at each point, the area under the curve, and what the run took."""
    for name in dict.fromkeys(line["task"] for line in lines):
        table = Table(title=name)
        for column in ("variant", "seed", *(f"{point:,}" for point in TASKS[name].points), "area", "minutes", "MB"):
            table.add_column(column, justify="right")
        for line in (line for line in lines if line["task"] == name):
            figures = [*line["points"].values(), line["area"], line["minutes"], line["peak_mb"]]
            table.add_row(line["variant"], str(line["seed"]), *map(_format, figures))
        Console(width=140).print(table)
        show_margin(name, [line for line in lines if line["task"] == name])


def show_margin(name: str, lines: list[dict]) -> None:
    """How far the last point is above its bar, in standard deviations of the seeds."""
    bar = TASKS[name].bar
    if math.isinf(bar):
        return
    scores = [list(line["points"].values())[-1] for line in lines]
    passed, spread = sum(score > bar for score in scores), np.std(scores, ddof=1) if len(scores) > 1 else math.nan
    margin = (np.mean(scores) - bar) / spread
    print(f"{name}: {passed} of {len(scores)} above {bar:.3f}, mean {np.mean(scores):.3f}, {margin:.1f} sd above it")


def _show_comparison(title: str, runs: list[dict], task: Task, path: Path) -> None:
    curves = [curve for curve in load_reference(path) if curve.task in ("", task.options["task"])]
    if not curves:
        raise SystemExit(f"{path} has no curve of {task.options['task']}")
    table = Table(title=f"{title}: means with 95 % bootstrap intervals over seeds")
    for column in ("at", "ours", "reference", "p (ours below)"):
        table.add_column(column, justify="right")
    for row in compare(runs, read_reference(curves[0], task), task):
        sides = [_describe(row[side]) for side in ("ours", "reference")]
        table.add_row(row["at"], *sides, f"{row['p_below']:.3f}")
    Console(width=110).print(table)


def _describe(estimate: Estimate) -> str:
    return f"{estimate.value:,.1f} [{estimate.low:,.1f}, {estimate.high:,.1f}]"


def _format(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.1f}"


if __name__ == "__main__":
    main()
