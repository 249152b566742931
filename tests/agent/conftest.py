"""JAX with four devices for the tests of the agent."""

from tests import quick_jax

quick_jax.set_up()

import jax  # noqa: E402

jax.config.update("jax_num_cpu_devices", 4)  # of this process: fleets that other tests start have the real ones
