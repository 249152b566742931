"""The table and the JSON file that every benchmark ends with."""

import argparse
import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass
class Case:
    """One measurement; `ratio` is ours against the baseline, above 1 when ours is better."""

    case: str
    unit: str
    better: str  # "higher" or "lower"
    ours: float
    baseline: float | None = None
    ratio: float | None = None

    def __post_init__(self) -> None:
        assert self.better in ("higher", "lower"), self.better
        if self.baseline is not None and self.ratio is None:
            above, below = (self.ours, self.baseline) if self.better == "higher" else (self.baseline, self.ours)
            self.ratio = above / below if below else None


def parse_args(description: str) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    return parser


def finish(name: str, cases: list[Case], path: Path | None) -> None:
    """Prints the table and writes the file."""
    table = Table(title=name)
    for column in ("case", "ours", "baseline", "unit", "ratio"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for case in cases:
        ratio = "" if case.ratio is None else f"{case.ratio:.2f}x"
        baseline = "" if case.baseline is None else f"{case.baseline:,.2f}"
        table.add_row(case.case, f"{case.ours:,.2f}", baseline, case.unit, ratio)
    Console(width=110).print(table)
    if path:
        path.write_text(json.dumps({"name": name, "machine": machine(), "cases": [asdict(c) for c in cases]}, indent=1))


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    model = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    names = [line.split(":", 1)[1].strip() for line in model.splitlines() if line.startswith("Model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }
