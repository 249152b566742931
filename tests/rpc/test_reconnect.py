"""What happens to calls when the server's process dies and comes back at the same address."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from dreamfleet.errors import Closed, Disconnected
from tests.rpc.links import WAIT_S, wait_until

pytestmark = pytest.mark.distributed


@pytest.fixture
def spawn(link):
    """Starts a server process; returns when it listens."""

    def start():
        script = str(Path(__file__).parent / "server_process.py")
        args = [sys.executable, script, link.addr, link.transport, str(link.key_file or "")]
        process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        link.stack.callback(end, process)
        assert "ready\n" in process.stdout, "the server ended"  # a repeated call may announce itself before
        return process

    return start


def end(process):
    process.kill()
    process.wait(WAIT_S)
    process.stdin.close()
    process.stdout.close()


def test_a_call_in_flight_fails_at_once_when_the_server_dies(link, spawn):
    process = spawn()
    client = link.make_client()
    assert client.call("pid").result(WAIT_S) == process.pid
    future = client.call("block")
    assert not future.done()
    end(process)
    with pytest.raises(Disconnected, match="server was lost during block"):
        future.result()
    assert client.stats()["lost_calls"] == 1


def test_a_prepared_call_fails_at_once_when_the_server_dies(link, spawn):
    process = spawn()
    client = link.make_client()
    assert client.call("pid").result(WAIT_S) == process.pid
    errors = []

    def ask():
        try:
            client.prepare("block", {"x": np.zeros(3)}).ask(WAIT_S)
        except Disconnected as error:
            errors.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    assert process.stdout.readline() == "blocked\n"
    end(process)
    thread.join(WAIT_S)
    assert errors == ["server was lost during block"]
    process = spawn()
    assert client.prepare("pid", {"x": np.zeros(3)}).ask(WAIT_S) == process.pid


def test_a_prepared_call_is_not_made_to_another_server_than_before(link, spawn):
    process = spawn()
    client = link.make_client()
    prepared = client.prepare("count", {"x": np.zeros(3)})
    assert [prepared.ask(WAIT_S) for _ in range(2)] == [1, 2]
    end(process)
    process = spawn()
    if link.threaded:
        wait_until(lambda: client.connections > 1 and client.connected)  # so that nothing is in the way of the call
    with pytest.raises(Disconnected):
        prepared.ask(WAIT_S)
    assert client.prepare("count", {"x": np.zeros(3)}).ask(WAIT_S) == 1, "the call before did not get there"


def test_a_prepared_call_does_not_wait_for_another_server(link, spawn):
    process = spawn()
    client = link.make_client()
    prepared = client.prepare("count", {"x": np.zeros(3)})
    assert prepared.ask(WAIT_S) == 1
    end(process)
    if link.threaded:
        wait_until(lambda: not client.connected)
    with pytest.raises(Disconnected):
        prepared.ask(WAIT_S)


def test_a_repeatable_call_survives_the_death_of_the_server(link, spawn):
    process = spawn()
    client = link.make_client()
    blocked = client.call("block", repeat=True)
    assert client.call("pid").result(WAIT_S) == process.pid
    end(process)
    future = client.call("pid", repeat=True)
    process = spawn()
    assert future.result(WAIT_S) == process.pid
    assert client.connections > 1
    assert not blocked.done()


@pytest.mark.parametrize("link", ["local", "zmq"], indirect=True)
def test_what_a_stopping_server_does_not_take_is_for_the_next_one(link):
    taken = threading.Semaphore(0)

    def stop(data):
        taken.release()
        raise Closed("the server stops")

    server = link.serve(take=stop, echo=lambda data: data)
    client = link.make_client()
    futures = [client.call("take", number, repeat=True) for number in range(2)]
    for _ in futures:
        assert taken.acquire(timeout=WAIT_S)  # one after the other: the first was answered, if it ever is
    assert client.call("echo", 7, repeat=True).result(WAIT_S) == 7
    assert not futures[0].done()
    server.close()
    link.serve(take=lambda data: data)
    assert [future.result(WAIT_S) for future in futures] == [0, 1]


def test_calls_made_while_the_server_is_away_wait_for_it(link, spawn):
    process = spawn()
    client = link.make_client()
    assert client.call("pid").result(WAIT_S) == process.pid
    end(process)
    futures = [client.call("pid", repeat=repeat) for repeat in (True, False)]
    process = spawn()
    outcomes = []
    for future in futures:
        try:
            outcomes.append(int(future.result(WAIT_S)))
        except Disconnected:  # the call went out before the loss was noticed
            outcomes.append("lost")
    assert outcomes[0] == process.pid
    assert outcomes[1] in (process.pid, "lost")


def test_many_deaths_in_a_row(link, spawn):
    client = link.make_client()
    for count in range(1, 4):
        process = spawn()
        assert client.call("pid", repeat=True).result(WAIT_S) == process.pid
        assert client.connections >= count  # a dying process may still accept once more
        end(process)


def test_the_owner_can_notice_a_reconnect(link, spawn):
    process = spawn()
    client = link.make_client()
    assert client.wait_connected(WAIT_S)
    assert (client.connected, client.connections) == (True, 1)
    future = client.call("block")
    end(process)
    with pytest.raises(Disconnected):
        future.result()
    process = spawn()
    assert client.call("pid", repeat=True).result(WAIT_S) == process.pid
    assert client.connected
    assert client.connections > 1


@pytest.mark.parametrize("link", ["local", "zmq", "portal"], indirect=True)
def test_no_call_is_forgotten_while_the_server_dies_again_and_again(link, spawn):
    client, is_over, outcomes = link.make_client(), threading.Event(), []

    def work(repeat):
        while not is_over.is_set():
            try:
                client.call("pid", repeat=repeat).result(WAIT_S)
                outcomes.append("answered")
            except Disconnected:
                assert not repeat
                outcomes.append("lost")

    threads = [threading.Thread(target=work, args=(index % 2 == 0,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        process = spawn()
        assert client.call("pid", repeat=True).result(WAIT_S) == process.pid
        end(process)
    process = spawn()
    is_over.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert "answered" in outcomes
    assert client.stats()["inflight"] == 0
