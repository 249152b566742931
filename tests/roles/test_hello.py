"""Processes present themselves; what does not agree is refused with both sides."""

import dataclasses

import pytest

from dreamfleet.errors import BadRequest
from dreamfleet.options import read_args
from dreamfleet.roles.hello import MOST_PEERS, Reception, is_elsewhere, make_hello, own_run_id
from dreamfleet.roles.protocol import BatchMark, Hello, ReplayCounts, SampleRequest
from tests.fleet import make_args
from tests.roles.replays import make_batch


@pytest.fixture
def options(tmp_path):
    return read_args(make_args(tmp_path))


def say(reception: Reception, options, role="learner", **facts) -> Hello:
    hello = dataclasses.replace(make_hello(options, role, session=role), **{"run": "run", **facts})
    return Hello.from_data(reception.welcome(hello.to_data(), {}))


def test_another_version_and_another_run_are_refused_and_both_are_named(options):
    reception = Reception(options, lambda: make_hello(options, "replay"))
    with pytest.raises(BadRequest, match=r"the learner has dreamfleet 0\.0, this replay has "):
        say(reception, options, package="0.0")
    assert say(reception, options).run == "run", "the first trainer's"
    for again in (reception, Reception(options, lambda: make_hello(options, "replay"))):
        with pytest.raises(BadRequest, match="belongs to run other, this replay to run: "):
            say(again, options, run="other")
    assert reception.knows("learner", "learner") and not reception.knows("learner", "actor")


def test_nobody_pushes_out_the_runs_own_processes(options):
    reception = Reception(options, lambda: make_hello(options, "replay"))
    say(reception, options)
    for number in range(MOST_PEERS + 1):
        say(reception, options, "env", session=f"{number}")
    assert reception.knows("learner", "learner") and not reception.knows("0", "env")
    for facts in ({"role": "stranger"}, {"role": ""}, {"session": ""}):
        with pytest.raises(BadRequest, match=r"a hello names a role \(env, actor, .*\) and a session"):
            say(reception, options, **facts)
    assert not reception.knows("", "learner")


def test_a_hello_is_small(options):
    reception = Reception(options, lambda: make_hello(options, "replay"))
    say(reception, options, obs_space={f"key{number}": "float32(64, 64, 3)" for number in range(5000)})
    with pytest.raises(BadRequest, match=r"'obs_space' of Hello is .*, expected at most 262144 characters in all"):
        say(reception, options, obs_space={"x" * (1 << 18): "float32()"})


def test_a_replay_with_other_options_or_fewer_steps_than_were_stored_is_not_used(open_role, options):
    role = open_role()
    reception = Reception(options, role.make_hello, role.check_hello)
    settings = role.make_hello().settings
    with pytest.raises(BadRequest, match=r"started with train_ratio=0\.0, but the learner with train_ratio=64\.0: "):
        say(reception, options, settings={**settings, "train_ratio": "64.0"})
    with pytest.raises(BadRequest, match=r"holds 0 of the 700 steps that the run has stored .*allow_lost_steps"):
        say(reception, options, settings=settings, counts=ReplayCounts(inserts=700, samples=40))
    role = open_role(allow_lost_steps=True)
    reception = Reception(options, role.make_hello, role.check_hello)
    answer = say(reception, options, settings=settings, counts=ReplayCounts(inserts=700, samples=40))
    assert answer.role == "replay" and (role.counts().inserts, role.counts().samples) == (700, 40)


def test_only_the_runs_own_processes_define_columns_and_counts(open_role, options):
    role = open_role()
    role.reception = Reception(options, role.make_hello)
    with pytest.raises(BadRequest, match="for the actor of the run, which says hello first"):
        role.add_batch(make_batch([1, 2]), BatchMark("stranger", 1).to_meta())
    with pytest.raises(BadRequest, match="for the learner of the run, which says hello first"):
        role.sample_batch("train", None, SampleRequest(wait_s=0.0, learner="stranger", updates=2**40).to_meta())
    say(role.reception, options, "actor")
    role.add_batch(make_batch([1, 2]), BatchMark("actor", 1).to_meta())
    assert role.counts().samples == 0


def test_where_a_draft_is_follows_from_the_run(tmp_path):
    (here, there) = (tmp_path / name for name in ("here", "there"))
    run = own_run_id(here)
    assert own_run_id(here) == run
    assert (is_elsewhere(here, run), is_elsewhere(there, run), is_elsewhere(here, "")) == (False, True, False)
    with pytest.raises(BadRequest, match=f"is that of run {run}, not of run other"):
        is_elsewhere(here, "other")
