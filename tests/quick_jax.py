"""JAX for tests: quick compilation instead of quick programs; to be set up before anything imports it."""

import os
import tempfile
from pathlib import Path


def set_up() -> None:
    """Sets the environment of this process, and of those that it starts."""
    flags = "--xla_backend_optimization_level=0"
    if flags not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    cache = Path(tempfile.gettempdir()) / f"dreamfleet-test-jax-{os.getuid()}"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
