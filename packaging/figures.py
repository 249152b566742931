"""Draws the pictures of docs/concepts.md: `make docs` writes them to docs/images."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#777777"  # told apart by colour-blind people too


def draw_roles(axes: plt.Axes) -> None:
    boxes = {
        "environments": (0.5, 2.0, GREEN),
        "policy server": (4.0, 2.7, BLUE),
        "learner": (4.0, 1.3, BLUE),
        "replay": (7.5, 2.0, ORANGE),
        "logger": (4.0, -0.5, GREY),
    }
    for name, (x, y, colour) in boxes.items():
        axes.add_patch(FancyBboxPatch((x, y), 2, 0.7, boxstyle="round,pad=0.08", fc=colour, ec="none"))
        axes.text(x + 1, y + 0.35, name, color="white", ha="center", va="center")
    axes.add_patch(FancyBboxPatch((3.8, 1.1), 2.4, 2.5, boxstyle="round,pad=0.1", fc="none", ec=BLUE, ls="--"))
    axes.text(5, 3.8, "agent process", color=BLUE, ha="center")
    arrows = [
        ((2.6, 2.6), (3.9, 3.1), "observations", 0.28),
        ((3.9, 2.8), (2.6, 2.3), "actions", -0.38),
        ((6.1, 3.1), (7.4, 2.6), "transitions", 0.28),
        ((7.4, 2.2), (6.1, 1.6), "sequences", -0.38),
        ((5, 1.2), (5, 0.3), "metrics", -0.15),
    ]
    for start, end, label, offset in arrows:
        axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": GREY, "lw": 1.5})
        x, y = (np.array(start) + end) / 2
        side = {"metrics": 0.55, "observations": -0.25}.get(label, 0.0)
        axes.text(x + side, y + offset, label, color=GREY, ha="center", va="center", fontsize=8)
    axes.set(xlim=(0, 10), ylim=(-0.7, 4.1))
    axes.axis("off")


def draw_ratio(axes: plt.Axes) -> None:
    steps = np.linspace(0, 10_000, 400)
    start, ratio, band = 1_000, 32, 30_000
    wanted = ratio * np.maximum(0, steps - start)
    wobble = band * 0.7 * np.sin((steps - start) / 600) * (steps > start)
    axes.fill_between(steps, np.maximum(0, wanted - band), wanted + band, color=BLUE, alpha=0.15, lw=0)
    axes.plot(steps, wanted, color=BLUE, ls="--", label="train ratio 32")
    axes.plot(steps, np.maximum(0, wanted + wobble), color=ORANGE, label="a run")
    axes.annotate("prefilling", (start / 2, 8_000), ha="center", color=GREY)
    axes.text(7_300, 120_000, "learner behind:\ncollection pauses", color=GREY)
    axes.text(2_000, 190_000, "learner ahead:\nit waits for steps", color=GREY)
    axes.set(xlabel="env steps", ylabel="trained steps")
    axes.legend(loc="lower right", frameon=False)


def draw_sequence(axes: plt.Axes) -> None:
    first, length, burn_in = 5, 9, 1
    for row in range(20):
        is_second = row >= 10
        axes.add_patch(plt.Rectangle((row, 0), 0.92, 1, fc=GREEN if is_second else BLUE, alpha=0.75, lw=0))
        if row in (0, 10):
            axes.text(row + 0.46, 0.5, "is_first", rotation=90, color="white", ha="center", va="center", fontsize=7)
    axes.text(5, -0.55, "episode 1", color=BLUE, ha="center")
    axes.text(15, -0.55, "episode 2", color=GREEN, ha="center")
    axes.add_patch(plt.Rectangle((first, 1.25), burn_in - 0.08, 0.35, fc=GREY, lw=0))
    axes.add_patch(plt.Rectangle((first + burn_in, 1.25), length - 0.08, 0.35, fc=ORANGE, lw=0))
    axes.text(first + 0.46, 1.8, "burn-in", color=GREY, ha="center", fontsize=9)
    axes.text(first + burn_in + length / 2, 1.8, "a training sequence", color=ORANGE, ha="center", fontsize=9)
    axes.set(xlim=(-0.3, 20.3), ylim=(-0.8, 2.2))
    axes.axis("off")


def draw_checkpoint(axes: plt.Axes) -> None:
    crash, resumed = 70, 50
    axes.plot([0, crash], [0, crash], color=ORANGE, lw=2)
    axes.plot([crash, 100], [resumed, resumed + 30], color=ORANGE, lw=2, label="updates")
    axes.plot([crash, crash], [crash, resumed], color=ORANGE, ls=":")
    axes.plot([0, 100], [12, 112], color=BLUE, lw=2, label="stored steps")
    axes.scatter([25, 50], [25, 50], color=GREEN, zorder=3, label="checkpoint")
    axes.axvline(crash, color=GREY, ls="--")
    axes.text(crash + 1, 3, "kill -9, restart", color=GREY)
    axes.set(xlabel="time", xticks=[], yticks=[])
    axes.legend(loc="upper left", frameon=False)


FIGURES = {
    "roles": (draw_roles, 3.2),
    "ratio": (draw_ratio, 3.4),
    "sequence": (draw_sequence, 1.6),
    "checkpoint": (draw_checkpoint, 3.0),
}


def main() -> None:
    for name, (draw, height) in FIGURES.items():
        figure, axes = plt.subplots(figsize=(7.5, height), layout="constrained")
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        figure.savefig(IMAGES / f"concept-{name}.png", dpi=110, metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
