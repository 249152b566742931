"""What the reference writes, in small."""

from pathlib import Path

import numpy as np

from dreamfleet.replay.archive import Archive

DATA = Path(__file__).parents[1] / "data" / "reference_a.npz"
CONFIG = {
    "task": "dummy_vector",
    "seed": 3,
    "batch_size": 4,
    "script": "parallel",
    "env": {"atari": {"size": [64, 64], "actions": "all"}},
    "replay": {
        "size": 5e4,
        "online": False,
        "prio": {"initial": float("inf")},
        "fracs": {"uniform": 0.5, "recency": 0.5},
    },
    "run": {"steps": 1e4, "actor_batch": -1, "train_ratio": 64.0},
    "jax": {"platform": "cpu", "compute_dtype": "bfloat16"},
    "agent": {
        "opt": {"lr": 1e-4},
        "dyn": {"rssm": {"deter": 64}},
        "retnorm": {"impl": "perc"},
        "valnorm": {"impl": "odd"},
    },
}


def write_chunk(folder: Path, number: int, following: int, rows: int, first: int = 0, **extra) -> None:
    """A chunk that begins at the step `first` of an endless count, with an episode every five steps."""
    steps = np.arange(first, first + rows)
    data = {
        "vector": np.stack([steps, steps], 1).astype(np.float32),
        "action": np.zeros(rows, np.int32),
        "reward": steps.astype(np.float32),
        "is_first": steps % 5 == 0,
        "is_last": steps % 5 == 4,
        "is_terminal": steps % 5 == 4,
        "stepid": np.zeros((rows, 20), np.uint8),
        "dyn/deter": np.linspace(-1, 1, 8 * rows, dtype=np.float32).reshape(rows, 8),
        "dyn/stoch": np.eye(4, dtype=np.float32)[steps[:, None] % [1, 2, 3]],
        "enc/other": np.zeros(rows, np.float32),
        **extra,
    }
    np.savez_compressed(folder / f"20260101T00000{number}F000-{number:022d}-{following:022d}-{rows}.npz", **data)


def trajectories(directory: Path) -> list[np.ndarray]:
    """The rewards in a store of ours."""
    archive = Archive(directory)
    by_trajectory: dict[int, list] = {}
    for trajectory, segments, rows in archive.episodes():
        by_trajectory.setdefault(trajectory, []).append(archive.column("reward", segments, rows))
    return [np.concatenate(parts) for parts in by_trajectory.values()]
