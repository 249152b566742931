"""`dreamfleet plot`: draws learning curves of runs, with the spread over seeds, and reference curves beside them."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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

A LOGDIR is a run or a directory with runs in it, such as what `dreamfleet train --seeds 0 1 2` writes. There is a panel
for each task. Lines are means over runs that belong together, the bands around them one standard deviation over runs.
A reference is JSON: [{"name": "paper", "task": "gym_CartPole-v1", "seed": 0, "xs": [0, 1e4], "ys": [20, 400]}, ...],
or CSV with the columns step, score and, by choice, name, task and seed. Without a task it is drawn in every panel.
Needs the extra plot: pip install 'dreamfleet[plot]'."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the runs and how to draw them."""
    parser.usage = (
        "dreamfleet plot LOGDIR ... [--out FILE] [--metric NAME] [--x step|hours] [--by config|folder|task|run]"
        " [--reference FILE ...]"
    )
    parser.epilog = EXAMPLES
    parser.add_argument("logdirs", nargs="+", type=Path, metavar="LOGDIR", help="runs, or directories with runs")
    parser.add_argument(
        "--out", type=Path, default=Path("curves.png"), metavar="FILE", help="a .png, .svg or .html file (curves.png)"
    )
    parser.add_argument(
        "--metric",
        default="episode/score",
        metavar="NAME",
        help="what to draw, such as train/loss/total (episode/score)",
    )
    parser.add_argument("--x", choices=("step", "hours"), default="step", help="over what (step)")
    parser.add_argument(
        "--by",
        choices=BY,
        default="config",
        help="runs are averaged with the same settings but for the seed (config), in folders of the same name (folder),"
        " of the same task (task), or not at all (run)",
    )
    parser.add_argument(
        "--reference", nargs="+", type=Path, default=[], metavar="FILE", help="JSON or CSV files with more curves"
    )


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Draws the figure and says what is in it."""
    if words:
        raise ConfigError("argument", words[0], "is unknown", "see dreamfleet plot --help")
    if args.out.suffix not in FORMATS:
        raise ConfigError("out", str(args.out), "is no kind of figure", f"end it in {', '.join(FORMATS)}")
    if args.reference and args.x != "step":
        raise ConfigError("x", args.x, "is not what references have, which is steps", "leave one of the two out")
    from dreamfleet.results.curves import load_reference
    from dreamfleet.results.figure import draw

    curves = [curve for path in args.reference for curve in load_reference(path.expanduser())]
    drawn = draw([*_load_curves(args), *curves], args.out.expanduser(), args.metric, args.x)
    for curve, task, band in drawn:
        kind = "reference" if curve.is_reference else f"{len(curve.runs)} run{'s' * (len(curve.runs) > 1)}"
        spread = f" ± {band.std[-1]:,.1f}" if len(curve.runs) > 1 else ""
        print(f"{task}: {curve.label} ({kind}), last {band.mean[-1]:,.1f}{spread}, best {band.mean.max():,.1f}")
    print(f"wrote {args.out}")
    return 0


def _load_curves(args: argparse.Namespace) -> list:
    """The runs of all log directories, put together to curves."""
    from dreamfleet.results.curves import Curve, find_runs, load_run_curve

    runs = dict.fromkeys(run for logdir in args.logdirs for run in find_runs(logdir.expanduser().absolute()))
    groups: dict[tuple, list] = {}
    for logdir in runs:
        curve = load_run_curve(logdir, args.metric, args.x)
        if len(curve.xs):
            groups.setdefault(_group(logdir, args.by), []).append((logdir, curve))
    if not groups:
        where = ", ".join(map(str, args.logdirs))
        remedy = "wait until an episode has ended, or name a key of metrics.jsonl"
        raise ConfigError("metric", args.metric, f"has not been logged by the runs in {where}", remedy)
    return [
        Curve(_label([logdir for logdir, _ in members], args.by), task, [curve for _, curve in members])
        for (task, _), members in groups.items()
    ]


def _group(logdir: Path, by: str) -> tuple[str, Any]:
    """The task of a run, and what runs have in common that are averaged."""
    from dreamfleet.options.saved import find_saved, fixed_values, read_saved

    options = read_saved(find_saved(logdir))
    if by == "config":
        same = {key: repr(value) for key, value in fixed_values(options).items() if key != "seed"}
        return options["task"], tuple(sorted(same.items()))
    return options["task"], {"folder": _folder(logdir), "task": "", "run": logdir}[by]


def _folder(logdir: Path) -> str:
    """The name of a run's directory without what tells its seeds apart: `x` for x/seed_0, x-seed1 and x_s2."""
    name = re.sub(r"(^|[-_.])(seed|s)[-_]?\d+$", "", logdir.name)
    return name or logdir.parent.name


def _label(logdirs: Sequence[Path], by: str) -> str:
    if by == "task":
        return "all runs"
    if by == "run":
        return "/".join(logdirs[0].parts[-2:])
    names = list(dict.fromkeys(map(_folder, logdirs)))
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
