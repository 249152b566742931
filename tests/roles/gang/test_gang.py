"""Where a gang meets, over real connections: who is let in, the barrier, the end, and losses."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dreamfleet import lifecycle, rpc
from dreamfleet.errors import ReplicaLost, RpcError
from dreamfleet.options import role_options, shared_options
from dreamfleet.options.load import load_options
from dreamfleet.roles.gang import member, server
from dreamfleet.roles.gang.member import STOPPED, Gang, RemoteDesk, bind_desk, shared_settings
from dreamfleet.roles.gang.server import GangServer
from dreamfleet.roles.protocol import VERSION, GangJoin, GangSign
from tests.fleet import DEADLINE_S, eventually

PORT = 7000


def make_options(replica=0, owner="", **changes):
    options = load_options({"run.replicas": 2, "run.replica": replica, "run.gang": "127.0.0.1:6400", **changes})
    return role_options(options, shared=shared_options(options), owner=owner or f"supervisor {replica}")


class Meeting:
    """A desk that is served, and its members."""

    def __init__(self, stack, path):
        self._stack = stack
        self.desk = GangServer(2, 5, shared_settings(make_options()), lambda: PORT)
        self._server = rpc.make_server(f"ipc:{path}", "gang", protocol=VERSION)
        bind_desk(self._server, self.desk, 2)
        self._server.start()
        stack.callback(self._server.close)
        self.path, self.lost = path, []
        self.pool = stack.enter_context(ThreadPoolExecutor(8))

    def member(self, replica, **options):
        if replica == 0:
            desk, close = self.desk, lambda: None
        else:
            client = rpc.make_client(f"ipc:{self.path}", f"replica{replica}", peer="gang", protocol=VERSION)
            desk, close = RemoteDesk(client), client.close
        gang = Gang(desk, make_options(replica, **options), close, leave=self.lost.append)
        self._stack.callback(gang.close)
        return gang

    def join(self, *gangs):
        """The places of those that join at the same time."""
        return [future.result(DEADLINE_S) for future in [self.pool.submit(gang.join) for gang in gangs]]


@pytest.fixture
def meeting(tmp_path, monkeypatch):
    monkeypatch.setattr(member, "WAIT_S", 0.05)
    monkeypatch.setattr(member, "FAREWELL_S", 0.1)
    with contextlib.ExitStack() as stack:
        stack.callback(lifecycle.reset)
        yield Meeting(stack, tmp_path / "gang")


def test_all_get_their_places_when_the_last_one_is_there(meeting):
    first, second = meeting.member(0), meeting.member(1)
    early = meeting.pool.submit(first.join)
    eventually(lambda: any("gang: other replicas (1)" in wait["what"] for wait in lifecycle.waits()), "a named wait")
    assert not early.done()
    place = second.join()
    assert place == (1, 2, f"127.0.0.1:{PORT}", "")
    assert early.result(DEADLINE_S) == (0, 2, f"127.0.0.1:{PORT}", f"127.0.0.1:{PORT}")


def test_a_stop_ends_the_wait_for_the_others(meeting):
    early = meeting.pool.submit(meeting.member(0).join)
    eventually(lifecycle.waits, "the wait")
    lifecycle.request_stop()
    assert early.result(DEADLINE_S) is None


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"batch_size": 8}, "batch_size is 8 there and 16 here"),
        ({"dreamer.horizon": 99}, "dreamer.horizon is 99 there and 333 here"),
        ({"seed": 3}, "seed is 3 there and 0 here"),
        ({"run.replicas": 3}, "run.replicas is 3 there and 2 here"),
    ],
)
def test_a_replica_with_other_options_is_refused_with_both_values(meeting, changes, text):
    with pytest.raises(RpcError, match=r"replica 1 on .* does not fit replica 0") as refusal:
        meeting.member(1, **changes).join()
    assert text in str(refusal.value) and refusal.value.is_fatal


def test_what_may_differ_does(meeting):
    meeting.join(meeting.member(0), meeting.member(1, **{"run.envs": 3, "logdir": "/elsewhere", "run.steps": 7}))


def test_a_second_process_for_a_replica_is_refused_while_the_first_is_alive(meeting):
    meeting.join(meeting.member(0), meeting.member(1))
    with pytest.raises(RpcError, match=r"replica 1 of this gang is on .*: give each its own --run.replica"):
        meeting.member(1, owner="another supervisor").join()
    assert not meeting.lost


def test_updates_are_made_by_all_or_by_none(meeting):
    gangs = [meeting.member(0), meeting.member(1)]
    meeting.join(*gangs)
    for update in range(3):
        early = meeting.pool.submit(gangs[update % 2].may_update, update)
        assert meeting.pool.submit(gangs[1 - update % 2].may_update, update).result(DEADLINE_S)
        assert early.result(DEADLINE_S)
    waiting = meeting.pool.submit(gangs[0].may_update, 3)
    eventually(lambda: any(wait["what"] == "gang: update" for wait in lifecycle.waits()), "the barrier")
    assert not waiting.done()
    gangs[1].end(member.COMPLETE)
    assert not waiting.result(DEADLINE_S)
    assert lifecycle.is_complete() and lifecycle.stopping()


def test_an_update_that_was_released_is_made_also_after_the_end(meeting):
    gangs = [meeting.member(0), meeting.member(1)]
    meeting.join(*gangs)
    signs = [GangSign(gang._session, 5, 0.0, 0) for gang in gangs]
    assert not meeting.desk.pass_barrier(signs[0]).may_update
    assert meeting.desk.pass_barrier(signs[1]).may_update
    meeting.desk.end(GangSign(gangs[1]._session, 5, verdict=member.COMPLETE))
    assert meeting.desk.pass_barrier(signs[0]).may_update


def test_the_stop_of_one_is_told_to_the_other_with_its_number(meeting):
    gangs = [meeting.member(0), meeting.member(1)]
    meeting.join(*gangs)
    gangs[1].end(member.STOPPED)
    eventually(lifecycle.stopping, "the stop")
    assert lifecycle.stop_reason() == "replica 1" and not lifecycle.is_complete()


def test_how_the_run_ended_is_known_before_a_learner_may_return(meeting):
    first, second = meeting.member(0), meeting.member(1)
    meeting.join(first, second)
    waiting, returns = meeting.pool.submit(second.may_update, 0), []
    with lifecycle.on_stop(lambda: returns.append(second._is_over.is_set())):
        first.end(STOPPED)
        assert waiting.result(DEADLINE_S) is False
    assert returns == [False] and lifecycle.stop_reason() == "replica 0"


def test_a_restarted_replica_breaks_the_gang(meeting):
    gangs = [meeting.member(0), meeting.member(1)]
    meeting.join(*gangs)
    meeting.pool.submit(meeting.member(1).join)
    eventually(lambda: len(meeting.lost) >= 2, "news of the loss")
    lifecycle.request_stop()
    assert all(isinstance(error, ReplicaLost) for error in meeting.lost)
    assert "replica 1 on" in str(meeting.lost[0]) and "was lost" in str(meeting.lost[0])


def test_a_silent_replica_breaks_the_gang_but_not_before_it_has_started(meeting, monkeypatch):
    monkeypatch.setattr(server, "LOST_S", 0.2)
    monkeypatch.setattr(server, "LOOK_S", 0.05)
    request = GangJoin(1, "session", "owner", "host1", shared_settings(make_options(1)))
    assert meeting.desk.join(request).missing == (0,)
    nobody = GangSign("nobody", 5)
    eventually(lambda: meeting.desk.watch(nobody) and 1 not in meeting.desk._members, "that it is forgotten")
    meeting.desk.join(request)
    assert meeting.member(0).join()
    eventually(lambda: meeting.lost, "news of the loss")
    assert str(meeting.lost[0]).startswith("replica 1 on host1 was lost")


def test_the_loss_of_replica_0_is_noticed_by_the_others(meeting):
    gangs = [meeting.member(0), meeting.member(1)]
    meeting.join(*gangs)
    meeting._server.close()
    text = "replica 0 at 127.0.0.1:6400 was lost"  # replica 0, which lives on, may miss the other one first
    eventually(lambda: any(str(loss).startswith(text) for loss in meeting.lost), "news of the loss")


def test_an_earlier_generation_is_told_that_it_is_over(meeting):
    first, second = meeting.member(0), meeting.member(1)
    meeting.join(first, second)
    news = meeting.desk.watch(GangSign(second._session, 4))
    assert news.broken == "replica 0 was restarted"


def test_a_failed_update_is_blamed_on_the_loss_that_caused_it(meeting):
    gangs = [meeting.member(0), meeting.member(1)]
    meeting.join(*gangs)
    blamed = threading.Thread(target=gangs[1].explain, args=(ValueError("connection reset by peer"),), daemon=True)
    blamed.start()
    meeting._server.close()
    blamed.join(DEADLINE_S)
    assert meeting.lost
