"""Settings of all tests."""

import signal

import pytest
from hypothesis import HealthCheck, settings

from dreamfleet import lifecycle

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def no_thread_fails():
    """Fails a test in whose process a thread of a role died, unless it expects that and resets the lifecycle."""
    yield
    if error := lifecycle.failure():
        lifecycle.reset()
        raise AssertionError("a thread of a role failed") from error


@pytest.fixture
def failing_role():
    """For tests in which one does."""
    yield
    lifecycle.reset()


# Processes inherit which signals are ignored, as by a shell's background job or nohup; those under test heed them.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL if _number == signal.SIGHUP else signal.default_int_handler)
