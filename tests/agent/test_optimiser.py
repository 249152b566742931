"""The step size over the updates of a run."""

import numpy as np
import pytest

from dreamfleet.agent.dreamer.optimiser import make_schedule


@pytest.mark.parametrize(
    "warmup, decay, rates",
    [
        (0, 0, {0: 2.0, 50: 2.0}),
        (4, 0, {0: 0.0, 1: 0.5, 4: 2.0, 50: 2.0}),
        (0, 10, {0: 2.0, 5: 1.1, 10: 0.2, 50: 0.2}),
        (4, 10, {0: 0.0, 2: 0.82, 5: 1.1, 50: 0.2}),
    ],
)
def test_schedule(warmup, decay, rates):
    schedule = make_schedule(2.0, warmup, decay)
    assert {count: np.asarray(schedule(count)).item() for count in rates} == pytest.approx(rates)
