"""Delivery from the actor: joined, in order, bounded, once to replay, and without harm when the logger is away."""

import threading

import numpy as np
import pytest

from dreamfleet import lifecycle, rpc
from dreamfleet.options import read_args
from dreamfleet.roles.actor.channel import Channel
from dreamfleet.roles.actor.sender import LOGGER_BACKLOG, TransitionSender
from dreamfleet.roles.protocol import LogPosition, ReplayCounts
from tests.fleet import DEADLINE_S, eventually, make_args


class Sink:
    """A server that keeps what it is sent, and can be held up."""

    def __init__(self, addr: str, *methods: str):
        self.messages: list[tuple[dict, dict]] = []
        self.is_open = threading.Event()
        self.is_open.set()
        self.server = rpc.make_server(addr, "sink")
        for method in methods:
            self.server.bind(method, self._take, takes_meta=True)
        self.server.start()

    def _take(self, data, meta):
        assert self.is_open.wait(DEADLINE_S)
        self.messages.append((data, meta))
        return rpc.Reply({}, ReplayCounts(sum(len(d["envid"]) for d, _ in self.messages)).to_meta())

    @property
    def rows(self) -> list[int]:
        return [value for data, _ in self.messages for value in data["value"].tolist()]


@pytest.fixture
def addr():
    addr = rpc.resolve_addr("ipc:{auto}", "auto")
    yield addr
    rpc.remove_addr(addr)


@pytest.fixture
def sink(addr):
    sink = Sink(addr, "add_batch", "tran")
    yield sink
    sink.is_open.set()
    sink.server.close()


@pytest.fixture
def client(addr):
    with rpc.make_client(addr, "actor", peer="replay") as client:
        yield client


def make_batch(value: int, **more) -> dict:
    flags = {"is_eval": np.array([False]), "reward": np.zeros(1, np.float32)}
    return {"envid": np.array([0]), "value": np.array([value]), **flags, **more}


def make_channel(client, backlog=100, delay_s=0.01) -> Channel:
    return Channel(
        *(client, "add_batch"),
        backlog=backlog,
        delay_s=delay_s,
        make_meta=dict,
        on_done=lambda future, rows: None,
    )


@pytest.mark.parametrize("delay_s", [0.0, 0.01])
def test_everything_arrives_in_order(sink, client, delay_s):
    channel = make_channel(client, delay_s=delay_s)
    for value in range(300):
        assert channel.put(make_batch(value))
    channel.drain(DEADLINE_S)
    assert sink.rows == list(range(300))
    assert channel.unacknowledged == 0
    assert (len(sink.messages) == 300) == (delay_s == 0.0), "with a delay, batches travel together"


def test_batches_with_other_keys_travel_apart_but_in_order(sink, client):
    channel = make_channel(client)
    for value in range(40):
        more = {"extra": np.zeros(1)} if value % 10 == 0 else {}
        channel.put(make_batch(value, **more))
    channel.drain(DEADLINE_S)
    assert sink.rows == list(range(40))
    assert all("extra" in data for data, _ in sink.messages if 0 in data["value"] % 10)


def test_backlog_makes_the_sender_wait_and_says_so(sink, client):
    channel = make_channel(client, backlog=5)
    sink.is_open.clear()
    assert all(channel.put(make_batch(value), timeout_s=0.0) for value in range(5))
    assert not channel.put(make_batch(5), timeout_s=0.0)
    blocked = threading.Thread(target=channel.put, args=(make_batch(6),))
    blocked.start()
    eventually(lambda: any("room for transitions" in wait["what"] for wait in lifecycle.waits()), "the wait to show")
    sink.is_open.set()
    blocked.join(DEADLINE_S)
    channel.drain(DEADLINE_S)
    assert sink.rows == [0, 1, 2, 3, 4, 6]


def test_close_wakes_whoever_waits(sink, client):
    channel = make_channel(client, backlog=1)
    sink.is_open.clear()
    channel.put(make_batch(0))
    blocked = threading.Thread(target=channel.put, args=(make_batch(1),))
    blocked.start()
    channel.close()
    blocked.join(DEADLINE_S)
    assert not blocked.is_alive()


def test_drain_delivers_what_comes_after_close_too(sink, client):
    channel = make_channel(client, delay_s=DEADLINE_S)
    for value in range(10):
        channel.put(make_batch(value))
        if value == 4:
            channel.close()
    channel.drain(DEADLINE_S)
    assert sink.rows == list(range(10))


def test_drain_gives_up_on_a_peer_that_takes_nothing(sink, addr):
    sink.is_open.clear()
    with rpc.make_client(addr, "actor", peer="replay", max_inflight=1) as client:
        channel = make_channel(client)
        channel.put(make_batch(0))
        eventually(lambda: client.stats()["inflight"], "the first message to be under way")
        channel.close()
        channel.put(make_batch(1))
        channel.drain(0.05)
        assert channel.unacknowledged == 2


def test_last_rows_reach_the_logger_while_replay_takes_none(tmp_path, sink, client):
    logger_addr = rpc.resolve_addr("ipc:{auto}", "auto")
    logger = Sink(logger_addr, "tran")
    sink.is_open.clear()
    try:
        with rpc.make_client(logger_addr, "actor", peer="logger") as logger_client:
            # Without a number of steps, whose sender waits for replay to say where the run is.
            sender = TransitionSender(client, logger_client, read_args(make_args(tmp_path, steps=0)))
            sender.send(make_batch(0))
            sender.send(make_batch(1))
            draining = threading.Thread(target=sender.drain, args=(DEADLINE_S,))
            draining.start()
            eventually(lambda: logger.rows == [0, 1], "the logger to have the last rows")
            assert sender.unacknowledged == 2
            sink.is_open.set()
            draining.join(DEADLINE_S)
    finally:
        logger.server.close()
        rpc.remove_addr(logger_addr)
    assert sink.rows == [0, 1]


def test_rows_that_are_being_acknowledged_are_not_counted_twice(tmp_path, sink, client, monkeypatch):
    # After six of ten steps there is room for another, also at the moment when six are stored and not yet acknowledged.
    sender = TransitionSender(client, client, read_args(make_args(tmp_path, steps=10)))
    six = {key: np.repeat(value, 6) for key, value in make_batch(0).items()}
    another = threading.Thread(target=sender.send, args=(make_batch(1),))

    def at_that_moment(_):
        if another.ident is None:
            another.start()
            another.join(1.0)  # which it does at once if it takes the run for complete

    monkeypatch.setattr(lifecycle, "set_state", at_that_moment)
    sender.send(six)
    another.join(DEADLINE_S)
    sender.drain(DEADLINE_S)
    assert [value for data, meta in sink.messages if "sequence" in meta for value in data["value"]] == [0] * 6 + [1]


def test_logger_that_is_away_holds_nobody_up_and_is_told_of_the_gap(tmp_path, sink, client):
    logger_addr = rpc.resolve_addr("ipc:{auto}", "auto")
    with rpc.make_client(logger_addr, "actor", peer="logger") as logger:
        sender = TransitionSender(client, logger, read_args(make_args(tmp_path, steps=0)))
        count = 2 * LOGGER_BACKLOG
        for value in range(count):
            sender.send(make_batch(value))
        eventually(lambda: sink.rows == list(range(count)), "replay to have everything")
        back = Sink(logger_addr, "tran")
        try:
            eventually(lambda: logger.connected, "the logger to be back")
            eventually(lambda: sender.send(make_batch(5000)) or 5000 in back.rows, "a transition to be logged")
            gaps = [LogPosition.from_meta(meta).gap for data, meta in back.messages]
            assert any(gaps), "rows were lost, so episodes under way must not be scored"
        finally:
            sender.close()
            back.server.close()
    rpc.remove_addr(logger_addr)
    assert lifecycle.failure() is None


def fail(data):
    raise ValueError("not these rows")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (fail, "not these rows"),
        (lambda data: rpc.Reply({}, {"inserts": -1}), "'inserts' of ReplayCounts is -1, expected"),
    ],
)
def test_a_bad_answer_of_replay_is_a_failure(tmp_path, addr, answer, message, failing_role):
    server = rpc.make_server(addr, "replay")
    server.bind("add_batch", answer)
    server.bind("tran", lambda data: {})
    with server, rpc.make_client(addr, "actor", peer="replay") as client:
        sender = TransitionSender(client, client, read_args(make_args(tmp_path)))
        sender.send(make_batch(0))
        eventually(lifecycle.failure, "the failure")
        sender.drain(DEADLINE_S)
        assert sender.unacknowledged == 0
    assert message in str(lifecycle.failure())
