"""JAX for tests: four devices, quick compilation instead of quick programs; set before anything imports it."""

import os
import tempfile
from pathlib import Path

FLAGS = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
if FLAGS not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"dreamfleet-test-jax-{os.getuid()}")
)

from dreamfleet.agent import imagination, rssm  # noqa: E402

# Loops that are not unrolled compile in half the time.
imagination.UNROLL = rssm.OBSERVE_UNROLL = 1
