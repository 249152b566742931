"""One set of tests for every way to connect: both engines, and the ways that each can be used."""

import contextlib

import pytest

from tests.rpc.rpc_links import make_link


@pytest.fixture(params=["zmq-ipc", "zmq-inline", "zmq-tcp", "portal"])
def link(request, tmp_path):
    with contextlib.ExitStack() as stack:
        yield make_link(request.param, tmp_path, stack)


@pytest.fixture(params=["zmq-ipc", "zmq-tcp", "portal"])
def threaded_link(request, tmp_path):
    """For tests with several calls in flight, which inline clients are not meant for."""
    with contextlib.ExitStack() as stack:
        yield make_link(request.param, tmp_path, stack)
