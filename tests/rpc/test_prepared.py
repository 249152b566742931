"""Calls that are prepared once and made again and again, with other contents of their arrays."""

import threading

import numpy as np
import pytest

from dreamfleet.errors import BadRequest, Closed, DeadlineExceeded, Disconnected, RemoteError
from tests.rpc.links import WAIT_S, wait_until


def make_data():
    large = np.zeros((300, 300), np.uint8)
    return {"id": 7, "x": np.zeros(3, np.float32), "flag": np.zeros((), bool), "large": large}


def total(data):
    return {"sum": data["x"].sum() + data["large"].sum(), "id": data["id"], "flag": data["flag"]}


def test_every_call_sends_what_the_arrays_hold_then(link):
    link.serve(total=total)
    client = link.make_client()
    prepared = client.prepare("total", make_data(), {"note": "a"})
    for i in range(50):
        prepared.data["x"][:] = i
        prepared.data["flag"][...] = i % 2
        prepared.data["large"][i, i] = 1
        answer = prepared.ask(WAIT_S)
        assert (answer["sum"], answer["id"], bool(answer["flag"])) == (3 * i + i + 1, 7, bool(i % 2))
    stats = client.stats()
    assert stats["total/rate"] > 0
    assert stats["bytes_out_rate"] > 90_000 * stats["total/rate"]
    assert stats["inflight"] == 0


def test_answers_are_memory_of_their_own(link):
    link.serve(echo=lambda data: {"x": data["x"]})
    prepared = link.make_client().prepare("echo", {"x": np.zeros(4)})
    answers = []
    for i in range(3):
        prepared.data["x"][:] = i
        answers.append(prepared.ask(WAIT_S)["x"])
        answers[-1][0] = -1  # which must not reach the next message either
    assert [answer.tolist() for answer in answers] == [[-1, i, i, i] for i in range(3)]


def test_metadata_and_other_calls_go_along(link):
    server = link.make_server()
    server.bind("who", lambda data, meta: [meta["name"], float(data["x"])], takes_meta=True)
    server.bind("echo", lambda data: data)
    server.start()
    client = link.make_client()
    prepared = client.prepare("who", {"x": np.zeros(())}, {"name": "env3"})
    for i in range(3):
        prepared.data["x"][...] = i
        assert prepared.ask(WAIT_S) == ["env3", i]
        assert client.call("echo", i).result(WAIT_S) == i


def test_errors_are_raised_and_the_next_call_works(link):
    def fail(data):
        if data["x"] == 1:
            raise ValueError("one is too many")
        return float(data["x"])

    link.serve(fail=fail)
    client = link.make_client()
    prepared = client.prepare("fail", {"x": np.zeros(())})
    assert prepared.ask(WAIT_S) == 0
    prepared.data["x"][...] = 1
    with pytest.raises(RemoteError, match="one is too many"):
        prepared.ask(WAIT_S)
    prepared.data["x"][...] = 2
    assert prepared.ask(WAIT_S) == 2
    with pytest.raises(BadRequest, match="no such method"):
        client.prepare("other", {"x": np.zeros(())}).ask(WAIT_S)


def test_an_answer_that_comes_too_late_is_not_that_of_the_next_call(link):
    release = threading.Event()

    def answer(data):
        if data["x"] == 1:
            release.wait(WAIT_S)
        return float(data["x"])

    link.serve(answer=answer)
    client = link.make_client(max_inflight=2)
    prepared = client.prepare("answer", {"x": np.zeros(())})
    assert prepared.ask(WAIT_S) == 0
    prepared.data["x"][...] = 1
    with pytest.raises(DeadlineExceeded, match="has not answered"):
        prepared.ask(0.05)
    release.set()
    another = client.prepare("answer", {"x": np.full((), 2.0)})
    assert another.ask(WAIT_S) == 2


def test_data_that_cannot_travel_is_named(link):
    with pytest.raises(TypeError, match=r"cannot send obs\.x"):
        link.make_client().prepare("echo", {"obs": {"x": object()}}).ask(WAIT_S)


def test_close_wakes_who_waits_for_the_answer(link):
    is_called, release = threading.Event(), threading.Event()
    link.stack.callback(release.set)

    def block(data):
        is_called.set()
        return release.wait(WAIT_S)

    link.serve(block=block)
    client = link.make_client()
    assert client.wait_connected(WAIT_S)
    errors = []

    def ask():
        try:
            client.prepare("block", {"x": np.zeros(())}).ask(WAIT_S)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert is_called.wait(WAIT_S)
    client.close()
    thread.join(WAIT_S)
    assert [type(error) for error in errors] == [Closed]
    with pytest.raises(Closed):
        client.prepare("block", {"x": np.zeros(())}).ask(WAIT_S)


def test_a_server_that_goes_away_ends_the_call_and_one_that_comes_back_answers(link):
    server = link.serve(echo=lambda data: data)
    client = link.make_client()
    prepared = client.prepare("echo", {"x": np.ones(2)})
    assert prepared.ask(WAIT_S)["x"].tolist() == [1, 1]
    server.close()
    answers = []

    def ask():
        try:
            answers.append(client.prepare("echo", {"x": np.zeros(2)}).ask(WAIT_S))
        except Disconnected:  # the loss was noticed only by this call
            answers.append(client.prepare("echo", {"x": np.zeros(2)}).ask(WAIT_S))

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: not client.connected)
    link.serve(echo=lambda data: data)
    thread.join(2 * WAIT_S)
    assert [answer["x"].tolist() for answer in answers] == [[0, 0]]
