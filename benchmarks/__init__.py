"""Measurements of ours and of a baseline in the same run: `python -m benchmarks.NAME --json FILE`."""
