"""`dreamfleet doctor`: what it finds, and that it can be pasted."""

import os
from pathlib import Path

import pytest

from dreamfleet.base import extras
from dreamfleet.cli import main
from dreamfleet.launch import diagnosis
from tests.fleet import DEADLINE_S

SECTIONS = ["versions", "devices", "machine", "files (LOGDIR)", "connections", "extras"]


def diagnose(capsys, *argv: str) -> tuple[int, str]:
    code = main(["doctor", *argv])
    return code, capsys.readouterr().out


def test_a_machine_that_can_train(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(diagnosis, "find_accelerator", lambda: ("an NVIDIA GPU", "cuda12"))
    code, output = diagnose(capsys, "--no-test", "--logdir", str(tmp_path / "runs"))
    lines = output.replace(str(tmp_path / "runs"), "LOGDIR").splitlines()
    assert [line for line in lines if line and not line.startswith(" ")][:-1] == SECTIONS
    assert code == 0 and lines[-1] == "runs can be started here, 1 warnings"
    assert "  ok   device 0: cpu, cpu" in lines
    assert f"an NVIDIA GPU is there, but JAX cannot use it; run {extras.install_command('cuda12')}" in output
    assert not (tmp_path / "runs").exists(), "it only looks"


def test_extras_that_are_missing_have_their_command(capsys, monkeypatch):
    monkeypatch.setattr(diagnosis, "list_extras", lambda: {"plot": ["no-such-package>=1"], "export": ["numpy>=2"]})
    plot, export, last = diagnosis.check_extras()
    assert (plot.level, plot.text) == ("missing", "lacks no-such-package")
    assert (export.level, export.text) == ("ok", "installed")
    assert last.text == extras.install_command("EXTRA")


def test_the_extras_are_those_of_the_installation():
    listed = extras.list_extras()
    assert listed["plot"] == ["matplotlib>=3.9"] and not listed.keys() & {"dev", "test"}
    assert extras.find_missing(["jax[no-such-extra]", "numpy>=2", "nothing-of-this-name~=1.0"]) == [
        "nothing-of-this-name"
    ]


def test_what_keeps_runs_from_starting_is_an_error(capsys, tmp_path, monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.setattr(diagnosis, "check_devices", lambda: iter(()))
    code, output = diagnose(capsys, "--no-test", "--logdir", str(tmp_path))
    assert code == 1 and "FAIL pidfd: not on this system" in output and "1 problems" in output


@pytest.mark.distributed
def test_the_self_test_runs_a_fleet_and_tells_why_it_failed(monkeypatch):
    monkeypatch.setattr(diagnosis, "TEST_S", DEADLINE_S)
    (finding,) = diagnosis.check_fleet()
    assert finding.level == "ok" and "1,000 steps, updates and a checkpoint" in finding.text
    monkeypatch.setattr(diagnosis, "TEST_STEPS", -1)
    (finding,) = diagnosis.check_fleet()
    assert finding.level == "error" and "exit code 2: error: run.steps=-1" in finding.text


def test_names_of_users_are_left_out():
    assert diagnosis._anonymous(f"{Path.home()}/x /home/somebody/y") == "~/x ~/y"
