"""Checkpoints on disk: atomic directories of checked parts, and which of them are kept."""

from dreamfleet.checkpoint.checkpoint import Checkpoint
from dreamfleet.checkpoint.container import check_tree
from dreamfleet.checkpoint.draft import Draft
from dreamfleet.checkpoint.store import Checkpoints

__all__ = ["Checkpoint", "Checkpoints", "Draft", "check_tree"]
