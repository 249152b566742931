"""A replica's side of the gang: joins it, passes its barrier before each update, and hears of its end and of losses."""

import importlib.metadata
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from typing import Protocol

import dreamfleet
from dreamfleet import lifecycle, rpc
from dreamfleet.agent.contract import ReplicaPlace
from dreamfleet.base import waits
from dreamfleet.base.addresses import AUTO, Address, join_host
from dreamfleet.errors import BadRequest, DeadlineExceeded, DreamfleetError, ReplicaLost, RpcError
from dreamfleet.options import RoleOptions, key_file
from dreamfleet.roles.gang.server import LOST_S, GangServer
from dreamfleet.roles.hello import owner_of, refused
from dreamfleet.roles.protocol import (
    GANG_END,
    GANG_JOIN,
    GANG_PASS,
    GANG_WATCH,
    VERSION,
    GangJoin,
    GangNews,
    GangPlace,
    GangSign,
)
from dreamfleet.rpc.addresses import connect_host, listen_host

log = logging.getLogger("dreamfleet.gang")

WAIT_S = 1.0  # how long the gang holds a request that it has no answer to yet
FAREWELL_S = 5.0  # for the others to hear that the gang is over
COMPLETE, STOPPED = "complete", "stopped"


class Desk(Protocol):
    """Where a gang meets: in this process, or in that of replica 0."""

    def join(self, request: GangJoin) -> GangPlace: ...

    def watch(self, sign: GangSign) -> GangNews: ...

    def pass_barrier(self, sign: GangSign) -> GangNews: ...

    def end(self, sign: GangSign) -> GangNews: ...

    def wait_heard(self, timeout_s: float) -> bool: ...


class RemoteDesk:
    """The desk of a gang whose replica 0 is elsewhere."""

    def __init__(self, client: rpc.Client):
        self._client = client

    def join(self, request: GangJoin) -> GangPlace:
        return GangPlace.from_data(self._call(GANG_JOIN, request, 2 * WAIT_S))

    def watch(self, sign: GangSign) -> GangNews:
        return GangNews.from_data(self._call(GANG_WATCH, sign))

    def pass_barrier(self, sign: GangSign) -> GangNews:
        return GangNews.from_data(self._call(GANG_PASS, sign))

    def end(self, sign: GangSign) -> GangNews:
        return GangNews.from_data(self._call(GANG_END, sign))

    def wait_heard(self, timeout_s: float) -> bool:
        return True  # those who have not are not waiting for this replica

    def _call(self, method: str, message: GangJoin | GangSign, deadline_s: float = LOST_S) -> dict:
        future, is_done = self._client.call(method, message.to_data(), deadline_s=deadline_s), threading.Event()
        future.add_done_callback(lambda _: is_done.set())
        is_done.wait(deadline_s)  # not as a wait that is shown: the watch is always in one
        return future.result(0.0)


def open_gang(options: RoleOptions) -> "Gang":
    """The gang that the options name; replica 0 serves it from here on."""
    access = {"protocol": VERSION, "key_file": key_file(options)}
    if options.replica:
        client = rpc.make_client(options.gang, f"replica{options.replica}", peer="gang", max_inflight=4, **access)
        return Gang(RemoteDesk(client), options, client.close)
    desk = GangServer(options.replicas, lifecycle.incarnation(), shared_settings(options), lambda: find_port(options))
    server = rpc.make_server(options.gang, "gang", **access)
    bind_desk(server, desk, options.replicas)
    server.start()
    return Gang(desk, options, server.close)


def bind_desk(server: rpc.Server, desk: GangServer, replicas: int) -> None:
    """Has a server answer for a desk; each member may be waiting in one call of each method."""
    for method, handle in desk.methods().items():
        server.bind(method, handle, workers=replicas)


def shared_settings(options: RoleOptions) -> dict[str, str]:
    """What has to be the same in all replicas."""
    versions = {"dreamfleet": dreamfleet.__version__, "jax": importlib.metadata.version("jax")}
    return {**options.shared, **versions}


def find_port(options: RoleOptions) -> int:
    """A free port on the gang's host."""
    host = Address.parse(options.gang, "run.gang").host or "localhost"
    return Address.parse(rpc.resolve_addr(join_host(host, AUTO), "zmq")).port


class Gang:
    """One replica among the others, from its start to its end or to the loss of another."""

    def __init__(
        self,
        desk: Desk,
        options: RoleOptions,
        close: Callable[[], None],
        leave: Callable[[ReplicaLost], None] | None = None,
    ):
        self._desk, self._options, self._close = desk, options, close
        self._leave = leave or end_process
        self._session = uuid.uuid4().hex
        self._generation = 0
        self._is_over = threading.Event()
        self._losing = threading.Lock()

    def join(self) -> ReplicaPlace | None:
        """Waits for the other replicas; None if the process is asked to stop before they are there."""
        request = GangJoin(
            replica=self._options.replica,
            session=self._session,
            owner=owner_of(self._options),
            host=socket.gethostname()[:64],
            settings=shared_settings(self._options),
            wait_s=WAIT_S,
        )
        missing: tuple[int, ...] = (0,)
        while not lifecycle.stopping():
            with lifecycle.waiting(waits.REPLICAS(missing=", ".join(map(str, missing)))):
                place = self._ask_for_place(request)
            if place and not place.is_pending:
                return self._begin(place)
            missing = place.missing if place else (0,)
        return None

    def meet(self) -> bool:
        """Waits until all are ready to share their state; not so if the run is over before."""
        return self._pass(0)

    def may_update(self, update: int) -> bool:
        """Whether an update is to be made, which all make then; else the run is over."""
        return self._pass(update + 1)

    def _pass(self, barrier: int) -> bool:
        with lifecycle.waiting(waits.BARRIER()):
            while not self._is_over.is_set():
                news = self._hear(lambda: self._desk.pass_barrier(self._sign(update=barrier)))
                if news and news.may_update:
                    return True
        return False

    def end(self, verdict: str) -> None:
        """Tells the others that the run is over."""
        if not self._is_over.is_set():
            self._hear(lambda: self._desk.end(self._sign(verdict=verdict)))

    def explain(self, error: BaseException) -> None:
        """Waits for whether a failed update is due to the loss of a replica; if it is, this process ends here."""
        if isinstance(error, Exception) and not isinstance(error, DreamfleetError):
            log.info("an update failed, perhaps because of another replica: %s", str(error).partition("\n")[0])
            self._is_over.wait(2 * LOST_S)

    def close(self) -> None:
        """Leaves the gang, after the others have heard that it is over."""
        if self._is_over.is_set():
            self._desk.wait_heard(FAREWELL_S)
        self._is_over.set()
        self._close()

    def _ask_for_place(self, request: GangJoin) -> GangPlace | None:
        try:
            return self._desk.join(request)
        except BadRequest as error:
            raise refused(error) from None
        except RpcError:
            return None  # replica 0 is away, or starting again

    def _begin(self, place: GangPlace) -> ReplicaPlace:
        self._generation = place.generation
        log.info("all %d replicas are there: generation %d", self._options.replicas, place.generation)
        lifecycle.spawn(self._watch, name="gang")
        host = Address.parse(self._options.gang, "run.gang").host
        coordinator = join_host(connect_host(host), place.port)
        listen = "" if self._options.replica else join_host(listen_host(host), place.port)
        return ReplicaPlace(self._options.replica, self._options.replicas, coordinator, listen)

    def _watch(self) -> None:
        """Hears of the end and of losses, also while an update is stuck for want of a replica."""
        while not self._is_over.is_set():
            self._hear(lambda: self._desk.watch(self._sign()))

    def _sign(self, update: int = -1, verdict: str = "") -> GangSign:
        return GangSign(self._session, self._generation, WAIT_S, update, verdict)

    def _hear(self, ask: Callable[[], GangNews]) -> GangNews | None:
        """Asks for news and acts on them."""
        try:
            news = ask()
        except RpcError as error:
            late = " (no answer)" if isinstance(error, DeadlineExceeded) else ""
            self._lose(f"replica 0 at {self._options.gang} was lost{late}")
            return None
        if news.broken:
            self._lose(news.broken)
        elif news.verdict:
            self._finish(news)
        return news

    def _finish(self, news: GangNews) -> None:
        with self._losing:
            if self._is_over.is_set():
                return
            if news.verdict == COMPLETE:
                lifecycle.note_complete()
                lifecycle.request_stop()
            elif news.by != self._options.replica:
                log.warning("replica %d was stopped: stopping", news.by)
                lifecycle.ask_stop(f"replica {news.by}")
            self._is_over.set()  # last, as the learner returns then: how the run ended is known

    def _lose(self, reason: str) -> None:
        with self._losing:  # the first to notice says so
            if not self._is_over.is_set():
                self._leave(ReplicaLost(f"{reason}; going on from the last checkpoint"))
                self._is_over.set()


def end_process(error: ReplicaLost) -> None:
    """Tells the supervisor why, and ends the process, whatever its threads are stuck in."""
    lifecycle.fail(error)
    os._exit(1)
