"""Calls, answers, errors and deadlines, over every engine."""

import logging
import threading
import time

import numpy as np
import pytest
from conftest import WAIT_S, wait_until

from dreamfleet import lifecycle, rpc
from dreamfleet.errors import BadRequest, Closed, DeadlineExceeded, RemoteError

TREE = {
    "image": np.arange(12288, dtype=np.uint8).reshape(64, 64, 3),
    "large": np.arange(200_000, dtype=np.float32).reshape(2, -1),
    "strided": np.arange(100)[::7],
    "empty": np.zeros((0, 4), np.int16),
    "scalar": np.float32(2.5),
    "flag": np.bool_(True),
    "int": -7,
    "float": 0.25,
    "bool": False,
    "none": None,
    "text": "däta",
    "no text": "",
    "bytes": b"\x00\xff",
    "no bytes": b"",
    "list": [1, [np.ones(3), {"x": "y"}], ()],
    "dict": {},
}


def assert_equal(actual, expected):
    if isinstance(expected, dict):
        assert set(actual) == set(expected)
        for key in expected:
            assert_equal(actual[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert isinstance(actual, list)
        for one, other in zip(actual, expected, strict=True):
            assert_equal(one, other)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert isinstance(actual, np.ndarray)
        assert (actual.dtype, actual.shape, actual.flags.writeable) == (expected.dtype, expected.shape, True)
        np.testing.assert_array_equal(actual, expected)
    else:
        assert actual == expected


def test_trees_come_back_as_they_were(link):
    received = []

    def echo(data):
        received.append(data)
        return data

    link.serve(echo=echo)
    result = link.make_client().call("echo", TREE).result(WAIT_S)
    assert_equal(received[0], TREE)
    assert_equal(result, TREE)
    assert result["large"].ctypes.data % 64 == 0
    result["image"][:] = 0
    assert TREE["image"].any()


@pytest.mark.parametrize("data", [None, {}, [], 3, "text", np.arange(4)])
def test_any_data_or_none(link, data):
    link.serve(echo=lambda data: data)
    assert_equal(link.make_client().call("echo", data).result(WAIT_S), data)


def test_a_call_without_data_gives_the_handler_none(link):
    received = []
    link.serve(note=received.append)
    link.make_client().call("note").result(WAIT_S)
    assert received == [None]


def test_metadata_goes_both_ways(link):
    server = link.make_server()
    server.bind("add", lambda data, meta: rpc.Reply({"n": data["n"]}, {"seen": meta["id"]}), takes_meta=True)
    server.bind("plain", lambda data: {"n": 1})
    server.bind("nothing", lambda data, meta: rpc.Reply(None, {"count": np.int64(3)}), takes_meta=True)
    server.start()
    client = link.make_client()
    future = client.call("add", {"n": np.arange(2)}, meta={"id": "x", "big": np.zeros(3)})
    assert set(future.result(WAIT_S)) == {"n"}
    assert future.meta == {"seen": "x"}
    future = client.call("plain", {})
    assert future.result(WAIT_S) == {"n": 1}
    assert future.meta == {}
    future = client.call("nothing")
    assert future.result(WAIT_S) is None
    assert future.meta == {"count": 3}


def test_a_missing_metadata_is_an_empty_dict(link):
    server = link.make_server()
    server.bind("meta", lambda data, meta: meta, takes_meta=True)
    server.start()
    assert link.make_client().call("meta", {"a": 1}).result(WAIT_S) == {}


def test_an_error_carries_role_method_and_traceback(link, caplog):
    def explode(data):
        raise KeyError("missing thing")

    server = link.make_server(name="replay")
    server.bind("sample", explode)
    server.start()
    with pytest.raises(RemoteError) as info:
        link.make_client().call("sample", {"a": 1}).result(WAIT_S)
    error = info.value
    assert (error.role, error.method, error.summary) == ("replay", "sample", "KeyError: 'missing thing'")
    assert "in explode" in error.traceback
    assert "test_rpc_calls.py" in error.traceback
    assert "in explode" in caplog.text


def test_a_refused_request_is_one_log_line_however_often(link, caplog):
    def refuse(data):
        raise BadRequest("key `image` is missing")

    link.serve(act=refuse)
    client = link.make_client()
    for _ in range(5):
        with pytest.raises(BadRequest, match=r"server.act refused the request: key `image` is missing"):
            client.call("act", {}).result(WAIT_S)
    assert len([record for record in caplog.records if "image" in record.message]) == 1


def test_unknown_methods_are_refused_with_those_that_exist(link):
    link.serve(echo=lambda data: data)
    client = link.make_client()
    with pytest.raises(BadRequest, match=r"server\.ekho refused .* there is no such method; methods are echo"):
        client.call("ekho", {"a": 1}).result(WAIT_S)
    assert client.call("echo", {"a": 1}).result(WAIT_S) == {"a": 1}


def test_a_reply_that_cannot_travel_is_an_error_of_the_handler(link):
    link.serve(bad=lambda data: {"fn": [len]})
    with pytest.raises(RemoteError, match=r"TypeError: cannot send fn\[0\]"):
        link.make_client().call("bad").result(WAIT_S)


def test_data_that_cannot_travel_is_named_and_leaves_the_client_usable(link):
    link.serve(echo=lambda data: data)
    client = link.make_client(max_inflight=1)
    for _ in range(3):
        with pytest.raises(TypeError, match=r"cannot send obs.x"):
            client.call("echo", {"obs": {"x": object()}})
        with pytest.raises(TypeError, match=r"cannot send a"):
            client.call("echo", {"a": np.array([None])})
    assert client.call("echo", {"a": 1}).result(WAIT_S) == {"a": 1}


def test_oversized_messages_get_an_error_answer(link):
    server = link.make_server(max_message_bytes=100_000)
    server.bind("echo", lambda data: None)
    server.bind("grow", lambda data: np.zeros(200_000, np.uint8))
    server.start()
    client = link.make_client()
    with pytest.raises(BadRequest, match="above the limit of 100000"):
        client.call("echo", np.zeros(200_000, np.uint8)).result(WAIT_S)
    with pytest.raises(BadRequest, match="above the limit of 100000"):
        client.call("echo", [np.zeros(60_000, np.uint8)] * 3, repeat=True).result(WAIT_S)
    if link.transport == "zmq":
        with pytest.raises(RemoteError, match="above the limit of 100000"):
            client.call("grow").result(WAIT_S)
    assert client.call("echo", 1).result(WAIT_S) is None
    assert client.connections == 1


def test_a_blocked_method_does_not_block_another(threaded_link):
    release = threading.Event()
    threaded_link.serve(block=lambda data: release.wait(WAIT_S), echo=lambda data: data)
    client = threaded_link.make_client()
    blocked = client.call("block")
    assert client.call("echo", 5).result(WAIT_S) == 5
    assert not blocked.done()
    release.set()
    assert blocked.result(WAIT_S)


def test_workers_of_one_method_run_at_the_same_time(threaded_link):
    together = threading.Barrier(3)
    server = threaded_link.make_server()
    server.bind("meet", lambda data: together.wait(WAIT_S), workers=3)
    server.start()
    client = threaded_link.make_client()
    futures = [client.call("meet") for _ in range(3)]
    assert sorted(int(future.result(WAIT_S)) for future in futures) == [0, 1, 2]


def test_many_threads_share_a_client(threaded_link):
    threaded_link.serve(double=lambda data: 2 * data["x"])
    client = threaded_link.make_client(max_inflight=4)
    results = {}

    def work(start):
        for value in range(start, start + 25):
            results[value] = int(client.call("double", {"x": np.int64(value)}).result(WAIT_S))

    threads = [threading.Thread(target=work, args=(100 * index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(results) == 100
    assert all(result == 2 * value for value, result in results.items())


def test_max_inflight_blocks_further_calls_and_says_so(threaded_link):
    release = threading.Event()
    threaded_link.serve(block=lambda data: release.wait(WAIT_S))
    client = threaded_link.make_client(max_inflight=2)
    futures = [client.call("block") for _ in range(2)]
    with pytest.raises(DeadlineExceeded, match="no room for block"):
        client.call("block", deadline_s=0.05)

    def call_a_third():
        futures.append(client.call("block"))

    thread = threading.Thread(target=call_a_third)
    thread.start()
    wait_until(lambda: any(wait["what"] == "server: room for block" for wait in lifecycle.waits()))
    assert client.stats()["inflight"] == 2
    release.set()
    thread.join(WAIT_S)
    assert all(future.result(WAIT_S) for future in futures)


def test_a_late_answer_is_named_and_the_future_lives_on(link):
    release = threading.Event()
    link.serve(block=lambda data: release.wait(WAIT_S))
    client = link.make_client(peer="replay")
    assert client.wait_connected(WAIT_S)
    future = client.call("block")
    with pytest.raises(DeadlineExceeded, match=r"replay.block has not answered for 0\.\d s"):
        future.result(0.05)
    release.set()
    assert future.result(WAIT_S)


def test_a_deadline_ends_the_call_and_frees_its_place(link):
    release = threading.Event()
    link.serve(block=lambda data: release.wait(WAIT_S), echo=lambda data: data)
    client = link.make_client(max_inflight=1)
    future = client.call("block", deadline_s=0.05)
    with pytest.raises(DeadlineExceeded):
        future.result()
    assert client.call("echo", 3).result(WAIT_S) == 3
    for deadline_s in (0.0, 0.1):
        abandoned = client.call("block", deadline_s=deadline_s)
        assert client.call("echo", 4).result(WAIT_S) == 4
        assert abandoned.done()
    release.set()
    with pytest.raises(DeadlineExceeded):
        future.result(WAIT_S)


def test_long_waits_are_told_to_the_supervisor(threaded_link):
    release = threading.Event()
    threaded_link.serve(block=lambda data: release.wait(WAIT_S))
    future = threaded_link.make_client(peer="actor").call("block")
    thread = threading.Thread(target=future.result, args=(WAIT_S,))
    thread.start()
    wait_until(lambda: any(wait["what"] == "actor.block" for wait in lifecycle.waits()))
    release.set()
    thread.join(WAIT_S)
    assert not any(wait["what"] == "actor.block" for wait in lifecycle.waits())


def test_no_server_there(link):
    client = link.make_client()
    assert not client.wait_connected(0.05)
    assert not client.connected
    future = client.call("echo", 1, deadline_s=0.1)
    with pytest.raises(DeadlineExceeded, match="there is no connection"):
        future.result()


def test_calls_wait_for_a_server_that_comes_later(link):
    client = link.make_client()
    future = client.call("echo", 5)
    assert not future.done()
    link.serve(echo=lambda data: data)
    assert future.result(WAIT_S) == 5
    assert client.connected
    assert client.connections == 1


def test_close_wakes_those_who_wait(link):
    release = threading.Event()
    link.serve(block=lambda data: release.wait())
    client = link.make_client()
    future = client.call("block")
    closer = threading.Timer(0.3, client.close)
    closer.start()
    with pytest.raises(Closed):
        future.result()
    closer.join(WAIT_S)
    with pytest.raises(Closed):
        client.call("block")
    client.close()
    release.set()


def test_close_wakes_who_waits_for_a_connection_or_for_room(threaded_link):
    lonely, full = threaded_link.make_client(), threaded_link.make_client(max_inflight=1)
    full.call("echo", 1)
    outcomes = []

    def wait_for_room():
        with pytest.raises(Closed):
            full.call("echo", 2)
        outcomes.append("room")

    threads = [
        threading.Thread(target=lambda: outcomes.append(lonely.wait_connected())),
        threading.Thread(target=wait_for_room),
    ]
    for thread in threads:
        thread.start()
    for client in (lonely, full):
        client.close()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(map(str, outcomes)) == ["False", "room"]


def test_callbacks_run_when_done_or_at_once(threaded_link):
    threaded_link.serve(echo=lambda data: data)
    client = threaded_link.make_client()
    seen, both = [], threading.Semaphore(0)

    def note(future):
        seen.append(future.result(0))
        both.release()

    def call_again(future):
        client.call("echo", 2).add_done_callback(note)

    first = client.call("echo", 1)
    first.add_done_callback(call_again)
    assert both.acquire(timeout=WAIT_S)
    first.add_done_callback(note)
    assert seen == [2, 1]


def test_a_failing_callback_is_logged_and_the_client_goes_on(threaded_link, caplog):
    threaded_link.serve(echo=lambda data: data)
    client = threaded_link.make_client()

    def explode(future):
        raise ValueError("in the callback")

    future = client.call("echo", 1)
    future.add_done_callback(explode)
    assert future.result(WAIT_S) == 1
    assert client.call("echo", 2).result(WAIT_S) == 2


def test_closing_a_server_sends_answers_that_are_made(threaded_link):
    started, release = threading.Event(), threading.Event()

    def work(data):
        started.set()
        release.wait(WAIT_S)
        return "done"

    server = threaded_link.serve(work=work)
    future = threaded_link.make_client().call("work")
    assert started.wait(WAIT_S)
    closer = threading.Thread(target=server.close)
    closer.start()
    threaded_link.make_client()  # wakes the server, which must not take this for a reason to leave
    assert not future.wait(time.monotonic() + 0.1)
    release.set()
    assert future.result(WAIT_S) == "done"
    closer.join(WAIT_S)
    assert not closer.is_alive()


def test_stats_count_calls_bytes_and_errors(link):
    server = link.serve(echo=lambda data: data, bad=lambda data: 1 / 0)
    client = link.make_client()
    server.stats(), client.stats()
    for _ in range(3):
        client.call("echo", np.zeros(10_000, np.uint8)).result(WAIT_S)
    with pytest.raises(RemoteError):
        client.call("bad").result(WAIT_S)
    with pytest.raises(BadRequest):
        client.call("nope").result(WAIT_S)
    stats = server.stats()
    assert stats["echo/rate"] > 0
    assert stats["echo/wait_ms"] >= 0
    assert stats["echo/work_ms"] >= 0
    assert stats["bytes_in_rate"] > 0
    assert stats["bytes_out_rate"] > 0
    assert (stats["errors"], stats["bad_requests"], stats["queue"], stats["clients"]) == (1, 1, 0, 1)
    assert all(isinstance(value, (int, float)) for value in stats.values())
    assert "echo/rate" not in server.stats()
    mine = client.stats()
    assert mine["echo/rate"] > 0
    assert mine["echo/wait_ms"] > 0
    assert (mine["inflight"], mine["connections"]) == (0, 1)


def test_threads_are_gone_after_close(link):
    before = set(threading.enumerate())
    server = link.serve(echo=lambda data: data)
    client = link.make_client()
    client.call("echo", 1).result(WAIT_S)
    client.close()
    server.close()
    assert [thread for thread in threading.enumerate() if thread not in before and thread.name != "pyzmq-gc"] == []


def test_bad_requests_do_not_fill_the_log(link, caplog):
    caplog.set_level(logging.DEBUG)
    link.serve(echo=lambda data: data)
    client = link.make_client()
    for index in range(20):
        with pytest.raises(BadRequest):
            client.call(f"unknown{index}", 1).result(WAIT_S)
    assert len([record for record in caplog.records if "unknown" in record.message]) == 1
