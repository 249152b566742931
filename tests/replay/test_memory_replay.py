"""MemoryReplay: what it keeps, refuses, draws and survives."""

import threading

import numpy as np
import pytest

from dreamfleet.errors import ReplayError
from dreamfleet.replay import MemoryReplay
from dreamfleet.replay.memory import BLOCK_ROWS
from dreamfleet.testing import CountingEnv, check_sequences, expected_action


def make_row(n: int, is_first: bool = False, is_last: bool = False) -> dict:
    return {"n": np.int64(n), "is_first": np.bool_(is_first), "is_last": np.bool_(is_last)}


def fill(replay: MemoryReplay, count: int, worker: int = 0, start: int = 0) -> None:
    for n in range(start, start + count):
        replay.add(make_row(n, is_first=n == start), worker)


def numbers(replay: MemoryReplay) -> list[list[int]]:
    return [columns["n"].tolist() for columns in replay.save()["streams"]]


def test_capacity_that_holds_no_sequence_is_refused():
    with pytest.raises(ReplayError, match=r"capacity=9 .* length=10"):
        MemoryReplay(length=10, capacity=9)


def test_sample_before_there_is_a_sequence_says_so():
    replay = MemoryReplay(length=10, capacity=100)
    fill(replay, 9)
    assert len(replay) == 0
    with pytest.raises(ReplayError, match="no sequence of 10 rows"):
        replay.sample(1)
    fill(replay, 1, start=9)
    assert len(replay) == 1
    assert replay.sample(3)["n"].tolist() == [list(range(10))] * 3


@pytest.mark.parametrize("capacity", [10, 64, 100, 1000])
def test_keeps_at_least_the_capacity_and_evicts_the_oldest(capacity):
    replay = MemoryReplay(length=10, capacity=capacity)
    fill(replay, 3 * capacity + 500)
    (kept,) = numbers(replay)
    assert kept == list(range(kept[0], 3 * capacity + 500))
    assert capacity <= len(kept) < capacity + 2 * BLOCK_ROWS
    assert len(replay) == len(kept) - 9


def test_the_oldest_block_goes_first_whosever_it_is():
    replay = MemoryReplay(length=1, capacity=2 * BLOCK_ROWS)
    fill(replay, 1, worker=7)
    fill(replay, 2 * BLOCK_ROWS, worker=8)
    assert len(numbers(replay)) == 2
    fill(replay, 1, worker=9)
    assert sorted(map(len, numbers(replay))) == [1, 2 * BLOCK_ROWS]
    assert replay.stats()["steps"] == 2 * BLOCK_ROWS + 1


def test_a_stream_that_loses_its_only_block_while_it_is_added_to_goes_on():
    replay = MemoryReplay(length=1, capacity=2 * BLOCK_ROWS)
    fill(replay, 1, worker=0)
    fill(replay, 2 * BLOCK_ROWS, worker=1, start=1000)
    for n in range(100):  # worker 1 needs a block, and the oldest is the one that worker 0 is writing to
        rows = [make_row(1 + n), make_row(1000 + 2 * BLOCK_ROWS + n)]
        replay.add_many({k: np.stack([row[k] for row in rows]) for k in rows[0]}, [0, 1])
        first, second = sorted(numbers(replay))
        assert first == list(range(first[0], n + 2))
        assert second == list(range(second[0], 1000 + 2 * BLOCK_ROWS + n + 1))


def test_sequences_cross_episodes_and_first_is_forced_on_row_0_only():
    replay = MemoryReplay(length=6, capacity=100)
    for n in range(6):
        replay.add(make_row(n, is_first=n % 3 == 0, is_last=n % 3 == 2), 0)
    replay.add(make_row(6, is_first=True), 0)
    starts = {}
    for data in (replay.sample(1) for _ in range(30)):
        starts[int(data["n"][0, 0])] = data["is_first"][0].tolist()
    assert starts == {0: [True, False, False] * 2, 1: [True, False, True, False, False, True]}


def test_an_abandoned_episode_gets_a_last_row_and_others_keep_theirs():
    replay = MemoryReplay(length=4, capacity=100)
    for n, (is_first, is_last) in enumerate([(True, False), (False, False), (True, False), (False, False)]):
        replay.add(make_row(n, is_first, is_last), 0)
    replay.add(make_row(100, is_first=True), 1)
    assert replay.sample(1)["is_last"].tolist() == [[False, True, False, False]]


def test_an_abandoned_episode_that_fills_its_block_gets_a_last_row():
    replay = MemoryReplay(length=BLOCK_ROWS + 1, capacity=1000)
    fill(replay, BLOCK_ROWS)
    replay.add(make_row(BLOCK_ROWS, is_first=True), 0)
    assert np.flatnonzero(replay.sample(1)["is_last"]).tolist() == [BLOCK_ROWS - 1]


def test_add_many_refuses_a_worker_twice_and_more_workers_than_blocks():
    replay = MemoryReplay(length=2, capacity=BLOCK_ROWS)
    rows = {k: np.stack([v, v]) for k, v in make_row(0).items()}
    with pytest.raises(ReplayError, match=r"workers \[4, 4\] are not distinct"):
        replay.add_many(rows, [4, 4])
    with pytest.raises(ReplayError, match="cannot hold 2 environments"):
        replay.add_many(rows, [4, 5])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": np.int64(0)}, r"extra \['extra'\]"),
        ({"n": None}, r"missing \['n'\]"),
        ({"n": np.int32(0)}, r"'n' is int32\(\), but the first row had int64\(\)"),
        ({"n": np.zeros(2, np.int64)}, r"'n' is int64\(2,\), but the first row had int64\(\)"),
    ],
)
def test_rows_unlike_the_first_are_refused_and_change_nothing(change, message):
    replay = MemoryReplay(length=2, capacity=100)
    fill(replay, 5)
    row = {k: v for k, v in {**make_row(5), **change}.items() if v is not None}
    with pytest.raises(ReplayError, match=message):
        replay.add(row, 0)
    assert numbers(replay) == [[0, 1, 2, 3, 4]]


def test_a_bad_first_row_does_not_fix_the_schema():
    replay = MemoryReplay(length=2, capacity=1000)
    with pytest.raises(ReplayError, match="no 'is_first'"):
        replay.add({"n": np.int64(0)}, 0)
    with pytest.raises(ReplayError, match=r"'n' has shape \(2, 3\), but there are 1 workers"):
        replay.add_many({"n": np.zeros((2, 3)), "is_first": np.ones(1, bool)}, [0])
    fill(replay, 3)
    assert numbers(replay) == [[0, 1, 2]]


def test_updates_are_written_and_those_of_evicted_rows_ignored():
    replay = MemoryReplay(length=4, capacity=BLOCK_ROWS)
    fill(replay, 4)
    old = replay.sample(1)
    replay.update({"stepid": old["stepid"], "n": old["n"] + 50})
    assert numbers(replay) == [[50, 51, 52, 53]]
    assert replay.stats()["updates_ignored"] == 0
    fill(replay, 3 * BLOCK_ROWS, start=4)
    before = numbers(replay)
    replay.update({"stepid": old["stepid"], "n": old["n"] + 1000})
    assert numbers(replay) == before
    assert replay.stats()["updates_ignored"] == 4


def test_updates_meant_for_another_store_are_ignored():
    replays = [MemoryReplay(length=4, capacity=100) for _ in range(2)]
    for replay in replays:
        fill(replay, 4)
    data = replays[0].sample(1)
    replays[1].update({"stepid": data["stepid"], "n": data["n"] + 1})
    assert numbers(replays[1]) == [[0, 1, 2, 3]]
    assert replays[1].stats()["updates_ignored"] == 4


def test_a_step_id_ends_with_the_row_as_a_big_endian_number():
    replay = MemoryReplay(length=BLOCK_ROWS, capacity=1000)
    fill(replay, BLOCK_ROWS)
    ids = replay.sample(1)["stepid"][0]
    assert (ids[:, :16] == ids[0, :16]).all()
    assert ids[:, 16:].copy().view(">u4")[:, 0].tolist() == list(range(BLOCK_ROWS))


def test_saved_streams_are_sampled_but_not_continued():
    replay = MemoryReplay(length=5, capacity=1000)
    fill(replay, 10, worker=0)
    fill(replay, 3, worker=1, start=100)
    loaded = MemoryReplay(length=5, capacity=1000)
    loaded.load(replay.save())
    assert sorted(numbers(loaded)) == [list(range(10)), [100, 101, 102]]
    assert len(loaded) == 6
    fill(loaded, 4, worker=0, start=10)
    assert len(loaded) == 6
    fill(loaded, 1, worker=0, start=14)
    starts = {int(loaded.sample(1)["n"][0, 0]) for _ in range(200)}
    assert starts == {0, 1, 2, 3, 4, 5, 10}


def test_an_empty_replay_can_be_saved_and_loaded():
    replay = MemoryReplay(length=5, capacity=1000)
    replay.load(MemoryReplay(length=5, capacity=1000).save())
    assert len(replay) == 0 and replay.stats()["steps"] == 0


def test_sequences_are_drawn_uniformly_over_their_starts():
    replay = MemoryReplay(length=8, capacity=1000, seed=3)
    fill(replay, 100, worker=0)
    fill(replay, 30, worker=1, start=1000)
    fill(replay, 7, worker=2, start=2000)  # too short for a sequence
    expected = {*range(93), *range(1000, 1023)}
    assert len(replay) == len(expected) == 116
    drawn, counts = np.unique(replay.sample(116 * 100)["n"][:, 0], return_counts=True)
    assert set(drawn.tolist()) == expected
    statistic = ((counts - 100) ** 2 / 100).sum()
    assert 75 < statistic < 166  # chi-square with 115 degrees of freedom: 0.1 % lie outside on either side


def test_modes_draw_apart_and_seeds_differ():
    def draw(seed: int, modes: str) -> list:
        replay = MemoryReplay(length=2, capacity=1000, seed=seed)
        fill(replay, 500)
        drawn = [(mode, replay.sample(5, mode)["n"][:, 0].tolist()) for mode in modes.split()]
        return [starts for mode, starts in drawn if mode == "train"]

    assert draw(0, "train report eval train report train") == draw(0, "train train train")
    assert draw(0, "train") != draw(1, "train")
    replay = MemoryReplay(length=2, capacity=1000)
    fill(replay, 500)
    assert replay.sample(20, "train")["n"].tolist() != replay.sample(20, "report")["n"].tolist()


def test_stats_count_rows_streams_and_bytes():
    replay = MemoryReplay(length=5, capacity=1000)
    fill(replay, 10, worker=0)
    fill(replay, 3, worker=1)
    stats = replay.stats()
    assert (stats["steps"], stats["items"], stats["streams"], stats["capacity"]) == (13, 6, 2, 1000)
    assert stats["bytes"] == 13 * (8 + 1 + 1)


def test_adding_and_sampling_in_several_threads_keeps_every_sequence_whole():
    replay = MemoryReplay(length=20, capacity=400)
    errors = []

    def add(index: int) -> None:
        env, obs = CountingEnv(index, length=7 + index), None
        try:
            for _ in range(1500):
                action = expected_action(index, int(obs["step"])) if obs else 0
                obs = env.step({"action": action, "reset": obs is None or obs["is_last"]})
                row = {k: np.asarray(v) for k, v in obs.items() if not k.startswith("log/")}
                row["action"] = np.int32(expected_action(index, int(obs["step"])))
                row["echo"] = np.int32(10 * obs["step"])
                replay.add(row, index)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=add, args=(index,), daemon=True) for index in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if len(replay):
            data = replay.sample(4)
            check_sequences(data)
            replay.update({"stepid": data["stepid"], "echo": data["echo"]})
    for thread in threads:
        thread.join()
    assert not errors
    check_sequences(replay.sample(100))
