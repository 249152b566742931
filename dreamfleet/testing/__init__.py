"""Fakes that check what they are given and probe environments with known answers, for tests of anything in a fleet."""

from dreamfleet.testing.counting import CountingAgent, CountingEnv, check_sequences, expected_action
from dreamfleet.testing.probes import (
    PROBES,
    ContinuousTarget,
    DelayedReward,
    HybridAction,
    ImageCue,
    MemoryCue,
    OneStepReward,
    Probe,
)

__all__ = [
    "PROBES",
    "ContinuousTarget",
    "CountingAgent",
    "CountingEnv",
    "DelayedReward",
    "HybridAction",
    "ImageCue",
    "MemoryCue",
    "OneStepReward",
    "Probe",
    "check_sequences",
    "expected_action",
]
