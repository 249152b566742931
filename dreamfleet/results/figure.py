"""Draws learning curves: one panel a task, one line a curve with the spread of its seeds, as PNG, SVG or HTML."""

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dreamfleet.results.curves import Band, Curve, aggregate, make_edges
from dreamfleet.results.extras import load_extra

FORMATS = (".png", ".svg", ".html")
POINTS = 40  # of a curve
COLUMNS = 3
# Told apart by people who do not see all colours, too.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31")
REFERENCE_COLORS = ("#777777", "#aaaaaa", "#555555", "#999999")
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "dreamfleet",  # the same data give the same file
}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }}
svg {{ max-width: 100%; height: auto }} table {{ border-collapse: collapse; margin-top: 1.5rem }}
th, td {{ text-align: right; padding: .3rem .9rem; border-bottom: 1px solid #ddd }}
th:nth-child(-n+2), td:nth-child(-n+2) {{ text-align: left }}
</style></head><body><h1>{title}</h1>
{figure}
{table}
</body></html>
"""


def draw(curves: Sequence[Curve], path: Path, metric: str, x: str) -> list[tuple[Curve, str, Band]]:
    """Writes the figure; returns what was drawn, with the task of the panel."""
    matplotlib = load_extra("matplotlib", "plot", "plot")
    figures = load_extra("matplotlib.figure", "plot", "plot")
    tasks = sorted({curve.task for curve in curves if not curve.is_reference})
    panels = {task: [curve for curve in curves if curve.task in (task, "")] for task in tasks}
    columns = 2 if len(tasks) == 4 else min(COLUMNS, len(tasks))
    rows = -(-len(tasks) // columns)
    drawn = []
    with matplotlib.rc_context(STYLE):
        figure = figures.Figure(figsize=(max(6.4, 4.4 * columns), 3.9 * rows), layout="constrained")
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        colors = _choose_colors(curves)
        for ax, (task, members) in zip(axes, panels.items(), strict=False):
            own = make_edges([curve for curve in members if not curve.is_reference], POINTS)
            bands = [
                (curve, aggregate(curve.runs, make_edges([curve], POINTS) if curve.is_reference else own))
                for curve in members
            ]
            for curve, band in bands:
                _draw_curve(ax, curve, band, colors[curve.label, curve.is_reference])
            drawn += [(curve, task, band) for curve, band in bands]
            _dress(ax, task, metric, x)
        for ax in axes[len(tasks) :]:
            ax.set_axis_off()
        _write(figure, path, metric, drawn)
    return drawn


def _choose_colors(curves: Sequence[Curve]) -> dict[tuple[str, bool], str]:
    """A color for each label, the same in every panel."""
    chosen: dict[tuple[str, bool], str] = {}
    for is_reference, colors in ((False, COLORS), (True, REFERENCE_COLORS)):
        labels = dict.fromkeys(curve.label for curve in curves if curve.is_reference == is_reference)
        chosen |= {(label, is_reference): colors[i % len(colors)] for i, label in enumerate(labels)}
    return chosen


def _draw_curve(ax: Any, curve: Curve, band: Band, color: str) -> None:
    runs = f" ({len(curve.runs)} runs)" if len(curve.runs) > 1 else ""
    style = {"linestyle": "--", "linewidth": 1.6} if curve.is_reference else {"linewidth": 2.0}
    ax.plot(band.xs, band.mean, color=color, label=curve.label + runs, zorder=2 if curve.is_reference else 3, **style)
    if len(curve.runs) > 1:
        low, high = band.mean - band.std, band.mean + band.std
        ax.fill_between(band.xs, low, high, color=color, alpha=0.18, linewidth=0)
    elif not curve.is_reference:
        (run,) = curve.runs
        ax.plot(run.xs, run.ys, ".", color=color, alpha=0.35, markersize=4, markeredgewidth=0, zorder=1)


def _dress(ax: Any, task: str, metric: str, x: str) -> None:
    ax.set_title(task, loc="left", fontweight="bold")
    ax.set_xlabel({"step": "environment steps", "hours": "hours"}[x])
    ax.set_ylabel({"episode/score": "episode score", "eval_episode/score": "eval episode score"}.get(metric, metric))
    ax.set_xlim(left=0)
    ax.margins(x=0.01)
    if x == "step":
        ax.xaxis.set_major_formatter(lambda value, _: _short(value))
    ax.legend(loc="best", frameon=False)


def _short(value: float) -> str:
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{letter}"
    return f"{value:g}"


def _write(figure: Any, path: Path, metric: str, drawn: list[tuple[Curve, str, Band]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".html":
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        image = buffer.getvalue()
        page = PAGE.format(title=html.escape(metric), figure=image[image.index("<svg") :], table=_table(drawn))
        path.write_text(page, encoding="utf-8")
    else:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=160, metadata=metadata)


def _table(drawn: list[tuple[Curve, str, Band]]) -> str:
    head = ("task", "curve", "runs", "last", "&plusmn; over runs", "best", "at")
    lines = ["<table><tr>" + "".join(f"<th>{title}</th>" for title in head) + "</tr>"]
    for curve, task, band in drawn:
        best = int(np.argmax(band.mean))
        cells = [html.escape(task), html.escape(curve.label), len(curve.runs), f"{band.mean[-1]:,.1f}"]
        cells += [f"{band.std[-1]:,.1f}", f"{band.mean[best]:,.1f}", _short(float(f"{band.xs[best]:.3g}"))]
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "\n".join([*lines, "</table>"])
