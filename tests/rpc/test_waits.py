"""Who waits over a connection: calls at once, deadlines, callbacks, and the end of either side."""

import threading
import time

import numpy as np
import pytest

from dreamfleet import lifecycle
from dreamfleet.errors import Closed, DeadlineExceeded
from tests.rpc.links import WAIT_S, wait_until


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
    with pytest.raises(DeadlineExceeded, match=r"replay.block has not answered for \d+\.\d s"):
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
    future.add_done_callback(explode)
    assert caplog.text.count("ValueError: in the callback") == 2
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
