"""A full disk makes those wait who have something to lose, costs the others a warning, and ends nobody."""

import contextlib
import logging
import resource
import threading
from pathlib import Path

import elements
import numpy as np
import pytest
from rich.console import Console

from dreamfleet import lifecycle
from dreamfleet.metrics import Progress
from dreamfleet.metrics.terminal import Terminal
from dreamfleet.options import read_args
from dreamfleet.roles.logger import LoggerRole
from dreamfleet.roles.replay.role import ReplayRole
from tests.fleet import DEADLINE_S, eventually, make_args, make_factories, read_jsonl


@contextlib.contextmanager
def full_disk():
    """No file can grow, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def make_role(args: elements.Config) -> ReplayRole:
    factories = make_factories(args)
    replays = factories.make_replay_train(), factories.make_replay_eval()
    return ReplayRole(*replays, factories.make_stream, args, space_every_s=0.02)


def make_rows(count: int) -> dict[str, np.ndarray]:
    flags = {key: np.zeros(count, bool) for key in ("is_eval", "is_first", "is_last", "is_terminal")}
    return {"envid": np.arange(count), "n": np.arange(count), **flags}


def test_replay_waits_for_space_and_says_so(tmp_path):
    lifecycle.reset()
    role = make_role(read_args(make_args(tmp_path, train_ratio=0.0)))
    replies = []
    adding = threading.Thread(target=lambda: replies.append(role.add_batch(make_rows(3), {})))
    with full_disk():
        adding.start()
        eventually(lambda: [wait for wait in lifecycle.waits() if "free some space" in wait["what"]], "a wait")
        assert not replies, "nothing is acknowledged that is not committed"
    adding.join(DEADLINE_S)
    assert replies[0].meta["inserts"] == 3
    role.close()


def test_a_replay_that_waits_for_space_can_be_stopped(tmp_path):
    lifecycle.reset()
    role = make_role(read_args(make_args(tmp_path, train_ratio=0.0)))
    errors = []

    def add() -> None:
        try:
            role.add_batch(make_rows(3), {})
        except Exception as error:
            errors.append(error)

    with full_disk():
        adding = threading.Thread(target=add)
        adding.start()
        eventually(lambda: [wait for wait in lifecycle.waits() if "disk:" in wait["what"]], "a wait")
        lifecycle.request_stop()
        adding.join(DEADLINE_S)
    assert "was not taken" in str(errors[0])
    lifecycle.reset()
    role.close()


def test_the_logger_loses_metrics_and_nothing_else(tmp_path, caplog):
    args = read_args(make_args(tmp_path))
    role = LoggerRole(make_factories(args).make_logger(), args)
    role.add({"before": 1.0}, {"step": 1})
    role.write()
    with full_disk(), caplog.at_level(logging.WARNING):
        for _ in range(3):
            role.add({"lost": 1.0}, {"step": 2})
            role.write()
            role.write_progress()
    assert len([record for record in caplog.records if "cannot be written" in record.message]) == 1
    role.add({"after": 1.0}, {"step": 3})
    role.write()
    role.write_progress()
    lines = read_jsonl(tmp_path / "metrics.jsonl")
    assert "before" in lines[0] and "after" in lines[-1]
    assert (tmp_path / "progress.json").exists()
    role.close()


def test_a_terminal_that_cannot_be_written_to_ends_no_run():
    file = Path("/dev/full").open("w")  # noqa: SIM115
    with Terminal(100, Console(file=file)) as terminal:
        terminal.print("a line")
        terminal.update(Progress(), {"state": "running", "roles": {}})
    with pytest.raises(OSError):
        file.close()
