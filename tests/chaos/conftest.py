"""Fleets of the chaos tests see the real devices of the machine."""

import pytest


@pytest.fixture(autouse=True)
def real_devices(monkeypatch):
    """Fleets see the devices that there are, and not the ones that the tests of the agent ask JAX to make up."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
