"""All runs below a folder: who asks, and what is read first."""

import math
import threading

from dreamfleet.dashboard import hub as hub_module
from dreamfleet.dashboard import run as run_module
from dreamfleet.dashboard.hub import Hub
from tests.dashboard.runs import write_run
from tests.fleet import DEADLINE_S


class SlowHub(Hub):
    """A hub that finds its runs when it is told to."""

    def __init__(self, roots):
        super().__init__(roots)
        self.is_looking, self.may_find = threading.Event(), threading.Event()

    def _find(self):
        self.is_looking.set()
        assert self.may_find.wait(DEADLINE_S)
        super()._find()


def test_questions_that_come_together_all_find_the_runs(tmp_path):
    write_run(tmp_path / "run")
    hub, answers = SlowHub([tmp_path]), []

    def ask():
        hub.ask()
        answers.append([run.summary().get("task") for run in hub.runs.values()])

    threads = [threading.Thread(target=ask) for _ in range(2)]
    threads[0].start()
    assert hub.is_looking.wait(DEADLINE_S)
    threads[1].start()
    threads[1].join(0.5)  # which it would if it did not wait for the first
    hub.may_find.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert answers == [["gym_CartPole-v1"]] * 2


def test_a_page_that_opens_is_served_before_large_files(tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "READ_FIRST_S", 0.0)
    monkeypatch.setattr(hub_module, "OPENING_S", math.inf)
    write_run(tmp_path / "run", rows=50_000)
    hub = Hub([tmp_path])
    hub.ask()
    run = hub.runs["run"].want(["train/m0"])
    assert run.is_behind
    with hub.listening():
        before = run.cursor()
        hub.refresh()
        assert run.cursor() == before
    monkeypatch.setattr(hub_module, "OPENING_S", 0.0)
    hub.refresh()
    assert run.cursor() > before
