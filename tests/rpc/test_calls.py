"""Calls, answers and errors, over every engine."""

import logging
import threading

import numpy as np
import pytest

from dreamfleet import rpc
from dreamfleet.errors import BadRequest, RemoteError
from dreamfleet.rpc import codec
from dreamfleet.rpc.zmq import sockets
from tests.rpc.links import WAIT_S

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


def test_messages_of_any_size_come_back_as_they_were(link):
    link.serve(echo=lambda data: data)
    client = link.make_client()
    limits = (codec.LARGE, sockets.PIECE, 2 * sockets.PIECE)  # where a message is put together in another way
    for size in [limit + extra for limit in limits for extra in (-1, 0, 1)]:
        contents = np.random.default_rng(size).integers(0, 256, size, np.uint8)
        data = {"small": np.arange(3), "array": contents, "bytes": contents.tobytes(), "many": [contents[:60_000]] * 9}
        assert_equal(client.call("echo", data).result(WAIT_S), data)


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
    assert "test_calls.py" in error.traceback
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
    if link.transport != "portal":
        with pytest.raises(RemoteError, match="above the limit of 100000"):
            client.call("grow").result(WAIT_S)
    assert client.call("echo", 1).result(WAIT_S) is None
    assert client.connections == 1


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
