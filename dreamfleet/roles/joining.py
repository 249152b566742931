"""How a worker waits for the policy server of the run that it belongs to, and what it says meanwhile."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from dreamfleet import lifecycle, rpc
from dreamfleet.errors import BadRequest, Unreachable
from dreamfleet.options import RoleOptions, key_file
from dreamfleet.roles.hello import refused
from dreamfleet.roles.wiring import Caller

log = logging.getLogger("dreamfleet.env")


@dataclass(frozen=True)
class Patience:
    """How long to wait, and what to say of why."""

    timeout_s: float = math.inf
    explain: Callable[[], str] | None = None
    first_remind_s: float = 5.0  # with an explanation
    remind_s: float = 60.0

    def wait(self, actor: Caller) -> bool:
        """Returns whether there is a connection, which there is not at a stop; raises why there will be none."""
        start = time.monotonic()
        pause_s = self.first_remind_s if self.explain else self.remind_s
        while not lifecycle.stopping():
            left_s = max(0.0, start + self.timeout_s - time.monotonic())
            try:
                if actor.wait_connected(min(pause_s, left_s)):
                    return True
            except BadRequest as e:
                raise refused(e) from e
            if lifecycle.stopping():
                break
            away_s = time.monotonic() - start
            if away_s >= self.timeout_s:
                reason = f"the policy server was not reachable for {self.timeout_s:.0f} s (run.join_timeout)"
                raise Unreachable(f"{reason}: is the run still there, and its address right?")
            why = f": {self.explain()}" if self.explain else ""
            log.warning("no policy server for %.0f s%s; trying on", away_s, why)
            pause_s = self.remind_s
        return False


def find_patience(options: RoleOptions) -> Patience:
    """That of a worker; for those of a fleet its supervisor decides."""
    if options.run_id:
        return Patience()
    addr, key = options.address("actor"), key_file(options)
    return Patience(options.join_timeout or math.inf, lambda: explain_absence(addr, key))


def explain_absence(addr: str, key: str) -> str:
    """What somebody who wants to join a run should look at."""
    if reason := rpc.find_obstacle(addr):
        return f"nothing answers at {addr} ({reason}): is the run there, and its address right?"
    return f"something listens at {addr}, but does not let us in: is {key} the key of that run, and has it started?"
