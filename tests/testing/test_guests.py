"""The look-alikes notice when a rule is broken."""

import subprocess
import sys

import numpy as np
import pytest

from dreamfleet.envs import EnvGroup, make_env
from dreamfleet.envs.checker import check_quickly
from dreamfleet.envs.dummy import Dummy
from dreamfleet.roles.learner.batches import BatchSource
from dreamfleet.testing import CountingEnv
from dreamfleet.testing.guests import GuestAgent, GuestBatches, GuestReplay, GuestWrapper
from tests.fleet import DEADLINE_S

START = ("init_policy", "load", "init_train", "stream", "stream", "stream", "init_report")
ENDING = """
from dreamfleet.testing.guests import GuestStream

class Ending:
    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration

    def save(self):
        return None

next(iter(GuestStream(Ending())))
"""


def make_agent() -> GuestAgent:
    return GuestAgent(actor_batch=2, batch_size=4, report_batches=2)


def call(agent: GuestAgent, *names: str) -> None:
    source = BatchSource(iter(()), on_failure=pytest.fail)
    given = {"init_policy": 2, "load": agent.save(), "stream": source, "init_train": 4, "init_report": 4}
    for name in names:
        getattr(agent, name)(given[name])


def test_the_order_of_calls():
    agent = make_agent()
    call(agent, *START)
    assert agent.calls == list(START)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("init_policy", "init_policy"), "init_policy is called twice"),
        ((*START, "load"), "load is called after init_train"),
        ((*START, "init_report"), "0 reports, not 2"),
    ],
)
def test_another_order_is_refused(names, reason):
    with pytest.raises(AssertionError, match=reason):
        call(make_agent(), *names)


def test_streams_exist_from_the_start():
    agent = make_agent()
    call(agent, *START[:4])
    with pytest.raises(AssertionError, match="the streams do not exist from the start"):
        agent.train({}, {})


def test_other_sizes_and_modes_are_refused():
    with pytest.raises(AssertionError, match="init_policy is called with 1, not 2"):
        make_agent().init_policy(1)
    with pytest.raises(AssertionError, match="cannot be divided"):
        GuestAgent(actor_batch=1, batch_size=4)
    with pytest.raises(AssertionError, match="mode eval"):
        make_agent().policy({}, {"is_first": np.zeros(2, bool)}, "eval")


@pytest.mark.distributed
def test_the_end_of_its_source_ends_the_process():
    result = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=DEADLINE_S)
    assert result.returncode == 1 and "StopIteration" in result.stdout + result.stderr, result


def test_a_wrapper_is_an_environment():
    env = make_env(lambda: GuestWrapper(CountingEnv()))
    assert type(env) is GuestWrapper
    with pytest.raises(ValueError, match="num_envs"):
        getattr(env, "num_envs", None)
    group = EnvGroup(lambda index: GuestWrapper(CountingEnv(index)), [0, 1])
    assert group.step(group.reset_actions())["is_first"].all()
    report = check_quickly(lambda index: GuestWrapper(Dummy("vector")), steps=20, most_s=60.0)
    assert report.raised is None and report.spaces and not report.count("error")


def test_the_replay_keeps_what_it_saved(tmp_path):
    replay = GuestReplay(3, tmp_path)
    for step in range(6):
        for worker in (0, 5):
            replay.add({"n": np.int64(step), "is_first": np.bool_(step == 0), "is_last": np.bool_(False)}, worker)
    replay.save()
    again = GuestReplay(3, tmp_path)
    again.load(None)
    assert len(again) == len(replay) == 8
    batch = next(iter(GuestBatches(again, "report", 4, length=2)))
    np.testing.assert_array_equal(batch["n"], batch["n"][:, :1] + np.arange(3))
