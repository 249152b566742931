"""Replay: the contract, the store, the limiter and the streams. NumPy only."""

from dreamfleet.replay.contract import Batch, Replay
from dreamfleet.replay.limiter import Limiter
from dreamfleet.replay.store import Store
from dreamfleet.replay.streams import consecutive_batches

__all__ = ["Batch", "Limiter", "Replay", "Store", "consecutive_batches"]
