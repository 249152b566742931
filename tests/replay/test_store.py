"""The store in memory and on disk: what goes in comes out, sequences stay whole, space stays bounded."""

import contextlib
import gc
import threading
from pathlib import Path

import numpy as np
import pytest

from dreamfleet.errors import ConfigError, ReplayError
from dreamfleet.replay import Store
from dreamfleet.testing import CountingEnv
from dreamfleet.testing.counting import check_sequences, expected_action
from tests.replay.stores import BLOCK_ROWS, add, all_rows, fill, make_row, open_store, stack


@pytest.fixture(params=["ram", "disk"])
def open_any(request, tmp_path):
    """Opens a store of the storage under test."""

    def make(*args, **kwargs):
        directory = tmp_path / "store" if request.param == "disk" else None
        return open_store(*args, directory=directory, **kwargs)

    return make


def test_a_sequence_needs_its_length(open_any):
    with open_any(length=10) as store:
        fill(store, 9)
        assert len(store) == 0
        with pytest.raises(ReplayError, match="no sequence of 10 rows"):
            store.sample(1)
        fill(store, 1, start=9)
        assert len(store) == 1
        data = store.sample(3)
        assert data["n"].tolist() == [list(range(10))] * 3
        assert data["vector"].dtype == np.float32 and data["vector"].shape == (3, 10, 3)
        assert data["stepid"].dtype == np.uint8 and data["stepid"].shape == (3, 10, 20)


@pytest.mark.parametrize("length", [1, 2, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS + 5])
def test_sequences_of_any_length_cross_blocks_and_segments(open_any, length):
    with open_any(length=length, capacity=1000) as store:
        fill(store, 600)
        fill(store, 300, worker=1, start=1000)
        data = store.sample(200)
        np.testing.assert_array_equal(data["n"], data["n"][:, :1] + np.arange(length))
        np.testing.assert_array_equal(data["vector"][..., 0], data["n"])
        assert len(store) == 900 - 2 * (length - 1)


@pytest.mark.parametrize("capacity", [10, 64, 100, 1000, 5000])
def test_keeps_at_least_the_capacity_and_is_bounded(open_any, capacity):
    with open_any(length=10, capacity=capacity) as store:
        fill(store, 2 * capacity + 700)
        kept = sorted(all_rows(store))
        assert kept == list(range(kept[0], 2 * capacity + 700))
        segment_rows = store._rows.layout.rows
        assert capacity <= len(kept) <= capacity + 2 * segment_rows
        assert segment_rows <= max(BLOCK_ROWS, capacity // 4 + BLOCK_ROWS)
        assert len(store) == len(kept) - 9
        assert store.stats()["steps"] == len(kept) and store.stats()["trajectories"] == 1


def test_files_of_evicted_segments_are_deleted(tmp_path):
    with open_store(length=5, capacity=1000, directory=tmp_path) as store:
        sizes = set()
        for _ in range(10):
            fill(store, 500)
            with contextlib.suppress(FileNotFoundError):  # evicted between the list and the look
                sizes.add(sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir()))
        most = (store._rows.pool.slots + 2) * store._rows.layout.size + 3 * 4096
        assert 0 < max(sizes) <= most
    left = [path for path in tmp_path.iterdir() if path.suffix == ".segment"]
    assert len(left) == store._rows.pool.slots, "the segment that was made ahead is gone too"


def test_memory_of_evicted_segments_is_used_again():
    with open_store(length=5, capacity=1000) as store:
        fill(store, 2000)
        gc.collect()  # what earlier tests have left open must not be closed in between
        before = len(list(Path("/proc/self/fd").iterdir()))
        fill(store, 4000)
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_environments_that_are_gone_leave_nothing(open_any):
    with open_any(length=2, capacity=4 * BLOCK_ROWS) as store:
        for worker in range(1000):
            fill(store, 3, worker=worker, start=10 * worker)
        rows = store._rows
        assert len(rows._trajectories) <= rows.pool.slots * rows.layout.blocks
        assert store.stats()["trajectories"] == len(rows._trajectories)


def test_many_environments_at_once_and_several_rows_of_each(open_any):
    with open_any(length=20, capacity=3000) as store:
        workers = [0, 1, 2, 1, 0, 2, 2, 2]  # rows of a worker are in order
        counts = dict.fromkeys(range(3), 0)
        for _ in range(100):
            rows = []
            for worker in workers:
                rows.append(make_row(10_000 * worker + counts[worker]))
                counts[worker] += 1
            store.add_many(stack(rows), workers)
        assert len(store) == sum(count - 19 for count in counts.values())
        data = store.sample(300)
        np.testing.assert_array_equal(data["n"], data["n"][:, :1] + np.arange(20))
        assert set((data["n"] // 10_000).ravel()) == {0, 1, 2}


def test_a_slow_environment_loses_its_rows_and_goes_on(open_any):
    with open_any(length=2, capacity=4 * BLOCK_ROWS) as store:
        fill(store, 3, worker=7, start=0)
        for n in range(20 * BLOCK_ROWS):
            rows = [make_row(100_000 + n)]
            workers = [8]
            if n % 50 == 0:  # its block is evicted each time before it comes again
                rows.append(make_row(3 + n // 50))
                workers.append(7)
            store.add_many(stack(rows[::-1]), workers[::-1])
        numbers = sorted(all_rows(store))
        assert [n for n in numbers if n < 100_000] == list(range(numbers[0], 3 + n // 50 + 1))
        data = store.sample(100)
        np.testing.assert_array_equal(data["n"][:, 1], data["n"][:, 0] + 1)


def test_a_batch_that_cannot_fit_is_refused_and_changes_nothing(open_any):
    with open_any(length=2, capacity=BLOCK_ROWS) as store:
        fill(store, 5)
        rows = stack([make_row(i) for i in range(100)])
        with pytest.raises(ReplayError, match="raise the capacity"):
            store.add_many(rows, list(range(100)))
        assert sorted(all_rows(store)) == [0, 1, 2, 3, 4]
        fill(store, 1, start=5)
        assert len(store) == 5


def test_sequences_cross_episodes_and_first_is_forced_on_row_0_only(open_any):
    with open_any(length=6) as store:
        for n in range(6):
            store.add(make_row(n, is_first=n % 3 == 0, is_last=n % 3 == 2), 0)
        store.add(make_row(6, is_first=True), 0)
        starts = {}
        for data in (store.sample(1) for _ in range(30)):
            starts[int(data["n"][0, 0])] = data["is_first"][0].tolist()
        assert starts == {0: [True, False, False] * 2, 1: [True, False, True, False, False, True]}
        assert [bool(row["is_first"]) for _, row in sorted(all_rows(store).items())] == [True, False, False] * 2 + [
            True
        ]


def test_an_abandoned_episode_gets_a_last_row_and_others_keep_theirs(open_any):
    with open_any(length=4) as store:
        for n, (is_first, is_last) in enumerate([(True, False), (False, False), (True, False), (False, False)]):
            store.add(make_row(n, is_first, is_last), 0)
        store.add(make_row(100, is_first=True), 1)
        assert store.sample(1)["is_last"].tolist() == [[False, True, False, False]]


@pytest.mark.parametrize("at_once", [True, False])
def test_an_episode_abandoned_at_the_end_of_a_block_gets_a_last_row(open_any, at_once):
    with open_any(length=BLOCK_ROWS + 1) as store:
        rows = [make_row(n, is_first=n == BLOCK_ROWS) for n in range(BLOCK_ROWS + 1)]
        if at_once:
            store.add_many(stack(rows), [0] * len(rows))
        else:
            for row in rows:
                store.add(row, 0)
        assert np.flatnonzero(store.sample(1)["is_last"]).tolist() == [BLOCK_ROWS - 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": np.int64(0)}, r"extra \['extra'\]"),
        ({"n": None}, r"missing \['n'\]"),
        ({"n": np.int32(0)}, r"'n' is int32\(\), not int64\(\)"),
        ({"n": np.zeros(2, np.int64)}, r"'n' is int64\(2,\), not int64\(\)"),
    ],
)
def test_rows_unlike_the_first_are_refused_and_change_nothing(open_any, change, message):
    with open_any(length=2) as store:
        fill(store, 5)
        row = {k: v for k, v in {**make_row(5), **change}.items() if v is not None}
        with pytest.raises(ReplayError, match=message):
            store.add(row, 0)
        assert sorted(all_rows(store)) == [0, 1, 2, 3, 4]


def test_a_bad_first_row_does_not_fix_the_schema(open_any):
    with open_any(length=2) as store:
        with pytest.raises(ReplayError, match="no 'is_first'"):
            store.add({"n": np.int64(0)}, 0)
        with pytest.raises(ReplayError, match="'stepid'"):
            store.add({**make_row(0), "stepid": np.zeros(20, np.uint8)}, 0)
        with pytest.raises(ReplayError, match=r"'n' has shape \(2,\), but there are 1 workers"):
            store.add_many({**stack([make_row(0)]), "n": np.zeros(2, np.int64)}, [0])
        fill(store, 3)
        assert sorted(all_rows(store)) == [0, 1, 2]


def test_updates_are_written_and_those_of_evicted_rows_ignored(open_any):
    with open_any(length=4, capacity=BLOCK_ROWS) as store:
        fill(store, 4)
        old = store.sample(2)
        store.update({"stepid": old["stepid"][:1], "vector": old["vector"][:1] + 50})
        assert store.sample(1)["vector"][0, :, 0].tolist() == [50, 51, 52, 53]
        assert store.stats()["updates_ignored"] == 0
        fill(store, 4 * BLOCK_ROWS, start=4)
        before = all_rows(store)
        store.update({"stepid": old["stepid"][:1], "vector": old["vector"][:1] + 1000})
        np.testing.assert_equal(all_rows(store), before)
        assert store.stats()["updates_ignored"] == 4


def test_updates_of_other_stores_and_of_unwritten_rows_are_ignored(open_any):
    with open_any(length=4) as store, open_store(length=4) as other:
        fill(store, 4)
        fill(other, 4)
        data = other.sample(1)
        store.update({"stepid": data["stepid"], "n": data["n"] + 1})
        ids = store.sample(1)["stepid"]
        ids[..., 19] += 4  # the rows after the last
        store.update({"stepid": ids, "n": data["n"] + 1})
        ids[..., 16] = 255  # rows that no segment has
        store.update({"stepid": ids, "n": data["n"] + 1})
        assert sorted(all_rows(store)) == [0, 1, 2, 3]
        assert store.stats()["updates_ignored"] == 12


def test_an_update_of_another_shape_is_refused(open_any):
    with open_any(length=4) as store:
        fill(store, 4)
        data = store.sample(1)
        with pytest.raises(ReplayError, match=r"'vector' has shape \(1, 4, 2\), but there are 4 steps of shape \(3,\)"):
            store.update({"stepid": data["stepid"], "vector": data["vector"][..., :2]})


def test_a_step_id_is_a_segment_and_a_row_and_is_never_used_again(open_any):
    with open_any(length=BLOCK_ROWS, capacity=100) as store:
        seen = {}
        for start in range(0, 20 * BLOCK_ROWS, BLOCK_ROWS):
            fill(store, BLOCK_ROWS, start=start)
            data = store.sample(20)
            for step_id, n in zip(data["stepid"].reshape(-1, 20), data["n"].ravel().tolist(), strict=True):
                assert seen.setdefault(bytes(step_id), n) == n
        assert len(set(seen.values())) == len(seen)
        rows = data["stepid"][0, :, 16:].copy().view(">u4")[:, 0].astype(int)
        assert set(np.diff(rows).tolist()) <= {1, 1 - store._rows.layout.rows}


def test_online_sequences_are_seen_once_first_and_in_order():
    with open_store(length=5, online=True) as store:
        fill(store, 23)
        fill(store, 11, worker=1, start=100)
        assert store.sample(2, "report")["n"].shape == (2, 5), "other modes leave the queue alone"
        first = store.sample(4)["n"]
        assert first.tolist() == [list(range(s, s + 5)) for s in (0, 5, 10, 15)]
        second = store.sample(8)["n"]
        assert second[:2].tolist() == [list(range(s, s + 5)) for s in (100, 105)]
        counts = store.sample(100)["n"][:, 0]
        assert len(set(counts.tolist())) > 5, "then it samples as ever"
        fill(store, 2, start=23)
        assert store.sample(1)["n"].tolist() == [list(range(20, 25))]


def test_online_sequences_follow_each_other_over_a_restart(tmp_path):
    options = {"length": 5, "capacity": 300, "online": True, "directory": tmp_path}
    with open_store(**options) as store:
        fill(store, 1003)
        store.sample(300)
    with open_store(**options) as store:
        fill(store, 9, start=1003)
        assert store.sample(2)["n"].tolist() == [list(range(1000, 1005)), list(range(1005, 1010))]


def test_online_sequences_that_are_evicted_are_not_seen():
    with open_store(length=5, capacity=100, online=True) as store:
        fill(store, 2000)
        kept = min(all_rows(store))
        numbers = store.sample(10)["n"]
        assert numbers.min() >= kept
        np.testing.assert_array_equal(numbers, numbers[:1, :1] + np.arange(50).reshape(10, 5))


def test_modes_draw_apart_and_seeds_differ():
    def draw(seed: int, modes: str) -> list:
        with open_store(length=2, seed=seed) as store:
            fill(store, 500)
            drawn = [(mode, store.sample(5, mode)["n"][:, 0].tolist()) for mode in modes.split()]
            return [starts for mode, starts in drawn if mode == "train"]

    assert draw(0, "train report eval train report train") == draw(0, "train train train")
    assert draw(0, "train") != draw(1, "train")


def test_stats_count_rows_trajectories_and_bytes(open_any):
    with open_any(length=5, capacity=1000) as store:
        assert store.stats()["steps"] == 0
        fill(store, 10, worker=0)
        fill(store, 3, worker=1)
        stats = store.stats()
        assert (stats["steps"], stats["items"], stats["trajectories"], stats["capacity"]) == (13, 6, 2, 1000)
        assert stats["step_bytes"] == 8 + 12 + 1 + 1
        assert stats["bytes"] == store._rows.layout.size


def test_a_capacity_below_the_length_is_refused():
    with pytest.raises(ReplayError, match="capacity=9 cannot hold one sequence of length=10"):
        Store(10, 9)


def test_a_capacity_that_does_not_fit_is_refused_with_the_figures(open_any):
    with open_any(length=5, capacity=10**14) as store:
        with pytest.raises(ConfigError, match=r"replay.capacity=100000000000000 needs .* TB \(22 bytes per step\)"):
            fill(store, 1)
        assert len(store) == 0


def test_a_capacity_of_0_is_chosen_and_said(open_any, caplog):
    caplog.set_level("INFO")
    with open_any(length=5, capacity=0, steps=1000) as store:
        fill(store, 1)
        assert store.capacity == store.stats()["capacity"] == 1000
        assert "1,000 steps of 22 bytes" in caplog.text


def test_adding_and_sampling_in_several_threads_keeps_every_sequence_whole(open_any):
    with open_any(length=20, capacity=400) as store:
        errors = []

        def play(index: int) -> None:
            env, obs = CountingEnv(index, length=7 + index), None
            try:
                for _ in range(1500):
                    action = expected_action(index, int(obs["step"])) if obs else 0
                    obs = env.step({"action": action, "reset": obs is None or obs["is_last"]})
                    row = {k: np.asarray(v) for k, v in obs.items() if not k.startswith("log/")}
                    row["action"] = np.int32(expected_action(index, int(obs["step"])))
                    row["echo"] = np.int32(10 * obs["step"])
                    store.add(row, index)
            except Exception as e:
                errors.append(e)

        threads = [threading.Thread(target=play, args=(index,), daemon=True) for index in range(3)]
        for thread in threads:
            thread.start()
        checked = 0
        while any(thread.is_alive() for thread in threads) or not checked:
            if len(store):
                data = store.sample(4)
                check_sequences(data)
                store.update({"stepid": data["stepid"], "echo": data["echo"]})
                checked += 1
        for thread in threads:
            thread.join()
        assert not errors


def test_rows_are_those_that_came_in(open_any):
    rng = np.random.default_rng(0)
    with open_any(length=3, capacity=200) as store:
        sent = []
        for n in range(500):
            row = {
                **make_row(n),
                "image": rng.integers(0, 256, (5, 7)).astype(np.uint8),
                "half": np.float16(rng.normal()),
            }
            store.add(row, n % 2)
            sent.append(row)
        kept = all_rows(store)
        assert len(kept) >= 200
        for n, row in kept.items():
            np.testing.assert_equal(row, {k: np.asarray(v) for k, v in sent[n].items()})


def test_adding_rows_by_number(open_any):
    with open_any(length=2) as store:
        add(store, [4, 5, 6], worker=3)
        assert store.committed == 3
        store.add_many(stack([make_row(7)]), [3], note=b"mark")
        assert (store.committed, store.note) == (4, b"mark")
        add(store, [8], worker=3)
        assert (store.committed, store.note) == (5, b"mark")
        store.add_many({}, [])
        assert store.committed == 5
