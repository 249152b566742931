"""Makes the injector of the benchmark, which the tests share, importable from wherever pytest is started."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(autouse=True)
def real_devices(monkeypatch):
    """Fleets see the devices that there are, and not the ones that the tests of the agent ask JAX to make up."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
