"""kill -9 of the writing process at random moments: the store opens with exactly what was committed."""

import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

from dreamfleet.errors import ReplayError
from dreamfleet.replay import Store
from tests.replay.crashing_writer import CAPACITY, LENGTH, WORKERS, make_row
from tests.replay.stores import BLOCK_ROWS, all_rows

WRITER = Path(__file__).parent / "crashing_writer.py"
KILLS = 50


@pytest.mark.distributed
def test_fifty_kills_lose_nothing_that_was_acknowledged(tmp_path):
    (tmp_path / "acknowledged").write_bytes(bytes(8))
    rng, before = np.random.default_rng(0), 0
    for life in range(KILLS):
        kill_writer(tmp_path, life, after_s=float(rng.exponential(0.05)))
        acknowledged = int.from_bytes((tmp_path / "acknowledged").read_bytes(), "little")
        with Store(LENGTH, CAPACITY, directory=tmp_path / "store", sync_every=0.0) as store:
            committed = store.committed
            # Between the commit and the acknowledgement one batch is both there and not acknowledged.
            assert acknowledged <= committed <= acknowledged + 11 and committed >= before
            assert int.from_bytes(store.note, "little") == committed, "a batch is committed whole or not at all"
            check_rows(store, committed)
        (tmp_path / "acknowledged").write_bytes(committed.to_bytes(8, "little"))
        before = committed
    assert before > 3 * CAPACITY, "segments were evicted meanwhile"


def kill_writer(directory: Path, seed: int, after_s: float) -> None:
    command = [sys.executable, str(WRITER), str(directory), str(seed)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout and process.stdout.readline() == "ready\n"
        threading.Event().wait(after_s)
    finally:
        process.kill()
        process.communicate()


def check_rows(store: Store, committed: int) -> None:
    """The newest rows are all there, each as it was sent, and the sequences follow their trajectories."""
    rows = all_rows(store)
    if not committed:
        assert not rows
        return
    for worker in range(min(WORKERS, committed)):
        own = [n for n in sorted(rows) if n % WORKERS == worker]
        assert own == list(range(own[0], committed, WORKERS)), "of every trajectory the newest rows are there"
    assert len(rows) >= min(CAPACITY, committed) - WORKERS * BLOCK_ROWS
    for n, row in rows.items():
        assert int(row["crc"]) == zlib.crc32(row["data"].tobytes() + row["vector"].tobytes() + n.to_bytes(8, "little"))
        assert row["is_first"] == (n % 37 == 0)
        assert not row["is_last"] or (n + WORKERS) % 37 == 0, "only the row before a first one is marked as last"
    np.testing.assert_equal(rows[committed - 1]["data"], make_row(committed - 1)["data"])
    if len(store):
        numbers = store.sample(50)["n"]
        np.testing.assert_array_equal(numbers, numbers[:, :1] + WORKERS * np.arange(LENGTH))


@pytest.mark.distributed
def test_a_second_writer_is_refused_with_the_pid_of_the_first(tmp_path):
    (tmp_path / "acknowledged").write_bytes(bytes(8))
    process = subprocess.Popen([sys.executable, str(WRITER), str(tmp_path), "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout and process.stdout.readline() == "ready\n"
        with pytest.raises(ReplayError, match=f"is in use by process {process.pid};"):
            Store(LENGTH, CAPACITY, directory=tmp_path / "store")
    finally:
        process.kill()
        process.communicate()
    Store(LENGTH, CAPACITY, directory=tmp_path / "store").close()
