"""One set of tests for every way to connect: the three engines, and the ways that each can be used."""

import contextlib

import pytest

from tests.rpc.links import make_link


@pytest.fixture(params=["local", "local-inline", "zmq", "portal"])
def link(request, tmp_path):
    with contextlib.ExitStack() as stack:
        yield make_link(request.param, tmp_path, stack)


@pytest.fixture(params=["local", "zmq", "portal"])
def threaded_link(request, tmp_path):
    """For tests with several calls in flight, which inline clients are not meant for."""
    with contextlib.ExitStack() as stack:
        yield make_link(request.param, tmp_path, stack)
