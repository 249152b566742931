"""A process that fills a store until it is killed, run by test_store_crash: DIRECTORY SEED.

After every batch it acknowledges, in a mapped file beside the store, how many rows are committed.
"""

import mmap
import sys
import zlib
from pathlib import Path

import numpy as np

from dreamfleet.replay import Store

LENGTH, CAPACITY, WORKERS = 5, 600, 4


def make_row(n: int) -> dict:
    """Row number `n` of all: contents that follow from the number, with their checksum."""
    rng = np.random.default_rng(n)
    data = rng.integers(0, 256, 3000).astype(np.uint8)
    vector = rng.normal(size=20).astype(np.float32)
    crc = zlib.crc32(data.tobytes() + vector.tobytes() + n.to_bytes(8, "little"))
    return {
        "n": np.int64(n),
        "data": data,
        "vector": vector,
        "crc": np.uint32(crc),
        "state": np.float32(0),
        "is_first": np.bool_(n % 37 == 0),
        "is_last": np.bool_(False),
    }


def main(directory: Path, seed: int) -> None:
    with (directory / "acknowledged").open("r+b") as file:
        acknowledged = np.frombuffer(mmap.mmap(file.fileno(), 8), np.int64)
    rng = np.random.default_rng(seed)
    store = Store(LENGTH, CAPACITY, directory=directory / "store", sync_every=0.01)
    print("ready", flush=True)
    n = store.committed
    while True:
        count = int(rng.integers(1, 12))
        rows = [make_row(n + i) for i in range(count)]
        batch = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
        n += count
        store.add_many(batch, [i % WORKERS for i in range(n - count, n)], note=n.to_bytes(8, "little"))
        acknowledged[0] = n
        if len(store) and rng.random() < 0.3:
            data = store.sample(3)
            store.update({"stepid": data["stepid"], "state": data["state"] + 1})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
