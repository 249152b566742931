"""How a run does, as an exit code for containers and schedulers."""

import json
import os
import re
import time

import pytest

from dreamfleet.cli import main
from dreamfleet.commands.status import describe
from dreamfleet.metrics.progress import Progress, write_progress

AGENT = {"agent": {"state": "running", "figures": {"new_updates": 3}, "waits": [], "restarts": 0, "pid": 1}}


def write_status(folder, age_s: float = 0.0, roles=AGENT, **status: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "status.json").write_text(json.dumps({"roles": roles, "time": time.time() - age_s, **status}))


@pytest.mark.parametrize(
    ("status", "codes"),  # without and with --ready
    [
        ({"state": "running"}, (0, 0)),
        ({"state": "running", "roles": {"agent": {"state": "running", "figures": {}}}}, (0, 1)),
        ({"state": "starting"}, (0, 1)),
        ({"state": "running", "age_s": 100.0}, (1, 1)),
        ({"state": "complete", "age_s": 1e6}, (0, 0)),
        ({"state": "stopped", "age_s": 1e6}, (0, 1)),
        ({"state": "failed"}, (1, 1)),
        ({}, (1, 1)),
    ],
)
def test_a_run_is_well_while_it_is_heard_of(tmp_path, capsys, status, codes):
    write_status(tmp_path / "run", **status)
    assert (main(["status", str(tmp_path / "run")]), main(["status", str(tmp_path), "--ready"])) == codes
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_newest_run_counts_and_none_is_well_unless_it_must_train(tmp_path, capsys):
    assert [main(["status", str(tmp_path), *words]) for words in ([], ["--ready"])] == [0, 1]
    assert capsys.readouterr().out == "no run yet\n" * 2
    write_status(tmp_path / "new", state="complete")
    write_status(tmp_path / "old", state="failed")
    os.utime(tmp_path / "old" / "status.json", (1, 1))
    write_status(tmp_path / "new" / "joined" / "envs", state="failed")
    assert main(["status", str(tmp_path)]) == 0
    (tmp_path / "new" / "status.json").write_text("{")
    assert main(["status", str(tmp_path)]) == 1
    assert "status.json cannot be read" in capsys.readouterr().out


def test_it_says_how_far_the_run_is(tmp_path, capsys):
    write_status(tmp_path, state="running")
    write_progress(tmp_path, Progress(step=500, total_steps=1000, updates=70, score=12.5))
    assert main(["status", str(tmp_path)]) == 0
    line = capsys.readouterr().out
    assert line.startswith("training | step 500/1,000 50%") and "score 12.5" in line
    assert main(["status", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["well"] and shown["run"] == str(tmp_path) and shown["progress"]["step"] == 500
    write_status(tmp_path, age_s=90.0, state="running")
    assert main(["status", str(tmp_path)]) == 1
    assert re.match(r"not heard of for \d+ s \| training", capsys.readouterr().out)


def test_machines_that_have_joined_have_a_line_each_and_do_not_count(tmp_path, capsys):
    role = {"state": "running", "restarts": 1, "waits": [{"what": "actor.act", "seconds": 9.0, "share": 0.5}]}
    machine = {"package": "1.0", "env_rate": 1234.0, "processes": 2, "seen_s": 1.2, "roles": {"env0": role}}
    machines = {"a.envs": {**machine, "state": "running"}, "b.envs": {**machine, "state": "failed", "roles": {}}}
    for state, code in (("running", 0), ("failed", 1)):
        write_status(tmp_path, state=state, machines=machines)
        assert main(["status", str(tmp_path)]) == code
        _, first, second = capsys.readouterr().out.splitlines()
        assert first.startswith("a.envs: running | env steps/s 1.23k | roles 1/1 running, 1 restart | ")
        assert "env0 waiting for the policy" in first and re.search(r"dreamfleet 1.0, heard of \d+ s ago$", first)
        assert second.startswith("b.envs: failed | env steps/s 1.23k | 2 processes | dreamfleet 1.0, heard of ")
    write_status(tmp_path, state="complete", machines=machines)
    written = json.loads((tmp_path / "status.json").read_text())["time"]
    first, second = describe(tmp_path, False, written + 5000)[1].splitlines()[1:]
    assert first.startswith("a.envs: silent") and first.endswith("heard of 5001 s ago"), "nobody writes it any more"
    assert second.startswith("b.envs: failed")
    write_status(tmp_path, state="running", machines={"a": {}})
    assert main(["status", str(tmp_path)]) == 1


def test_a_run_is_found_in_a_folder_of_any_name_but_not_what_has_joined_it(tmp_path, capsys):
    runs = tmp_path / "joined"
    write_status(runs / "a", state="running")
    write_status(runs / "a" / "joined" / "host.envs", state="failed")
    assert main(["status", str(runs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == str(runs / "a")


def test_a_directory_that_is_missing_is_an_error(tmp_path, capsys):
    assert main(["status", str(tmp_path / "nothing")]) == 2
    assert "is not a directory" in capsys.readouterr().err
