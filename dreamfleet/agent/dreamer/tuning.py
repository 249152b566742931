"""What changes how fast programs compile and run, but not what they compute; no options, since nobody needs others."""

from typing import NamedTuple


class Tuning(NamedTuple):
    """As measured on CPUs. Loops that are not unrolled compile in half the time, which is what tests want."""

    observe_unroll: int = 4
    imagine_unroll: int = 5
    min_sharded: int = 2**14  # smaller parameters are kept whole on every device


SHIPPED = Tuning()
