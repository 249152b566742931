"""The tasks, and the ways to run them. Each run takes at most 40 minutes on two cores."""

import math
from dataclasses import dataclass, field

from dreamfleet.results.curves import SCORE
from dreamfleet.testing import PROBES


@dataclass(frozen=True)
class Task:
    """What is trained: options of `dreamfleet train`, and the steps at which the return is read."""

    options: dict[str, object]
    steps: int
    points: tuple[int, ...]
    presets: tuple[str, ...] = ("tiny",)
    score: str = SCORE
    bar: float = -math.inf  # that the last point has to be above

    @property
    def window(self) -> int:
        """Steps before a point whose episodes count for it."""
        return self.points[0] // 2


@dataclass(frozen=True)
class Variant:
    """How a task is run: further options, how often it is stopped and resumed, and how often a role is killed."""

    options: dict[str, object] = field(default_factory=dict)
    resumes: int = 0
    kill_every_s: float = 0.0


# The settings of the recorded curves: the reference's defaults at a size for one core, without our sampling of recent
# data, its learning rate, and no decay.
REFERENCE = {
    "replay.uniform": 1.0,
    "replay.recency": 0.0,
    "replay.online": True,
    "dreamer.learning_rate": 3e-4,
    "dreamer.decay": 0,
    "dreamer.horizon": 333,
    "dreamer.slow_rate": 0.02,
    "dreamer.entropy_scale": 3e-4,
}
PROBE = {"batch_length": 16, "report_length": 8, "dreamer.learning_rate": 1e-3, "run.report_every": 0}
PROBE_STEPS = {"onestep": 3000, "delayed": 6000, "memory": 10000, "continuous": 9000, "hybrid": 9000, "image": 3000}
GREEDY = {"run.eval_envs": 1, "dreamer.greedy_eval": True}


def make_probe(name: str) -> Task:
    """A probe, of whose scores the last quarter has to be at four fifths of the way from random to best."""
    probe, steps = PROBES[name], PROBE_STEPS[name]
    options = {"task": f"{probe.__module__}:{probe.__name__}", **PROBE}
    bar = probe.random_score + 0.8 * (probe.best_score - probe.random_score)
    points = (steps // 2, steps)
    if name == "continuous":
        # The policy's spread has a lower limit, which alone costs 0.08 of this reward: its centre is the answer.
        return Task({**options, **GREEDY}, steps, points, score="eval_episode/score", bar=bar)
    return Task(options, steps, points, bar=bar)


# The preset `demo`, and what it is with one of its settings as in `tiny`.
DEMO = {
    "demo": {},
    "demo_reconstruction": {"dreamer.loss_scales.reconstruction": 1.0},
    "demo_recency": {"replay.uniform": 0.5, "replay.recency": 0.5},
    "demo_rate": {"dreamer.learning_rate": 4e-4, "dreamer.decay": 6000},
    "demo_no_decay": {"dreamer.decay": 0},
}
EVERY_10K = (10_000, 20_000, 30_000, 40_000, 50_000, 60_000)

TASKS = {
    "cartpole": Task({"task": "gym_CartPole-v1"}, 60_000, EVERY_10K),
    "cartpole_reference": Task({"task": "gym_CartPole-v1", **REFERENCE}, 60_000, EVERY_10K),
    "acrobot": Task({"task": "gym_Acrobot-v1"}, 40_000, (10_000, 20_000, 30_000, 40_000)),
    "minigrid_memory": Task({"task": "minigrid_MemoryS7-v0"}, 40_000, (10_000, 20_000, 30_000, 40_000)),
    "bsuite_catch": Task({"task": "bsuite_catch/0"}, 20_000, (5_000, 10_000, 15_000, 20_000)),
    "bsuite_memory": Task({"task": "bsuite_memory_len/3"}, 20_000, (5_000, 10_000, 15_000, 20_000)),
    "dmc_swingup": Task({"task": "dmc_cartpole_swingup", "env.dmc.image": False}, 60_000, EVERY_10K),
    "dmc_swingup_reference": Task(
        {"task": "dmc_cartpole_swingup", "env.dmc.image": False, **REFERENCE}, 60_000, EVERY_10K
    ),
    "dmc_reacher": Task({"task": "dmc_reacher_easy", "env.dmc.image": False}, 60_000, EVERY_10K),
    "image": Task({"task": "dreamfleet.testing.probes:ImageCue"}, 6_000, (2_000, 4_000, 6_000)),
    **{name: Task(options, 28_000, (7_000, 14_000, 21_000, 28_000), ("demo",)) for name, options in DEMO.items()},
    **{f"probe_{name}": make_probe(name) for name in PROBES},
}
VARIANTS = {
    "fleet": Variant(),
    "serial": Variant({"run.mode": "serial"}),
    "portal": Variant({"run.transport": "portal"}),
    "resumed": Variant(resumes=5),
    "killed": Variant({"run.save_every": 20.0}, kill_every_s=30.0),
}
