"""Threads that die in a role: ours end it with their cause, those of a user's own code are told once."""

import pytest

from dreamfleet.errors import RunFailed
from dreamfleet.launch.topology import RestartPolicy, RoleSpec
from tests.launch import targets

pytestmark = pytest.mark.distributed

NEVER = RestartPolicy(restart=False)


@pytest.mark.parametrize("in_thread", [False, True], ids=["process", "thread"])
@pytest.mark.parametrize(
    "target", [targets.fail_in_thread, targets.fail_in_thread_and_raise, targets.fail_in_thread_and_hang]
)
def test_a_thread_that_dies_ends_the_run_with_its_cause(fleet, target, in_thread, failing_role):
    with pytest.raises(RunFailed, match=r"(?s)main failed: ValueError: the disk is on fire.*in fail\n"):
        fleet.run(
            RoleSpec("main", target, ("the disk is on fire",), policy=NEVER, is_main=True, in_thread=in_thread),
            exit_grace_s=0.5,
        )
    assert not fleet.journal.find("main", "because of that")


def test_a_thread_that_dies_restarts_a_role_beside_the_main_one(fleet):
    fleet.journal.on("other", "the disk is on fire: restarting", fleet.open_gate)
    fleet.run(
        RoleSpec("main", targets.wait_at, (fleet.gate,), is_main=True),
        RoleSpec("other", targets.fail_in_thread, ("the disk is on fire",)),
    )


def test_threads_of_a_user_that_die_are_told_once_and_the_role_goes_on(fleet):
    fleet.journal.on("main", "ready", fleet.request_stop)
    fleet.run(RoleSpec("main", targets.lose_own_threads, ("their mistake",), is_main=True))
    assert len(fleet.journal.find("main", r"(?s)thread theirs died.*ValueError: their mistake.*in fail")) == 1
    assert fleet.journal.find("main", "stopped")
