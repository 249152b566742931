"""Opening a store again: after a clean end, a lost machine, damage, and with other settings."""

import logging
import shutil

import numpy as np
import pytest

from dreamfleet.errors import ConfigError, ReplayError
from dreamfleet.options.replay import SamplingOptions
from dreamfleet.replay import Store, state
from dreamfleet.replay.segment import open_segment
from tests.replay.stores import BLOCK_ROWS, add, all_rows, fill, make_row, open_store, stack


def abandon(store: Store) -> None:
    """Ends a store as a kill would: nothing is synced or tidied up."""
    store._closing.set()
    store._rows.pool._worker.shutdown()
    store._files.close()


def reboot(monkeypatch) -> None:
    monkeypatch.setattr(state, "boot_id", lambda: b"another-boot")


@pytest.mark.parametrize("end", [Store.close, abandon])
@pytest.mark.parametrize("count", [3, BLOCK_ROWS, 5 * BLOCK_ROWS + 7])
def test_trajectories_go_on_where_they_were(tmp_path, end, count):
    store = Store(10, 1000, directory=tmp_path)
    for n in range(count):
        store.add_many(stack([make_row(n), make_row(10_000 + n)]), [0, 1])
    before = all_rows(store)
    end(store)
    with open_store(10, 1000, directory=tmp_path) as again:
        np.testing.assert_equal(all_rows(again), before)
        assert len(again) == 2 * max(0, count - 9)
        add(again, range(count, count + 20), 0)
        add(again, range(10_000 + count, 10_000 + count + 20), 1)
        assert again.stats()["trajectories"] == 2
        assert len(again) == 2 * (count + 11)
        numbers = again.sample(300)["n"]
        np.testing.assert_array_equal(numbers, numbers[:, :1] + np.arange(10))
        assert (numbers[:, 0] < count).any() and (numbers[:, -1] >= 10_000 + count).any()


def test_kills_cost_no_room(tmp_path):
    """Each leaves a segment behind that was made ahead, and no rows in it."""
    capacity, count = 1000, 0
    for _ in range(12):
        store = Store(10, capacity, directory=tmp_path)
        fill(store, 300, start=count)  # more than a segment
        count += 300
        abandon(store)
    with open_store(10, capacity, directory=tmp_path) as store:
        assert all_rows(store).keys() >= set(range(count - capacity, count))


def test_items_keep_their_order_for_recency(tmp_path):
    with open_store(10, 1000, directory=tmp_path) as store:
        for n in range(0, 1500, 3):
            store.add_many(stack([make_row(n), make_row(n + 1), make_row(n + 2)]), [0, 1, 2])
        before = store._rows.items[np.arange(len(store))].tolist()
    with open_store(10, 1000, directory=tmp_path) as again:
        assert again._rows.items[np.arange(len(again))].tolist() == before


def test_rows_that_were_not_committed_never_come_back(tmp_path):
    store = Store(2, 1000, directory=tmp_path)
    fill(store, 100)
    commit, store._state.commit = store._state.commit, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):  # as if killed after the rows were written, before they were committed
        store.add_many(stack([make_row(n) for n in range(900, 910)]), [0] * 10)
    store._state.commit = commit
    abandon(store)
    with open_store(2, 1000, directory=tmp_path) as again:
        assert sorted(all_rows(again)) == list(range(100))
        fill(again, 5, start=100)
        assert sorted(all_rows(again)) == list(range(105))
        assert again.stats()["trajectories"] == 1
    with open_store(2, 1000, directory=tmp_path) as again:
        assert sorted(all_rows(again)) == list(range(105))


def test_a_lost_machine_costs_what_was_not_synced(tmp_path, monkeypatch, caplog):
    disk, cache = tmp_path / "disk", tmp_path / "cache"
    store = Store(5, 2000, directory=cache, sync_every=0.0)
    fill(store, 300)
    store.sync()
    # What the disk has from then on; a segment that is only being made has no rows, and may get its name meanwhile.
    shutil.copytree(cache, disk, ignore=shutil.ignore_patterns("*.new"))
    fill(store, 400, start=300)
    abandon(store)
    reboot(monkeypatch)
    with open_store(5, 2000, directory=disk) as again:
        assert "after the last fsync are lost" in caplog.text
        assert sorted(all_rows(again)) == list(range(300))


def test_a_lost_machine_drops_rows_of_which_only_some_reached_the_disk(tmp_path, monkeypatch):
    store = Store(5, 2000, directory=tmp_path, sync_every=0.0)
    fill(store, 300)
    store.sync()
    fill(store, 400, start=300)
    # Of what came after the sync, the disk got some pages and not others.
    for segment in store._rows.pool.live.values():
        late = np.flatnonzero(segment.numbers > 300)
        segment.columns["vector"][late] = np.nan
        segment.numbers[late[::2]] = 0
    abandon(store)
    reboot(monkeypatch)
    with open_store(5, 2000, directory=tmp_path) as again:
        assert again.committed == 300
        assert sorted(all_rows(again)) == list(range(300))
        assert np.isfinite(again.sample(50)["vector"]).all()


@pytest.mark.parametrize("is_first", [True, False])
def test_after_a_loss_only_a_new_episode_continues_a_trajectory(tmp_path, monkeypatch, is_first):
    store = Store(4, 2000, directory=tmp_path, sync_every=0.0)
    fill(store, 100)
    store.sync()
    fill(store, 50, start=100)
    abandon(store)
    reboot(monkeypatch)
    with open_store(4, 2000, directory=tmp_path) as again:
        again.add(make_row(150, is_first=is_first), 0)
        fill(again, 9, start=151)
        if is_first:  # the episode before counts as abandoned
            assert len(again) == 110 - 3 and again.stats()["trajectories"] == 1
            assert all_rows(again)[99]["is_last"]
        else:  # a row inside the episode is missing
            assert len(again) == 97 + 7 and again.stats()["trajectories"] == 2
            numbers = again.sample(500)["n"]
            np.testing.assert_array_equal(numbers, numbers[:, :1] + np.arange(4))


def test_the_same_boot_loses_nothing_without_a_sync(tmp_path):
    store = Store(5, 2000, directory=tmp_path, sync_every=0.0)
    fill(store, 300)
    abandon(store)
    with open_store(5, 2000, directory=tmp_path) as again:
        assert sorted(all_rows(again)) == list(range(300))


def test_syncs_come_by_themselves(tmp_path):
    with Store(5, 2000, directory=tmp_path, sync_every=0.01) as store:
        fill(store, 10)
        wait = store._closing
        for _ in range(1000):
            if store._state.synced == 10:
                break
            wait.wait(0.01)
        assert store._state.synced == 10


def cut(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def spoil_header(path):
    with path.open("r+b") as file:
        file.seek(40)
        file.write(b"nonsense")


def spoil_tables(path):
    segment = open_segment(str(path), is_writable=True)
    segment.numbers[5] = 0


def spoil_order(path):
    segment = open_segment(str(path), is_writable=True)
    segment.numbers[:8] = segment.numbers[:8][::-1].copy()


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("spoil", [cut, spoil_header, spoil_tables, spoil_order, empty])
@pytest.mark.parametrize("which", [0, 2, -1])
def test_a_damaged_segment_is_set_aside_and_the_rest_is_used(tmp_path, caplog, spoil, which):
    with open_store(5, 2000, directory=tmp_path) as store:
        fill(store, 2000)
        rows = {path.name: None for path in tmp_path.glob("*.segment")}
        for segment in store._rows.pool.live.values():
            rows[segment.path.rsplit("/", 1)[1]] = set(segment.columns["n"][segment.numbers > 0].tolist())
    path = sorted(tmp_path.glob("*.segment"))[which]
    spoil(path)
    with open_store(5, 2000, directory=tmp_path) as again:
        assert f"{path} is damaged" in caplog.text and path.with_suffix(".damaged").exists()
        assert set(all_rows(again)) == set(range(2000)) - rows[path.name]
        fill(again, 50, start=5000)
        numbers = again.sample(2000)["n"]
        np.testing.assert_array_equal(numbers, numbers[:, :1] + np.arange(5))
        assert (numbers < 2000).any() and (numbers >= 5000).any()
    caplog.clear()
    with open_store(5, 2000, directory=tmp_path):
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_without_its_state_file_all_rows_are_taken(tmp_path, caplog):
    with open_store(5, 2000, directory=tmp_path) as store:
        fill(store, 300)
    (tmp_path / "state").write_bytes(b"nonsense")
    with open_store(5, 2000, directory=tmp_path) as again:
        assert "state is unusable" in caplog.text
        assert sorted(all_rows(again)) == list(range(300))
        fill(again, 10, start=300)
    with open_store(5, 2000, directory=tmp_path) as again:
        assert sorted(all_rows(again)) == list(range(310))


def test_a_segment_of_another_store_is_set_aside(tmp_path, caplog):
    for name in ("a", "b"):
        with open_store(5, 2000, directory=tmp_path / name) as store:
            fill(store, 300)
    path = min((tmp_path / "b").glob("*.segment"))
    path.rename(tmp_path / "a" / "999999999999.segment")
    with open_store(5, 2000, directory=tmp_path / "a") as store:
        assert "is of another store" in caplog.text
        assert sorted(all_rows(store)) == list(range(300))


def test_a_store_that_cannot_be_opened_is_let_go_of(tmp_path):
    with open_store(5, 2000, directory=tmp_path) as store:
        fill(store, 300)
    with pytest.raises(ConfigError, match=r"replay\.capacity"):
        Store(5, 10**14, directory=tmp_path)
    with open_store(5, 2000, directory=tmp_path) as again:
        assert len(all_rows(again)) == 300


def test_two_stores_in_one_process_are_refused_too(tmp_path):
    with open_store(directory=tmp_path), pytest.raises(ReplayError, match=r"is in use by process \d+;"):
        Store(10, 1000, directory=tmp_path)


def test_a_smaller_capacity_evicts_when_it_is_opened(tmp_path):
    with open_store(5, 4000, directory=tmp_path) as store:
        fill(store, 5000)
    with open_store(5, 1000, directory=tmp_path) as again:
        kept = sorted(all_rows(again))
        assert kept == list(range(kept[0], 5000)) and 1000 <= len(kept) < 1600
        assert len(again) == len(kept) - 4
        fill(again, 2000, start=5000)
        assert 1000 <= len(all_rows(again)) < 1600


def test_a_capacity_that_would_need_too_many_files_is_refused(tmp_path):
    with open_store(5, 1000, directory=tmp_path) as store:
        fill(store, 100)
    with pytest.raises(ConfigError, match=r"replay.capacity=5000000 needs 19,533 segments, .* export` and `import"):
        Store(5, 5_000_000, directory=tmp_path)


def test_a_capacity_that_was_chosen_stays(tmp_path):
    with open_store(5, 0, steps=3000, directory=tmp_path) as store:
        fill(store, 10)
    with open_store(5, 0, steps=1000, directory=tmp_path) as again:
        assert again.capacity == 3000, "what is there is not thrown away because less would do"


def test_priorities_survive(tmp_path):
    selection = SamplingOptions(
        uniform=0, priority=1, priority_exponent=1.0, priority_max=0.0, priority_zero=False, priority_initial=0.0
    )
    store = Store(4, 1000, directory=tmp_path, sampling=selection)
    fill(store, 200)
    ids = {int(n): i for d in [store.sample(2000)] for n, i in zip(d["n"][:, 0], d["stepid"][:, 0], strict=True)}
    store.update({"stepid": np.stack([ids[50], ids[120]]), "priority": np.array([3.0, 1.0], np.float32)})
    abandon(store)
    with open_store(4, 1000, directory=tmp_path, sampling=selection) as again:
        starts = again.sample(4000)["n"][:, 0]
        assert set(starts.tolist()) == {*range(47, 51), *range(117, 121)}
        assert (starts < 100).mean() == pytest.approx(0.75, abs=0.03)


def test_priorities_of_0_survive_and_others_are_initial(tmp_path):
    options = {"uniform": 0, "priority": 1, "priority_max": 0.0, "priority_initial": 2.0}
    with open_store(1, 1000, directory=tmp_path, sampling=SamplingOptions(**options, priority_zero=True)) as store:
        fill(store, 100)
        seen = set(store.sample(30)["n"].ravel().tolist())
    with open_store(1, 1000, directory=tmp_path, sampling=SamplingOptions(**options, priority_zero=False)) as again:
        assert set(again.sample(5000)["n"].ravel().tolist()) == set(range(100)) - seen


def test_a_watermark_keeps_later_rows_and_sequences_are_not_drawn_again(tmp_path):
    with open_store(5, 1000, directory=tmp_path) as store:
        fill(store, 100)
        store.sample(4)
        watermark = store.save()
        fill(store, 50, start=100)
        expected = store.sample(4)["n"].tolist()
    with open_store(5, 1000, directory=tmp_path) as again:
        again.load(watermark)
        assert sorted(all_rows(again)) == list(range(150))
        assert again.sample(4)["n"].tolist() != expected


def test_a_watermark_truncates_where_that_is_wanted(tmp_path):
    selection = SamplingOptions(uniform=0.5, priority=0.5, priority_zero=False)
    with open_store(5, 1000, directory=tmp_path, truncates=True, sampling=selection) as store:
        fill(store, 100)
        watermark = store.save()
        expected = store.sample(50)["n"].tolist()
        fill(store, 150, start=100)
    with open_store(5, 1000, directory=tmp_path, truncates=True, sampling=selection) as again:
        again.load(watermark)
        assert sorted(all_rows(again)) == list(range(100))
        assert again.sample(50)["n"].tolist() == expected
        again.add(make_row(100, is_first=True), 0)
        fill(again, 200, start=101)
        assert sorted(all_rows(again)) == list(range(301))
        assert again.stats()["trajectories"] == 1


def test_the_online_queue_goes_on_from_a_watermark_where_rows_are_truncated(tmp_path):
    options = {"directory": tmp_path, "truncates": True, "online": True}
    with open_store(5, 1000, **options) as store:
        fill(store, 50)
        store.sample(3)
        watermark = store.save()
        fill(store, 20, start=50)
        store.sample(10)
    with open_store(5, 1000, **options) as again:
        again.load(watermark)
        assert again.sample(7)["n"][:, 0].tolist() == [15, 20, 25, 30, 35, 40, 45]
        again.load({key: value for key, value in watermark.items() if key != "unseen"})  # of a version without
        assert not again._rows.unseen
