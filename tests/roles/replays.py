"""Replay roles in the process of the test, and rows for them."""

import os

import numpy as np

from dreamfleet.replay import consecutive_batches
from dreamfleet.replay.references import reader_place
from dreamfleet.roles.protocol import BatchMark, ReaderPlace, ReplayCounts
from dreamfleet.roles.replay.role import ReplayRole

LENGTH = 9
HERE = ReaderPlace.from_meta(reader_place())
NEAR = ReaderPlace(HERE.boot, os.getpid() + 1)


def make_stream(replay, mode):
    return consecutive_batches(replay, mode, batch_size=4, length=8, consec=1, context=1)


def make_batch(numbers, is_eval=False, env_ids=None):
    count = len(numbers)
    return {
        "envid": np.zeros(count, np.int64) if env_ids is None else np.array(env_ids),
        "is_eval": np.broadcast_to(np.array(is_eval), count).copy(),
        "n": np.array(numbers, np.int64),
        "is_first": np.array(numbers) == 0,
        "is_last": np.zeros(count, bool),
    }


def send(role: ReplayRole, numbers, sequence, actor="me", **kwargs) -> ReplayCounts:
    reply = role.add_batch(make_batch(numbers, **kwargs), BatchMark(actor, sequence).to_meta())
    return ReplayCounts.from_meta(reply.meta)


def kept(role, mode="train"):
    rows = role._own[mode].replay._rows
    numbers = [s.columns["n"][s.numbers > 0] for s in rows.pool.live.values()] if rows else [[]]
    return sorted(int(n) for part in numbers for n in part)
