"""Seeds of everything that is random, so that nothing draws the numbers of another, or its own once more."""

import hashlib
import random


def derive_seed(run_seed: int, role: str, index: int, incarnation: int, rebuild: int = 0) -> int:
    """The 32-bit seed of one incarnation: the first four bytes of BLAKE2b over `run_seed/role/index/incarnation`.

    What is built again within an incarnation has the number of the rebuild at the end.
    """
    text = f"{run_seed}/{role}/{index}/{incarnation}" + (f"/{rebuild}" if rebuild else "")
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


def replica_seed(run_seed: int, replica: int) -> int:
    """What the seeds of one of several replicas are derived from; all of them have the same agent, but not its data."""
    return derive_seed(run_seed, "replica", replica, 0) if replica else run_seed


def seed_process(seed: int) -> None:
    """Seeds the generators that all code in a process shares."""
    import numpy as np  # here, where a broken installation is reported like any other failure of a role

    random.seed(seed)
    np.random.seed(seed)
