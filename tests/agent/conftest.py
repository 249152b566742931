"""JAX with four devices for the tests of the agent."""

import pytest

from tests import quick_jax

quick_jax.set_up()

import jax  # noqa: E402

from dreamfleet.agent.dreamer import imagination  # noqa: E402
from dreamfleet.agent.dreamer.networks import rssm  # noqa: E402

jax.config.update("jax_num_cpu_devices", 4)  # of this process: fleets that other tests start have the real ones

SHIPPED_UNROLL = {"imagination": imagination.UNROLL, "observe": rssm.OBSERVE_UNROLL}
# Loops that are not unrolled compile in half the time; `test_reference.py` compares both forms.
imagination.UNROLL = rssm.OBSERVE_UNROLL = 1


@pytest.fixture
def unrolled(monkeypatch):
    """The loops as they are shipped."""
    monkeypatch.setattr(imagination, "UNROLL", SHIPPED_UNROLL["imagination"])
    monkeypatch.setattr(rssm, "OBSERVE_UNROLL", SHIPPED_UNROLL["observe"])
