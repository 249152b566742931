"""Reading a store from outside, and episodes as files: nothing is lost on the way out and back."""

import numpy as np
import pytest

from dreamfleet.cli import main
from dreamfleet.errors import ReplayError
from dreamfleet.replay.archive import Archive, find_store
from dreamfleet.replay.episodes import (
    count_steps,
    export_episodes,
    find_episodes,
    import_episodes,
    read_episode,
    split_episodes,
)
from tests.replay.stores import all_rows, fill, make_row, open_store, stack


def play(store, worker, lengths, start=0, reward=1.0):
    """Whole episodes, with rows that number on."""
    n = start
    for length in lengths:
        for step in range(length):
            row = make_row(n, is_first=step == 0, is_last=step == length - 1)
            store.add({**row, "reward": np.float32(reward), "is_terminal": np.bool_(step == length - 1)}, worker)
            n += 1


@pytest.fixture
def logdir(tmp_path):
    with open_store(5, 2000, directory=tmp_path / "run" / "replay" / "train") as store:
        play(store, 0, [10, 200, 30])
        play(store, 1, [50, 5], start=10_000, reward=2.0)
    return tmp_path / "run"


def test_a_store_is_found_by_any_of_its_directories(logdir, tmp_path):
    store = logdir / "replay" / "train"
    assert find_store(logdir) == find_store(logdir / "replay") == find_store(store) == store
    with pytest.raises(ReplayError, match="holds no replay; name a log directory"):
        find_store(tmp_path)


def test_episodes_of_every_trajectory(logdir):
    archive = Archive(logdir)
    episodes = [archive.column("n", *rows) for _, *rows in archive.episodes()]
    assert sorted((int(e[0]), len(e)) for e in episodes) == [(0, 10), (10, 200), (210, 30), (10_000, 50), (10_050, 5)]
    assert all((np.diff(episode) == 1).all() for episode in episodes)
    assert archive.steps == 295


def test_a_store_in_use_is_read_up_to_its_last_commit(tmp_path):
    with open_store(5, 400, directory=tmp_path) as store:
        for _ in range(5):
            fill(store, 137)
            assert Archive(tmp_path).steps == store.stats()["steps"]
        fill(store, 3)
        (segment,) = [s for s in store._rows.pool.live.values() if (s.numbers == store.committed).any()]
        store._state.commit(store.committed - 2, b"")  # as if the last two were still being written
        assert Archive(tmp_path).steps == store.stats()["steps"] - 2
        assert segment.numbers.any(), "reading changes nothing"


def test_out_and_back(logdir, tmp_path):
    archive = Archive(logdir)
    assert export_episodes(archive, tmp_path / "episodes") == 5
    files = list(find_episodes([tmp_path / "episodes"]))
    assert count_steps(files) == 295
    with open_store(5, 1000, directory=tmp_path / "back") as store:
        assert import_episodes(files, store) == (5, 295)
        numbers = store.sample(1000)["n"]
        np.testing.assert_array_equal(numbers, numbers[:, :1] + np.arange(5))
        back = all_rows(store)
        assert store.stats()["trajectories"] == 2 and len(store) == 287, "sequences cross from one episode to the next"
        import_episodes(files, store)
        assert store.stats()["trajectories"] == 4 and len(store) == 2 * 287
        assert store.sample(500)["n"].min() == 0
    with open_store(5, 2000, directory=logdir / "replay" / "train") as original:
        np.testing.assert_equal(back, all_rows(original))


def test_an_episode_without_its_beginning_starts_a_trajectory(tmp_path):
    with open_store(5, 300, directory=tmp_path / "a") as store:
        play(store, 0, [700, 20])
        kept = sorted(all_rows(store))
    export_episodes(Archive(tmp_path / "a"), tmp_path / "episodes")
    files = sorted((tmp_path / "episodes").iterdir())
    with open_store(5, 1000) as store:
        import_episodes([files[1], files[0], files[1]][:2], store)
        assert sorted(all_rows(store)) == kept
        assert store.stats()["trajectories"] == 2
        assert len(store) == len(kept) - 8


def test_flags_are_made_up_for_data_that_has_none(tmp_path):
    np.savez(
        tmp_path / "e.npz", obs=np.zeros((7, 3), np.float32), reward=np.ones(7, np.float32), **{"log/x": np.ones(7)}
    )
    batch = read_episode(tmp_path / "e.npz")
    assert set(batch) == {"obs", "reward", "is_first", "is_last", "is_terminal"}
    assert batch["is_first"].tolist() == [True] + [False] * 6 and batch["is_last"].tolist() == [False] * 6 + [True]


def test_files_that_are_no_episodes_are_named(tmp_path):
    (tmp_path / "text.npz").write_text("nonsense")
    np.savez(tmp_path / "uneven.npz", a=np.zeros(3), b=np.zeros(4))
    np.savez(tmp_path / "empty.npz")
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "objects.npz", a=np.array([{}, {}]))
    for name in ("text.npz", "uneven.npz", "empty.npz", "array.npy", "objects.npz", "missing.npz"):
        with pytest.raises(ReplayError, match=name):
            read_episode(tmp_path / name)
    (tmp_path / "none").mkdir()
    with pytest.raises(ReplayError, match="holds no NPZ files"):
        list(find_episodes([tmp_path / "none"]))


def test_an_episode_with_other_columns_is_refused_by_name(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(5))
    np.savez(tmp_path / "b.npz", y=np.zeros(5))
    with open_store(2) as store, pytest.raises(ReplayError, match=r"b.npz cannot be imported: .* missing \['x'\]"):
        import_episodes([tmp_path / "a.npz", tmp_path / "b.npz"], store)


def test_info(logdir, capsys):
    assert main(["replay", "info", str(logdir)]) == 0
    text = capsys.readouterr().out
    for part in (
        "295 of 2,000",
        "episodes  5 (5 complete) in 2 trajectories",
        "27 bytes per step",
        "vector float32(3,)",
    ):
        assert part in text
    assert "mean 70.0, min 10.0, max 200.0" in text
    lines = [line for line in text.splitlines() if "#" in line]
    assert len(lines) == 4 and "10.0 to       29.0        2 ####" in lines[0]


def test_info_of_an_empty_store(tmp_path, capsys):
    with open_store(5, directory=tmp_path / "replay" / "train"):
        pass
    assert main(["replay", "info", str(tmp_path)]) == 1
    assert "holds no steps yet" in capsys.readouterr().err


def test_export_and_import(logdir, tmp_path, capsys):
    assert main(["replay", "export", str(logdir), str(tmp_path / "episodes")]) == 0
    assert "exported 5 episodes (295 steps)" in capsys.readouterr().out
    for total in (295, 590):
        assert main(["replay", "import", str(tmp_path / "episodes"), str(tmp_path / "new")]) == 0
        assert f"imported 5 episodes (295 steps) to {tmp_path}/new/replay/train, {total} steps in total" in (
            capsys.readouterr().out
        )
    with open_store(5, 0, directory=tmp_path / "new" / "replay" / "train") as store:  # as a run that goes on opens it
        assert store.stats()["steps"] == 590
    assert main(["replay", "import", str(tmp_path / "episodes"), str(tmp_path / "small"), "--capacity", "100"]) == 0
    assert Archive(tmp_path / "small").steps < 295


@pytest.mark.parametrize(
    ("argv", "code", "part"),
    [
        (["info", "nowhere"], 1, "nowhere holds no replay"),
        (["info", "a", "b"], 2, "got 2 paths"),
        (["export", "a"], 2, "got 1 paths"),
        (["import", "a", "b", "--capacity", "-1"], 2, "capacity=-1 is negative"),
        (["import", "a", "b", "--task", "x"], 2, "'--task' is unknown"),
        (["import", "a", "b", "--capacty=3"], 2, "'--capacty=3' is unknown; did you mean --capacity?"),
        (["burn", "a"], 2, "'burn'"),
    ],
)
def test_mistakes_are_one_line(argv, code, part, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["replay", *argv]) == code
    error = capsys.readouterr().err
    assert part in error and error.count("\n") == 1


def test_rows_of_several_workers(tmp_path):
    with open_store(2, 1000, directory=tmp_path) as store:
        for n in range(100):
            store.add_many(stack([make_row(n), make_row(1000 + n)]), [4, 5])
        starts = {int(Archive(tmp_path).column("n", *trajectory)[0]) for trajectory in Archive(tmp_path).trajectories()}
        assert starts == {0, 1000}


def read_numbers(directory) -> list:
    archive = Archive(directory)
    return sorted(archive.column("n", *rows).tolist() for _, *rows in archive.episodes())


def test_held_out_episodes_are_whole_and_nowhere_else(logdir, tmp_path, capsys):
    main(["replay", "export", str(logdir), str(tmp_path / "episodes")])
    for seed in (0, 0, 1):
        target = tmp_path / f"new{len(list(tmp_path.glob('new*')))}"
        assert (
            main(
                ["replay", "import", str(tmp_path / "episodes"), str(target), "--held-out", "0.4", "--seed", str(seed)]
            )
            == 0
        )
        train, held_out = read_numbers(target), read_numbers(target / "replay" / "held_out")
        assert len(held_out) == 2
        assert sorted(train + held_out) == read_numbers(logdir)
    assert "\nheld out 2 episodes (" in capsys.readouterr().out
    chosen = [read_numbers(tmp_path / f"new{i}" / "replay" / "held_out") for i in range(3)]
    assert chosen[0] == chosen[1] != chosen[2]


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.01, 1), (0.5, 5), (0.25, 2), (0.99, 9)])
def test_a_share_of_episodes_is_held_out(share, expected, tmp_path):
    files = [tmp_path / str(n) for n in range(10)]
    train, held_out = split_episodes(files, share, seed=0)
    assert len(held_out) == expected and sorted(train + held_out) == sorted(files)


def test_one_episode_cannot_be_held_out(tmp_path):
    assert split_episodes([tmp_path], 0.0, seed=0) == ([tmp_path], [])
    with pytest.raises(ReplayError, match="none of 1 episodes can be held out"):
        split_episodes([tmp_path], 0.5, seed=0)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--held-out", "1"], "held-out=1.0 must be in [0, 1)"),
        (["--held-out", "-0.1"], "held-out=-0.1 must be in [0, 1)"),
        (["--seed", "-1"], "seed=-1 is negative"),
        (["--held-out", "0.5"], "is a store, beside which held-out episodes have no place"),
    ],
)
def test_what_cannot_be_held_out_is_refused(logdir, tmp_path, words, part, capsys):
    main(["replay", "export", str(logdir), str(tmp_path / "episodes")])
    store = str(logdir / "replay" / "train")
    assert main(["replay", "import", str(tmp_path / "episodes"), store, *words]) == 2
    assert part in capsys.readouterr().err
