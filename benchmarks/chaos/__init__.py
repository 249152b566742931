"""Faults injected into a real fleet: `python -m benchmarks.chaos`; the tests in tests/chaos use the same parts."""
