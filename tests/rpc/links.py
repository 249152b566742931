"""A server and its clients, however they connect."""

import contextlib
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from dreamfleet import rpc

WAIT_S = 120.0  # what must happen happens much sooner; a test that needs this long has failed


def wait_until(condition):
    """Waits for what another thread brings about."""
    deadline, pause = time.monotonic() + WAIT_S, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it has not happened"
        pause.wait(0.002)


@dataclass
class Link:
    """How a server and its clients find each other in a test; closes everything that it made."""

    transport: str
    addr: str
    key_file: Path | None
    threaded: bool
    stack: contextlib.ExitStack

    def make_server(self, *, name="server", **options) -> rpc.Server:
        server = rpc.make_server(self.addr, name, transport=self.transport, key_file=self.key_file, **options)
        self.stack.callback(server.close)
        return server

    def make_client(self, *, addr=None, **options) -> rpc.Client:
        options = {"peer": "server", "threaded": self.threaded, "key_file": self.key_file, **options}
        client = rpc.make_client(addr or self.addr, "client", transport=self.transport, **options)
        self.stack.callback(client.close)
        return client

    def serve(self, **methods) -> rpc.Server:
        """A started server with plain methods."""
        server = self.make_server()
        for name, fn in methods.items():
            server.bind(name, fn)
        server.start()
        return server


def make_link(kind: str, tmp_path: Path, stack: contextlib.ExitStack) -> Link:
    """`kind` is local, local-inline, zmq or portal; what is local is what `auto` makes of `ipc:{auto}`."""
    transport = "auto" if kind.startswith("local") else kind
    addr = rpc.resolve_addr("ipc:{auto}", transport)
    stack.callback(rpc.remove_addr, addr)
    key_file = None
    if kind == "zmq":
        key_file = tmp_path / "run.key"
        rpc.make_key(key_file)
    return Link(transport, addr, key_file, kind != "local-inline", stack)
