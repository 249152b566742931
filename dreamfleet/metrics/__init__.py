"""Aggregation, episodes, writers and progress: what a run tells its user. The terminal is in `metrics.terminal`."""

from dreamfleet.metrics.aggregate import Aggregator, Rate
from dreamfleet.metrics.episodes import Episode, EpisodeTracker
from dreamfleet.metrics.progress import Progress, read_progress, write_progress
from dreamfleet.metrics.sections import Sections
from dreamfleet.metrics.writers import JsonlWriter, ScoreWriter, check_outputs, make_writers

__all__ = [
    "Aggregator",
    "Episode",
    "EpisodeTracker",
    "JsonlWriter",
    "Progress",
    "Rate",
    "ScoreWriter",
    "Sections",
    "check_outputs",
    "make_writers",
    "read_progress",
    "write_progress",
]
