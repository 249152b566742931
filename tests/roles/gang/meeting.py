"""An agent whose replicas really need each other in every update, without the weight of JAX."""

import socket
import struct
import threading
from typing import Any, ClassVar

from dreamfleet import lifecycle
from dreamfleet.agent.contract import ReplicaPlace
from dreamfleet.agent.random import RandomAgent


class MeetingAgent(RandomAgent):
    """Sums the updates of two replicas over a socket; one that has lost the other is stuck, as on some devices."""

    link: ClassVar[socket.socket]
    place: ClassVar[ReplicaPlace]
    total = 0
    is_prepared = False

    @classmethod
    def join_replicas(cls, place: ReplicaPlace, options: Any) -> None:
        cls.place = place
        host, _, port = place.coordinator.rpartition(":")
        if place.replica == 0:
            with socket.create_server((host, int(port))) as server:
                cls.link, _ = server.accept()
        else:
            cls.link = connect(host, int(port))

    def share_state(self, numbers: tuple[float, ...]) -> tuple[float, ...]:
        self.total, *numbers = self.exchange(self.total, *numbers)[0]
        return tuple(numbers)

    def prepare_update(self, carry: tuple, data: Any) -> None:
        self.is_prepared = True

    def train(self, carry: tuple, data: Any) -> tuple[tuple, dict, dict]:
        assert self.is_prepared
        self.total += sum(values[0] for values in self.exchange(1.0))
        return carry, {}, {"loss": self.total}

    def save(self) -> dict:
        return {**super().save(), "total": self.total}

    def load(self, data: dict, regex: str | None = None) -> None:
        super().load(data, regex)
        self.total = data["total"]

    def exchange(self, *values: float) -> list[tuple[float, ...]]:
        """What each replica gave, in their order."""
        form = f"{len(values)}d"
        try:
            self.link.sendall(struct.pack(form, *values))
            received = self.link.recv(struct.calcsize(form), socket.MSG_WAITALL)
            both = [values, struct.unpack(form, received)]
        except (OSError, struct.error):
            threading.Event().wait()
            raise
        return both if self.place.replica == 0 else both[::-1]


class ClumsyAgent(MeetingAgent):
    """Its replica 1 fails to act in its first life, once it has been trained."""

    def policy(self, carry: tuple, obs: dict, mode: str = "train") -> tuple[tuple, dict, dict]:
        if self.place.replica == 1 and lifecycle.incarnation() == 0 and self.total:
            raise RuntimeError("stumbled")
        return super().policy(carry, obs, mode)


def connect(host: str, port: int) -> socket.socket:
    """Waits for the other side to listen."""
    while True:
        try:
            return socket.create_connection((host, port))
        except ConnectionRefusedError:
            threading.Event().wait(0.02)


class LoneAgent(RandomAgent):
    """Cannot be one of several."""
