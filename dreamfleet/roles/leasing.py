"""Environment workers whose numbers the policy server gives out."""

import contextlib
import logging
import reprlib
from collections.abc import Callable, Sequence

from dreamfleet import lifecycle
from dreamfleet.base.seeds import derive_seed, replica_seed, seed_process
from dreamfleet.errors import BadRequest, Closed, Disconnected, Refused, RunOver
from dreamfleet.options import Args, RoleOptions, read_args
from dreamfleet.roles.env import env_worker
from dreamfleet.roles.hello import owner_of, refused
from dreamfleet.roles.joining import find_patience
from dreamfleet.roles.protocol import LEASE, Lease, LeaseRequest
from dreamfleet.roles.wiring import connect

log = logging.getLogger("dreamfleet.env")

FIRST_LEASED = 1 << 32  # lives of leased numbers, beyond those that a supervisor counts


def leased_env_worker(make_env: bytes | Callable, env_ids: Sequence[int], args: Args, is_eval: bool = False) -> None:
    """`env_worker` with numbers of the run, in place of those that the worker's owner counts its environments by."""
    options = read_args(args)
    envs: Sequence[int] = ()
    refusal: Refused | None = None
    while lease := _ask_lease(options, env_ids, is_eval):
        if refusal and lease.envs == envs:
            raise refusal  # not because somebody else has these numbers now
        envs = lease.envs
        lifecycle.set_incarnation(FIRST_LEASED + lease.life)
        seed_process(
            derive_seed(replica_seed(options.seed, options.replica), "worker", envs[0], lifecycle.incarnation())
        )
        try:
            env_worker(make_env, envs, options, is_eval)
            return
        except Refused as error:
            refusal = error


def _ask_lease(options: RoleOptions, env_ids: Sequence[int], is_eval: bool) -> Lease | None:
    """The numbers of as many environments; None at a stop, and at the end of the run."""
    worker, patience = f"env{env_ids[0]}", find_patience(options)
    request = LeaseRequest(owner_of(options), worker, len(env_ids), is_eval).to_data()
    actor = connect(options, "actor", f"{worker}-lease", me="env", ends=True, threaded=False)
    with lifecycle.on_stop(actor.close), contextlib.closing(actor), contextlib.suppress(Closed):
        try:
            while patience.wait(actor):
                if actor.is_plain:  # a portal program gives out none
                    return Lease(tuple(env_ids), lifecycle.incarnation())
                with contextlib.suppress(Disconnected):
                    lease = Lease.from_data(actor.call(LEASE, request).result())
                    log.info("%s: numbers of its environments in the run: %s", worker, reprlib.repr(list(lease.envs)))
                    return lease
        except BadRequest as error:
            raise refused(error) from error
        except RunOver as over:
            log.info("%s: stopping", over)
    return None
