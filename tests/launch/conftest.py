"""A supervisor for tests: reacts to what roles log, and checks that nothing is left when the test is over."""

import os
import re
import select
from collections.abc import Callable, Sequence

import psutil
import pytest

from dreamfleet.launch.outcome import Outcome
from dreamfleet.launch.supervise.supervisor import Supervisor
from dreamfleet.launch.topology import RoleSpec
from tests.fleet import DEADLINE_S


class Journal:
    """Everything that was logged, and what the test does when a line comes in."""

    def __init__(self):
        self.lines: list[tuple[str, str, str]] = []
        self._reactions: list[tuple[str, str, Callable]] = []

    def on(self, role: str, pattern: str, action: Callable) -> None:
        """Calls `action(match)` once, for the first line of `role` that matches."""
        self._reactions.append((role, pattern, action))

    def on_all(self, facts: Sequence[tuple[str, str]], action: Callable) -> None:
        """Calls `action()` once, when for each role a line that matches its pattern is there."""
        missing = set(facts)

        def note(fact: tuple[str, str]) -> None:
            missing.remove(fact)
            if not missing:
                action()

        for fact in facts:
            self.on(*fact, lambda _, fact=fact: note(fact))

    def __call__(self, role: str, level: str, text: str) -> None:
        self.lines.append((role, level, text))
        for reaction in list(self._reactions):
            match = re.search(reaction[1], text)
            if reaction[0] == role and match:
                self._reactions.remove(reaction)
                reaction[2](match)

    def find(self, role: str, pattern: str) -> list[re.Match]:
        found = [re.search(pattern, text) for name, _, text in self.lines if name == role]
        return [match for match in found if match]


class Fleet:
    """Builds and runs one supervisor; `gate` is what a `wait_at` role waits for."""

    def __init__(self, folder):
        self.logdir = folder / "run"
        self.journal = Journal()
        self.gate = str(folder / "gate")
        os.mkfifo(self.gate)
        self._gate_fd = os.open(self.gate, os.O_RDWR)
        self.supervisor: Supervisor | None = None

    def make(self, *specs: RoleSpec, **options) -> Supervisor:
        self.supervisor = Supervisor(specs, self.logdir, on_log=self.journal, **options)
        return self.supervisor

    def run(self, *specs: RoleSpec, **options) -> Outcome:
        return self.make(*specs, **options).run()

    def open_gate(self, *_) -> None:
        os.write(self._gate_fd, b"x")

    def request_stop(self, *_) -> None:
        assert self.supervisor is not None
        self.supervisor.request_stop("test")

    def close(self) -> None:
        os.close(self._gate_fd)


@pytest.fixture(autouse=True)
def nothing_left(tmp_path, monkeypatch):
    """Fails a test that leaves a process behind, and ends it."""
    monkeypatch.setenv("DREAMFLEET_TEST", str(tmp_path))
    yield
    found = [process for process in psutil.process_iter() if has_mark(process, str(tmp_path))]
    _, left = psutil.wait_procs(found, timeout=60)
    for process in left:
        process.kill()
    assert not left


def has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("DREAMFLEET_TEST") == mark
    except psutil.Error:
        return False


@pytest.fixture
def fleet(tmp_path):
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


def is_gone_within(pid: int, timeout_s: float = DEADLINE_S) -> bool:
    """Whether a process, which need not be a child, ends in time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(fd)


@pytest.fixture
def is_gone() -> Callable[..., bool]:
    return is_gone_within
