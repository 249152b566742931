"""Phases and waits in the user's words."""

import pytest

from dreamfleet.metrics.bottlenecks import find_bottleneck, find_phase, format_waits, is_joined
from dreamfleet.metrics.progress import Progress

BEFORE, AFTER = Progress(updates=0), Progress(updates=7)


def make_status(state="running", **waits):
    """A status in which each role has waited for something for two seconds, half of the time."""
    return {
        "state": state,
        "roles": {name: {"waits": [{"what": what, "seconds": 2.0, "share": 0.5}]} for name, what in waits.items()},
    }


@pytest.mark.parametrize(
    ("progress", "status", "phase"),
    [
        (BEFORE, {}, "starting"),
        (BEFORE, make_status("starting"), "starting"),
        (BEFORE, make_status(), "prefilling replay buffer"),
        (BEFORE, make_status(agent="device: update"), "compiling"),
        (AFTER, make_status(agent="device: update"), "training"),
        (BEFORE, make_status(env0="actor.act"), "running"),
        (AFTER, make_status("stopping"), "stopping"),
        (AFTER, make_status("stopping", agent="checkpoint: writing"), "saving"),
        (AFTER, make_status("complete"), "finished"),
        (AFTER, make_status("stopped"), "stopped"),
        (AFTER, make_status("failed"), "failed"),
    ],
)
def test_phase(progress, status, phase):
    assert find_phase(progress, status) == phase


@pytest.mark.parametrize(
    ("role", "what", "shown"),
    [
        (
            "replay",
            "learner: ratio allows no insert",
            "collection paused 50% of the last 2.0 s: learner-bound (train ratio reached)",
        ),
        (
            "replay",
            "environments: ratio allows no sample",
            "learner idle 50% of the last 2.0 s: environment-bound",
        ),
        ("agent", "replay: room for transitions", "acting paused 50% of the last 2.0 s by replay"),
        ("agent", "replay.sample_batch_train", "learner waiting for a batch (50% of the last 2.0 s)"),
        ("agent", "replay: room for add_batch", "acting paused 50% of the last 2.0 s by replay"),
        ("agent", "learner: restoring the agent", "loading checkpoint (50% of the last 2.0 s)"),
        ("agent", "actor: start", "starting policy server (50% of the last 2.0 s)"),
        ("agent", "device: update", "training (50% of the last 2.0 s)"),
        ("env3", "actor.act", "env3 waiting for the policy (50% of the last 2.0 s)"),
        ("env3", "actor.act_many", "env3 waiting for the policy (50% of the last 2.0 s)"),
        ("env3", "environment 3: construction", "creating env 3 (50% of the last 2.0 s)"),
        ("agent", "replay: connection", "agent connecting to replay (50% of the last 2.0 s)"),
        ("replay", "disk: no space in /data", "replay paused: disk full (50% of the last 2.0 s)"),
        ("agent", "the {moon} of another version", "agent waiting for the {moon} of another version (50% of the last"),
    ],
)
def test_wait(role, what, shown):
    assert format_waits(make_status(**{role: what}), AFTER).startswith(shown)


def test_the_first_train_step_is_compiled():
    assert "compiling train step" in format_waits(make_status(agent="device: update"), BEFORE)


def test_before_the_first_update_the_phase_says_what_the_limiter_waits_for():
    compiling = make_status(agent="device: update", replay="learner: ratio allows no insert")
    assert format_waits(compiling, BEFORE) == "compiling train step (50% of the last 2.0 s)"
    prefilling = make_status(agent="replay: a train batch", replay="environments: ratio allows no sample")
    assert format_waits(prefilling, BEFORE) == ""


def test_a_run_that_nobody_has_joined_waits_for_environments():
    status = make_status("starting", agent="replay: a train batch", replay="environments: ratio allows no sample")
    assert format_waits(status, BEFORE) == "waiting for environments (50% of the last 2.0 s)"


def test_who_waits_for_an_agent_that_starts_is_not_shown_beside_it():
    starting = make_status("starting", agent="agent: construction", env0="actor: connection")
    assert format_waits(starting, BEFORE) == "creating the agent (50% of the last 2.0 s)"
    acting = make_status("starting", agent="device: first actions", env0="actor.act")
    assert find_phase(BEFORE, acting) == "compiling"
    assert format_waits(acting, BEFORE) == "compiling policy (50% of the last 2.0 s)"


def test_roles_that_wait_for_the_same_are_grouped():
    status = make_status(env0="actor.act", env1="actor.act", env12="actor.act")
    assert format_waits(status, AFTER) == "3 env workers waiting for the policy (50% of the last 2.0 s)"
    status = make_status(agent="logger: connection", replay="logger: connection")
    assert format_waits(status, AFTER).startswith("agent and 1 more connecting to logger")


def test_an_uninterrupted_wait_has_its_length_only():
    status = make_status(replay="learner: ratio allows no insert", agent="replay.update")
    for role in status["roles"].values():
        role["waits"][0]["share"] = 1.0
    assert format_waits(status, AFTER) == (
        "collection paused for 2.0 s: learner-bound (train ratio reached), agent waiting for replay.update (2.0 s)"
    )


def test_what_follows_from_a_bottleneck_is_not_shown_beside_it():
    learner_bound = make_status(replay="learner: ratio allows no insert", agent="replay: room for transitions")
    assert format_waits(learner_bound, AFTER).startswith("collection paused")
    assert "acting" not in format_waits(learner_bound, AFTER)
    env_bound = make_status(replay="environments: ratio allows no sample", agent="replay.sample_batch_train")
    assert format_waits(env_bound, AFTER) == "learner idle 50% of the last 2.0 s: environment-bound"


@pytest.mark.parametrize(
    ("waits", "sentence"),
    [
        (
            {"replay": "learner: ratio allows no insert", "agent": "replay: room for transitions", "env0": "actor.act"},
            "learner-bound: acting waits 50 % of the time for the train ratio",
        ),
        (
            {"replay": "environments: ratio allows no sample", "agent": "replay: a train batch"},
            "environment-bound: the learner waits 50 % of the time for new steps",
        ),
        ({"agent": "replay: a train batch"}, "replay-bound: the learner waits 50 % of the time for batches"),
        ({"env0": "actor.act"}, "policy-bound: environments wait 50 % of the time for actions"),
        ({"replay": "disk: no space"}, "disk-bound: the disk is full, waiting 50 % of the time"),
        ({"agent": "logger: connection"}, "balanced: nobody waits for long"),
    ],
)
def test_one_sentence_says_what_holds_the_run_up(waits, sentence):
    status = make_status(**waits)
    status["roles"].setdefault("agent", {"state": "running", "waits": []})
    assert find_bottleneck({**status, "state": "running"}, AFTER) == sentence


def test_a_role_that_is_down_comes_first():
    status = {"state": "running", **make_status(replay="learner: ratio allows no insert", agent="device: update")}
    status["roles"]["env0"] = {"state": "restarting", "exit": "killed by SIGKILL", "waits": []}
    assert find_bottleneck(status, AFTER) == "env0 is restarting (killed by SIGKILL)"


def test_the_check_of_an_environment_is_part_of_a_run_of_our_own():
    assert not is_joined({"roles": {"preflight": {}}}) and is_joined({"roles": {"env0": {}}})
