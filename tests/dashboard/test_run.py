"""One run in memory: what of its files is read, and when."""

import pytest

from dreamfleet.dashboard import run as run_module
from dreamfleet.dashboard.folders import Folder
from dreamfleet.dashboard.run import Run
from dreamfleet.options.saved import read_saved
from tests.dashboard.runs import write_run

ROWS = 5000


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "READ_FIRST_S", 0.0)  # every file is a large one
    return Run("run", Folder(write_run(tmp_path / "run", rows=ROWS, scores=ROWS)))


def test_files_that_nobody_looks_at_are_not_read_beyond_their_names(run):
    run.want(["episode/score"]).refresh_tables(60.0)
    assert {"train/m0", "episode/score"} <= set(run.metrics())
    _, rows, _, scores, *_ = run.cursor()
    assert scores == ROWS and 0 < rows < ROWS / 2 and not run.is_behind
    run.want(["train/m0"])
    assert run.is_behind
    run.refresh_tables(60.0)
    assert not run.is_behind and run.cursor()[1] == ROWS


def test_a_download_has_all_points_also_of_a_file_that_was_just_opened(run):
    assert len(run.want(["train/m0"]).points("train/m0").value) == ROWS


def test_the_options_of_seeds_are_read_once(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(run_module, "read_saved", lambda path: read.append(path) or read_saved(path))
    runs = [Run(str(seed), Folder(write_run(tmp_path / str(seed), seed=seed, batch_size=17))) for seed in range(3)]
    other = Run("other", Folder(write_run(tmp_path / "other", seed=1, batch_size=18)))
    for each in [*runs, other]:
        each.refresh_summary()
        each.load_config()
        each.refresh_summary()
    assert len(read) == 2
    assert [(each.config or {}).get("seed") for each in runs] == [0, 1, 2]
    assert len({each.summary()["group"] for each in runs}) == 1
    assert runs[0].summary()["group"] != other.summary()["group"]
