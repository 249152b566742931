"""What a client says first over every connection, and what comes of it, over every engine."""

import threading

import pytest

from dreamfleet import rpc
from dreamfleet.errors import BadRequest, Closed, DeadlineExceeded, RpcError, RunOver
from tests.rpc.links import WAIT_S, wait_until


class Hello:
    """A greeting whose owner decides what ends it."""

    method = "hello"

    def __init__(self, is_final: bool = True):
        self.answers: list = []
        self._is_final = is_final

    def present(self) -> dict:
        return {"turn": len(self.answers)}

    def accept(self, answer: dict) -> None:
        self.answers.append(answer)
        if answer.get("is_wrong"):
            raise BadRequest("not the server that is wanted")

    def is_final(self, error: RpcError) -> bool:
        return self._is_final


def serve(link, hello, name="server") -> rpc.Server:
    server = link.make_server(name=name)
    server.bind("hello", hello)
    server.bind("echo", lambda data: data)
    server.start()
    return server


def test_the_greeting_comes_before_any_call_and_again_over_every_connection(link):
    heard = []
    greeting = Hello()
    client = link.make_client(greeting=greeting)
    early = client.call("echo", {"x": 1}, repeat=True)
    for turn in range(2):
        server = serve(link, lambda data: heard.append(("hello", data)) or {"turn": data["turn"]})
        assert (early if not turn else client.call("echo", {"x": 1}, repeat=True)).result(WAIT_S) == {"x": 1}
        assert client.wait_connected(WAIT_S)
        server.close()
        wait_until(lambda: client.advance() or not client.connected)
    assert [data for _, data in heard] == [{"turn": 0}, {"turn": 1}]
    assert greeting.answers == [{"turn": 0}, {"turn": 1}]


@pytest.mark.parametrize("is_theirs", [True, False])
def test_a_refusal_that_is_final_fails_all_calls_with_its_reason(link, is_theirs):
    def refuse(_):
        if is_theirs:
            raise BadRequest("you are of another run")
        return {"is_wrong": True}

    serve(link, refuse)
    client = link.make_client(greeting=Hello())
    reason = (
        "server.hello refused the request: you are of another run" if is_theirs else "not the server that is wanted"
    )
    with pytest.raises(BadRequest, match=reason):
        client.call("echo", {"x": 1}, repeat=True).result(WAIT_S)
    for ask in (lambda: client.wait_connected(WAIT_S), lambda: client.call("echo").result(WAIT_S)):
        with pytest.raises(BadRequest, match=reason):
            ask()
    assert not client.connected
    client.close()
    with pytest.raises(Closed):
        client.call("echo")


def test_after_a_refusal_that_is_not_final_the_client_waits_and_greets_again(link, caplog):
    served = threading.Event()

    def hello(_):
        if not served.is_set():
            raise BadRequest("start me with my own directory")
        return {}

    serve(link, hello)
    client = link.make_client(greeting=Hello(is_final=False))
    call = client.call("echo", {"x": 1}, repeat=True)
    with pytest.raises(DeadlineExceeded):
        call.result(0.5)
    assert not client.connected
    served.set()
    assert call.result(WAIT_S) == {"x": 1}
    assert "server was not accepted, trying again: " in caplog.text and "my own directory" in caplog.text


def test_the_end_of_the_run_is_an_error_of_its_own_and_nothing_to_log(link, caplog):
    def end(_):
        raise RunOver("the run is complete")

    server = link.make_server()
    server.bind("echo", end)
    server.start()
    client = link.make_client()
    with pytest.raises(RunOver, match=r"^the run is complete$"):
        client.call("echo", {"x": 1}).result(WAIT_S)
    assert not caplog.text and not server.stats()["errors"]
