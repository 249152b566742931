"""JAX with four devices for the tests of the agent."""

from tests import quick_jax

quick_jax.set_up(devices=4)

from dreamfleet.agent.dreamer import imagination  # noqa: E402
from dreamfleet.agent.dreamer.networks import rssm  # noqa: E402

# Loops that are not unrolled compile in half the time.
imagination.UNROLL = rssm.OBSERVE_UNROLL = 1
