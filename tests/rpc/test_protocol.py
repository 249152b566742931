"""Callers that speak another version than the server are refused, with an answer that names both."""

import contextlib

import numpy as np
import pytest

from dreamfleet.errors import BadRequest
from tests.rpc.links import WAIT_S, make_link


def serve(link, protocol):
    server = link.make_server(name="replay", protocol=protocol)
    seen = []
    server.bind("add", lambda data: seen.append(data))
    server.bind("meta", lambda data, meta: meta, takes_meta=True)
    server.start()
    return server, seen


def test_another_protocol_is_refused_and_both_are_named(link):
    server, seen = serve(link, protocol=2)
    client = link.make_client(peer="replay", protocol=3)
    refusal = r"replay\.add refused .*the caller speaks protocol 3, this replay speaks protocol 2: install the same"
    with pytest.raises(BadRequest, match=refusal):
        client.call("add", {"x": np.arange(3)}, meta={"id": 1}).result(WAIT_S)
    with pytest.raises(BadRequest, match=refusal):
        client.call("add", repeat=True).result(WAIT_S)
    prepared = client.prepare("add", {"x": np.zeros(3)})
    for _ in range(2):
        with pytest.raises(BadRequest, match=refusal):
            prepared.ask(WAIT_S)
    assert seen == []
    assert server.stats()["bad_requests"] == 4
    assert client.connections == 1, "an answer and not the end of the connection"


def test_the_same_protocol_is_served_and_its_number_is_not_seen(link):
    serve(link, protocol=7)
    client = link.make_client(peer="replay", protocol=7)
    future = client.call("meta", {"x": 1}, meta={"id": "a"})
    assert future.result(WAIT_S) == {"id": "a"}
    assert future.meta == {}
    assert client.prepare("meta", {"x": np.zeros(2)}, {"id": "b"}).ask(WAIT_S) == {"id": "b"}
    assert client.call("meta").result(WAIT_S) == {}


def test_a_caller_over_portal_without_metadata_names_no_protocol(tmp_path):
    with contextlib.ExitStack() as stack:
        link = make_link("portal", tmp_path, stack)
        _, seen = serve(link, protocol=2)
        with calling_plainly(link) as client:
            client.add({"x": 1}).result(WAIT_S)
        assert len(seen) == 1


@pytest.mark.parametrize("number", ["three", np.arange(3), float("inf")])
def test_a_protocol_over_portal_that_is_no_number_is_refused(number, tmp_path):
    with contextlib.ExitStack() as stack:
        link = make_link("portal", tmp_path, stack)
        serve(link, protocol=2)
        with calling_plainly(link) as client:
            with pytest.raises(RuntimeError, match="not a number"):
                client.add({"_meta": {"_protocol": number}}).result(WAIT_S)
            assert client.add({"x": 1}).result(WAIT_S) is None


@contextlib.contextmanager
def calling_plainly(link):
    """A client of the portal library itself."""
    from dreamfleet.rpc.portal.guard import portal

    client = portal.Client(link.addr, logging=False)
    try:
        yield client
    finally:
        client.close(WAIT_S)
