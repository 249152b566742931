"""Which runs are found, and that nothing outside of them is opened."""

import os

import pytest

from dreamfleet.dashboard.folders import Folder, Outside, find_runs


def make_run(path):
    path.mkdir(parents=True)
    (path / "config.yaml").write_text("task: x\n")
    return path


def test_runs_at_and_below_a_folder(tmp_path):
    runs = {name: make_run(tmp_path / name) for name in ("a", "b/seed_0", "b/seed_1")}
    make_run(tmp_path / "a" / "nested")  # what is inside of a run is part of it
    make_run(tmp_path / ".hidden")
    assert find_runs([tmp_path]) == runs
    assert find_runs([tmp_path / "a"]) == {"a": runs["a"]}
    assert find_runs([tmp_path / "nothing"]) == {}


def test_several_folders_keep_their_runs_apart(tmp_path):
    first, second, third = (make_run(tmp_path / name / "logs" / "run") for name in "xyz")
    found = find_runs([tmp_path / name / "logs" for name in "xyz"])
    assert sorted(found.values()) == sorted([first, second, third])


def test_links_to_other_places_are_not_followed(tmp_path):
    make_run(tmp_path / "elsewhere" / "secret")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "elsewhere")
    assert find_runs([tmp_path / "root"]) == {}


@pytest.mark.parametrize("name", ["../secret", "logs/../../secret", "link", "folder/secret", "/etc/passwd", "a\0b"])
def test_paths_that_lead_out_are_refused(tmp_path, name):
    run = make_run(tmp_path / "run")
    (tmp_path / "secret").write_text("secret")
    (run / "link").symlink_to(tmp_path / "secret")
    (run / "folder").symlink_to(tmp_path)
    with pytest.raises((Outside, ValueError, FileNotFoundError)):
        Folder(run).read(name)
    assert Folder(run).list("folder") == []


def test_a_pipe_does_not_block(tmp_path):
    run = make_run(tmp_path / "run")
    os.mkfifo(run / "metrics.jsonl")
    with pytest.raises(FileNotFoundError):
        Folder(run).read("metrics.jsonl")


def test_the_end_of_a_file(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "log").write_text("0123456789")
    assert Folder(run).read("log", 4) == b"6789" and Folder(run).read("log", 99) == b"0123456789"
