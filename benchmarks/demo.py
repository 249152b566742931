"""`dreamfleet demo` over seeds: how long it takes to learn, and what the policy scores that is kept at the end.

Interrupted, the same command skips the seeds that are done.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.report import parse_args
from dreamfleet.base.files import replace_file
from dreamfleet.results.curves import SCORE, load_run_curve

GOAL = 475.0  # at which CartPole-v1 counts as solved
EPISODES = 20  # whose mean has to reach it
COLUMNS = ("seed", "steps to 475", "minutes to 475", "kept policy, 40 episodes", "95 % interval", "minutes in all")


def main() -> None:
    parser = parse_args(__doc__ or "")
    parser.add_argument("--out", type=Path, required=True, help="directory of the runs: OUT/seed_N")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)), help="default: 0 to 9")
    args = parser.parse_args()
    lines = []
    for seed in args.seeds:
        lines.append({"seed": seed, **run_demo(args.out / f"seed_{seed}", seed)})
        print(json.dumps(lines[-1]), flush=True)
    show(lines)
    if args.json:
        args.json.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if not all(line["mean"] >= GOAL for line in lines):
        raise SystemExit(f"a policy was kept that scores less than {GOAL}")


def run_demo(logdir: Path, seed: int) -> dict:
    """Runs the demo, unless that is done, and returns what is to be known of it."""
    result = logdir / "benchmark.json"
    if not result.is_file():
        command = [sys.executable, "-m", "dreamfleet", "demo", "--logdir", str(logdir), "--seed", str(seed)]
        start = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\nfailed:\n{done.stdout}")
        replace_file(result, json.dumps({**read_scores(done.stdout), "minutes": (time.monotonic() - start) / 60}))
    return {**find_goal(logdir), **json.loads(result.read_text())}


def read_scores(printed: str) -> dict:
    """The score of the policy that is kept, as the demo shows it at its end."""
    line = re.search(r"^mean +([\d.,]+) +\[([\d.,]+), ([\d.,]+)\]$", printed, re.MULTILINE)
    if line is None:
        raise SystemExit(f"the demo shows no score:\n{printed}")
    return dict(zip(("mean", "low", "high"), (float(value.replace(",", "")) for value in line.groups()), strict=True))


def find_goal(logdir: Path) -> dict:
    """When the mean score of the last episodes first reached the goal, in steps and in minutes after the first one."""
    steps, hours = (load_run_curve(logdir, SCORE, x) for x in ("step", "hours"))
    means = np.convolve(steps.ys, np.full(EPISODES, 1 / EPISODES), "valid")
    if not (means >= GOAL).any():
        return {"goal_step": None, "goal_minutes": None}
    first = int((means >= GOAL).argmax()) + EPISODES - 1
    return {"goal_step": int(steps.xs[first]), "goal_minutes": 60 * float(hours.xs[first])}


def show(lines: list[dict]) -> None:
    table = Table(title="dreamfleet demo")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for line in lines:
        goal = ("-", "-") if line["goal_step"] is None else (f"{line['goal_step']:,}", f"{line['goal_minutes']:.1f}")
        interval = f"[{line['low']:.1f}, {line['high']:.1f}]"
        table.add_row(str(line["seed"]), *goal, f"{line['mean']:.1f}", interval, f"{line['minutes']:.1f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
