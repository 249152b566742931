"""The baseline of the replay benchmark: steps as dicts of arrays in chunks, sequences put together one by one."""

import collections
from pathlib import Path

import numpy as np

CHUNK = 1024


class ChunkReplay:
    """What one would write first: a loop per step and key to insert, a loop per sequence and key to sample."""

    def __init__(self, length: int, capacity: int):
        self.length = length
        self._capacity = capacity
        self._chunks: dict[int, list[dict]] = {}  # worker -> chunks
        self._rows: collections.Counter = collections.Counter()
        self._items: collections.deque = collections.deque()  # (worker, position)
        self._priorities: dict[tuple, float] = {}
        self._rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, step: dict, worker: int) -> None:
        position = self._rows[worker]
        chunks = self._chunks.setdefault(worker, [])
        if position % CHUNK == 0:
            chunks.append({k: np.empty((CHUNK, *np.shape(v)), np.asarray(v).dtype) for k, v in step.items()})
        for key, value in step.items():
            chunks[-1][key][position % CHUNK] = value
        self._rows[worker] += 1
        if position + 1 >= self.length:
            self._items.append((worker, position + 1 - self.length))
            self._priorities[self._items[-1]] = 1.0
        if len(self._items) > self._capacity:
            worker, position = self._items.popleft()
            del self._priorities[worker, position]
            if position % CHUNK == CHUNK - 1:
                self._chunks[worker][position // CHUNK] = {}

    def add_many(self, batch: dict, workers: list[int]) -> None:
        for i, worker in enumerate(workers):
            self.add({k: v[i] for k, v in batch.items()}, worker)

    def sample(self, batch: int, mode: str = "train") -> dict:
        picks = self._rng.integers(0, len(self._items), batch)
        return self._collate([self._items[pick] for pick in picks])

    def sample_prioritised(self, batch: int) -> dict:
        items, weights = self.weights()
        return self._collate([items[i] for i in self._rng.choice(len(items), batch, p=weights)])

    def weights(self) -> tuple[list[tuple], np.ndarray]:
        weights = np.fromiter(self._priorities.values(), np.float64, len(self._priorities))
        return list(self._priorities), weights / weights.sum()

    def prioritise(self, items: list[tuple], priorities: np.ndarray) -> None:
        for (worker, position), row in zip(items, priorities, strict=True):
            for offset, priority in enumerate(row):
                if (worker, position + offset) in self._priorities:
                    self._priorities[worker, position + offset] = float(priority)

    def update(self, items: list[tuple], key: str, values: np.ndarray) -> None:
        for (worker, position), rows in zip(items, values, strict=True):
            for offset, row in enumerate(rows, position):
                self._chunks[worker][offset // CHUNK][key][offset % CHUNK] = row

    def draw(self, batch: int) -> list[tuple]:
        return [self._items[pick] for pick in self._rng.integers(0, len(self._items), batch)]

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        for worker, chunks in self._chunks.items():
            for index, chunk in enumerate(chunks):
                np.savez(directory / f"{worker}-{index}.npz", **chunk)

    def load(self, directory: Path) -> None:
        for path in sorted(directory.glob("*.npz")):
            with np.load(path) as file:
                self._chunks.setdefault(int(path.name.split("-")[0]), []).append({k: file[k] for k in file.files})

    def _collate(self, items: list[tuple]) -> dict:
        sequences = [self._sequence(worker, position) for worker, position in items]
        data = {key: np.stack([sequence[key] for sequence in sequences]) for key in sequences[0]}
        data["is_first"][:, 0] = True
        return data

    def _sequence(self, worker: int, position: int) -> dict:
        chunks, end = self._chunks[worker], position + self.length
        parts = []
        for index in range(position // CHUNK, (end - 1) // CHUNK + 1):
            low, high = max(position - index * CHUNK, 0), min(end - index * CHUNK, CHUNK)
            parts.append({key: value[low:high] for key, value in chunks[index].items()})
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
