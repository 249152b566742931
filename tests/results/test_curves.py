"""How the runs of one setting become a curve."""

import numpy as np

from dreamfleet.results.curves import Curve, RunCurve, aggregate, make_edges


def test_aggregation():
    long = RunCurve(np.arange(1, 101) * 10.0, np.arange(1, 101) * 1.0)
    short = RunCurve(np.array([10.0, 500.0]), np.array([3.0, 3.0]))
    edges = make_edges([Curve("both", "task", [long, short])], 10)
    assert edges[-1] == 1000
    band = aggregate([long, short], edges)
    assert band.xs.tolist() == [50 + 100 * i for i in range(10)]
    assert band.mean[:5].tolist() == [(5.5 + 10 * i + 3) / 2 for i in range(5)], "a gap is filled in on a line"
    assert band.mean[5] == 55.5 and band.std[5] == 0, "a run counts as far as it went"
    third = aggregate([long, short, short], edges)
    assert len(third.xs) == 5, "the curve ends where most of its runs have ended"
