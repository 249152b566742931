"""What the servers that speak our own messages share."""

import abc
import threading
from typing import Any

from dreamfleet.errors import BadRequest
from dreamfleet.rpc import codec, wire
from dreamfleet.rpc.messages import Request
from dreamfleet.rpc.server import Server
from dreamfleet.rpc.wakeup import Wakeup

ENGINE_LIMIT = codec.MAX_BYTES + (1 << 20)  # larger messages end the connection; smaller ones get an answer
SEND_QUEUE = 4096  # answers that wait for one client to read them


class WireServer(Server):
    """Calls as messages of `wire`, however they travel; a request's origin is its client and its number there."""

    def __init__(self, addr: str, name: str, *, max_message_bytes: int, max_pending: int):
        super().__init__(addr, name, max_pending)
        self._max_bytes = max_message_bytes
        self._wakeup = Wakeup()
        self._reader = threading.Thread(target=self._read_loop, name=f"{name}-rpc-io", daemon=True)
        self._all_answered = threading.Event()  # workers have ended, so connections may be closed
        self._lock = threading.Lock()  # guards what is counted
        self._pending = 0  # requests read and not answered

    def wake(self) -> None:
        self._wakeup.set()

    def stats(self) -> dict[str, float]:
        return super().stats() | {"pending": self._pending}

    def open_request(self, request: Request) -> tuple[Any, dict[str, Any]]:
        frames, start = request.payload
        return wire.decode_payload(frames, self._max_bytes, start)

    def _hang_up(self) -> None:
        if self._reader.is_alive():
            self._all_answered.set()
            self.wake()
            self._join([self._reader])
        self._wakeup.close()

    @abc.abstractmethod
    def _read_loop(self) -> None:
        """Reads requests until the server is closed and `_all_answered` is set."""

    def _accept(self, client: Any, frames: list[Any]) -> None:
        """Takes a message of a client as a request, or answers it with an error."""
        self._bytes_in += sum(map(len, frames))
        request = Request("", (client, 0), None)
        try:
            version, kind, number, method, start = wire.read_envelope(memoryview(frames[0] if frames else b""))
            request.method, request.origin, request.payload = method, (client, number), (frames, start)
            if version != wire.VERSION or kind != wire.REQUEST:
                raise BadRequest(f"protocol {version} is not the protocol {wire.VERSION} of this server")
        except BadRequest as error:
            self.deliver([(request, self.make_failure(request, error))])
        else:
            self.dispatch(request)

    def _encode(self, request: Request, answer: Any) -> list[codec.Buffer]:
        number = request.origin[1]
        try:
            frames = wire.encode_answer(number, answer)
            if (size := sum(map(len, frames))) > self._max_bytes:
                raise ValueError(f"the reply has {size} bytes, above the limit of {self._max_bytes}")
        except Exception as error:
            return wire.encode_answer(number, self.make_failure(request, error))
        return frames

    def _drop_reply(self, *, is_stuck: bool) -> None:
        """Counts an answer to a client that is gone, or has stopped to read its answers."""
        self._counters.add("dropped_replies")
        if is_stuck:
            self._limited_log.warning("send", "dropped a reply to a client that does not read")
