"""How many cases: a sample in every run of the tests, all of them under the marker `chaos`."""

import pytest

FEW, ALL = 0.02, 1.0


@pytest.fixture(params=[pytest.param(FEW, id="few"), pytest.param(ALL, id="all", marks=pytest.mark.chaos)])
def share(request) -> float:
    """The part of the cases that is tried."""
    return request.param
