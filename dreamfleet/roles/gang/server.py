"""Where a gang meets, in the agent process of replica 0: who is there, the barrier before each update, and the end.

One life of that process is one generation of the gang. A member that is lost breaks it: all start again together.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dreamfleet.errors import BadRequest
from dreamfleet.roles import protocol
from dreamfleet.roles.protocol import GangJoin, GangNews, GangPlace, GangSign

LOST_S = 10.0  # without a sign of a member
LOOK_S = 2.0  # the most that counts between two looks: this process may have been stopped itself


@dataclass
class Member:
    """One replica, as long as its process lives."""

    host: str
    owner: str  # whoever restarts it
    session: str
    silent_s: float = 0.0
    signs: int = 0
    update: int = -1  # that it has come to
    has_heard: bool = False  # that the gang is over


class GangServer:
    """What the members ask for; every method may block for as long as its message says."""

    def __init__(self, replicas: int, generation: int, settings: dict[str, str], find_port: Callable[[], int]):
        self._replicas, self._generation, self._settings = replicas, generation, settings
        self._find_port = find_port  # for what the agents have to say to each other
        self._port = 0  # until all are there
        self._members: dict[int, Member] = {}
        self._rivals: dict[str, int] = {}  # sessions that want a place which is taken, with the signs of who has it
        self._released = -1  # the last update that all may make
        self._verdict, self._by = "", 0
        self._broken = ""
        self._looked = time.monotonic()
        self._changed = threading.Condition()

    def methods(self) -> dict[str, Callable[[Any], dict]]:
        """What the server answers to, as functions of data."""

        def answer(ask: Callable[[GangSign], GangNews]) -> Callable[[Any], dict]:
            return lambda data: ask(GangSign.from_data(data)).to_data()

        return {
            protocol.GANG_JOIN: lambda data: self.join(GangJoin.from_data(data)).to_data(),
            protocol.GANG_WATCH: answer(self.watch),
            protocol.GANG_PASS: answer(self.pass_barrier),
            protocol.GANG_END: answer(self.end),
        }

    def join(self, request: GangJoin) -> GangPlace:
        """A place in the gang, as soon as every replica has asked for one; refuses those that do not fit."""
        self._check(request)
        with self._changed:
            self._look()
            if self._admit(request):
                self._wait(lambda: self._port > 0, request.wait_s)
                self._note(request.session)
            missing = tuple(number for number in range(self._replicas) if number not in self._members)
            is_in = any(member.session == request.session for member in self._members.values())
            is_pending = not (is_in and self._port) or bool(self._broken)
            return GangPlace(is_pending, self._generation, self._port, missing)

    def watch(self, sign: GangSign) -> GangNews:
        """What is new: that the gang is over, or broken."""
        with self._changed:
            self._look()
            if self._note(sign.session):
                self._wait(lambda: bool(self._verdict or self._broken), sign.wait_s)
            return self._tell(sign)

    def pass_barrier(self, sign: GangSign) -> GangNews:
        """Whether the update may be made: by all members, or by none."""
        with self._changed:
            if member := self._note(sign.session):
                member.update = max(member.update, sign.update)
                self._release()
                self._wait(lambda: self._released >= sign.update or bool(self._verdict or self._broken), sign.wait_s)
            return self._tell(sign)

    def end(self, sign: GangSign) -> GangNews:
        """Ends the gang for all, with the verdict of the first who says so."""
        with self._changed:
            if self._note(sign.session) and not self._verdict:
                self._verdict, self._by = sign.verdict, self._number(sign.session)
                self._changed.notify_all()
            return self._tell(sign)

    def wait_heard(self, timeout_s: float) -> bool:
        """Waits until all members know that the gang is over."""
        with self._changed:
            return self._changed.wait_for(lambda: all(m.has_heard for m in self._members.values()), timeout_s)

    def _check(self, request: GangJoin) -> None:
        if request.replica >= self._replicas:
            raise BadRequest(f"there is no replica {request.replica} in a gang of run.replicas={self._replicas}")
        ours, theirs = self._settings, request.settings
        names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
        if names:
            shown = ", ".join(
                f"{n} is {theirs.get(n, 'missing')} there and {ours.get(n, 'missing')} here" for n in names[:5]
            )
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            who = f"replica {request.replica} on {request.host} does not fit replica 0"
            raise BadRequest(f"{who}: {shown}{more}: start all with the same options and versions")

    def _admit(self, request: GangJoin) -> bool:
        """Gives a process its place, which may be that of one that died."""
        member = self._members.get(request.replica)
        if member and member.session == request.session:
            return True
        if member and member.owner != request.owner and not self._broken:
            self._refuse_if_alive(member, request)
            return False
        if member and self._port:  # its supervisor has restarted it
            self._break(request.replica)
            return False
        self._members[request.replica] = Member(request.host, request.owner, request.session)
        if len(self._members) == self._replicas and not self._port:
            self._port = self._find_port()
        self._changed.notify_all()
        return True

    def _refuse_if_alive(self, member: Member, request: GangJoin) -> None:
        """Refuses a second process for a replica as soon as the first gives a sign."""
        seen = self._rivals.setdefault(request.session, member.signs)
        if member.signs > seen + 1:
            taken = f"replica {request.replica} of this gang is on {member.host}, and another on {request.host}"
            raise BadRequest(f"{taken}: give each its own --run.replica")

    def _note(self, session: str) -> Member | None:
        """Takes a sign of life."""
        for member in self._members.values():
            if member.session == session:
                member.silent_s, member.signs = 0.0, member.signs + 1
                return member
        return None

    def _number(self, session: str) -> int:
        return next(number for number, member in self._members.items() if member.session == session)

    def _look(self) -> None:
        """Notices who has been silent for too long: it is forgotten before the start, and breaks the gang after it."""
        now = time.monotonic()
        passed_s, self._looked = min(now - self._looked, LOOK_S), now
        for number, member in list(self._members.items()):
            member.silent_s += passed_s
            if member.silent_s > LOST_S and not self._verdict:
                if self._port:
                    self._break(number)
                else:
                    del self._members[number]

    def _break(self, number: int) -> None:
        if not self._broken and not self._verdict:
            self._broken = f"replica {number} on {self._members[number].host} was lost"
            self._changed.notify_all()

    def _release(self) -> None:
        least = min(member.update for member in self._members.values())
        if least > self._released and not (self._verdict or self._broken):
            self._released = least
            self._changed.notify_all()

    def _tell(self, sign: GangSign) -> GangNews:
        member = next((m for m in self._members.values() if m.session == sign.session), None)
        if member is None or sign.generation != self._generation:
            return GangNews(broken="replica 0 was restarted")
        # An update that others may have begun is made, whatever came after that.
        may_update = sign.update >= 0 and self._released >= sign.update
        if self._verdict and not may_update:
            member.has_heard = True
            self._changed.notify_all()
        return GangNews(may_update, "" if may_update else self._verdict, self._by, self._broken)

    def _wait(self, is_there: Callable[[], bool], wait_s: float) -> None:
        self._changed.wait_for(is_there, min(wait_s, LOOK_S))
