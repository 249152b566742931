"""What a worker says that cannot reach the run it wants to join."""

import logging
import socket

import pytest

from dreamfleet.envs import EnvGroup
from dreamfleet.errors import Unreachable
from dreamfleet.roles import joining
from dreamfleet.roles.env import EnvWorker
from dreamfleet.roles.joining import Patience, explain_absence
from dreamfleet.testing import CountingEnv


class Clock:
    """Time that passes only in waits."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Absent:
    """A client whose server never answers."""

    session, is_plain, peer = "", False, "actor"

    def __init__(self, clock: Clock):
        self._clock = clock

    def prepare(self, method, data, meta=None):
        from dreamfleet import rpc

        return rpc.Prepared(lambda timeout_s: {}, data)

    def wait_connected(self, timeout_s=None):
        self._clock.now += timeout_s
        return False

    def close(self):
        pass


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"localhost:{probe.getsockname()[1]}"


def test_a_wrong_address_says_that_nothing_answers_there():
    addr = free_address()
    assert explain_absence(addr, "run.key").startswith(f"nothing answers at {addr} (connection refused)")
    assert explain_absence("no-such-host.invalid:5000", "run.key").startswith("nothing answers at no-such-host.invalid")
    assert "no such socket" in explain_absence("ipc:/nowhere/s", "run.key")


def test_whoever_listens_there_may_have_another_key():
    with socket.create_server(("127.0.0.1", 0)) as server:
        addr = f"localhost:{server.getsockname()[1]}"
        assert explain_absence(addr, "mine.key").startswith(
            f"something listens at {addr}, but does not let us in: is mine"
        )


def test_a_worker_says_so_soon_and_gives_up_in_time(caplog, monkeypatch):
    monkeypatch.setattr(joining, "time", clock := Clock())
    patience = Patience(100.0, lambda: "nothing answers at there", first_remind_s=5.0)
    worker = EnvWorker(EnvGroup(CountingEnv, [0]), [0], False, Absent(clock), 1.0, patience)  # type: ignore
    with caplog.at_level(logging.WARNING), pytest.raises(Unreachable, match="its address right"):
        worker.wait_for_actor()
    worker.close()
    assert "no policy server for 5 s: nothing answers at there; trying on" in caplog.text
