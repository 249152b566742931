"""The tasks, and the ways to run them. Each run takes at most 40 minutes on two cores."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Task:
    """What is trained: options of `dreamfleet train`, and the steps at which the return is read."""

    options: dict[str, object]
    steps: int
    points: tuple[int, ...]
    presets: tuple[str, ...] = ("tiny",)

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
EVERY_10K = (10_000, 20_000, 30_000, 40_000, 50_000, 60_000)

TASKS = {
    "cartpole": Task({"task": "gym_CartPole-v1"}, 60_000, EVERY_10K),
    "cartpole_reference": Task({"task": "gym_CartPole-v1", **REFERENCE}, 60_000, EVERY_10K),
    "acrobot": Task({"task": "gym_Acrobot-v1"}, 40_000, (10_000, 20_000, 30_000, 40_000)),
    "minigrid_memory": Task({"task": "minigrid_MemoryS7-v0"}, 40_000, (10_000, 20_000, 30_000, 40_000)),
    "bsuite_catch": Task({"task": "bsuite_catch/0"}, 20_000, (5_000, 10_000, 15_000, 20_000)),
    "bsuite_memory": Task({"task": "bsuite_memory_len/3"}, 20_000, (5_000, 10_000, 15_000, 20_000)),
    "dmc_swingup": Task({"task": "dmc_cartpole_swingup", "env.dmc.image": False}, 60_000, EVERY_10K),
    "dmc_reacher": Task({"task": "dmc_reacher_easy", "env.dmc.image": False}, 60_000, EVERY_10K),
    "image": Task({"task": "dreamfleet.testing.probes:ImageCue"}, 6_000, (2_000, 4_000, 6_000)),
}
VARIANTS = {
    "fleet": Variant(),
    "serial": Variant({"run.mode": "serial"}),
    "portal": Variant({"run.transport": "portal"}),
    "resumed": Variant(resumes=5),
    "killed": Variant({"run.save_every": 20.0}, kill_every_s=30.0),
}
