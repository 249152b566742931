"""A plain client of the dashboard: what is sent is exactly what a test says."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.fleet import DEADLINE_S


def get(address: str, path: str, headers: dict | None = None, method: str = "GET", **query) -> tuple[int, bytes, dict]:
    """Status, body and headers of an answer."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE_S)
    try:
        target = f"{path}?{urlencode(query, doseq=True)}" if query else path
        connection.request(method, target, headers={"Host": parts.netloc, **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read(), {key.lower(): value for key, value in answer.getheaders()}
    finally:
        connection.close()


def ask(address: str, path: str, **query) -> Any:
    """The answer to a question that has one."""
    status, body, _ = get(address, f"/api/{path}", **query)
    assert status == 200, (status, body)
    return json.loads(body)


class Events:
    """A stream of server-sent events."""

    def __init__(self, address: str, headers: dict | None = None, **query):
        parts = urlsplit(address)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE_S)
        self._connection.request("GET", f"/api/events?{urlencode(query, doseq=True)}", headers=headers or {})
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        self.last_id = ""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        name = ""
        while line := self._answer.readline():
            key, _, value = line.decode().rstrip("\n").partition(": ")
            if key == "event":
                name = value
            elif key == "id":
                self.last_id = value
            elif key == "data":
                yield name, json.loads(value)

    def wait(self, name: str, condition=lambda _: True) -> Any:
        """The next event of a name that fulfils a condition."""
        return next(data for event, data in self if event == name and condition(data))

    def close(self) -> None:
        # The answer reads from the socket on its own: both ends have to go.
        self._answer.close()
        self._connection.close()

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def send_raw(address: str, data: bytes, wait: bool = True) -> bytes:
    """Sends bytes as they are; returns what comes back until the server closes, or what came at first."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=DEADLINE_S) as connection:
        connection.sendall(data)
        if not wait:
            return b""
        connection.shutdown(socket.SHUT_WR)
        try:
            return connection.recv(1 << 16)
        except OSError:
            return b""
