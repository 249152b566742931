"""All options of a run, and the two selections of them that its parts are given."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dreamfleet.base.logdir import REPLAY
from dreamfleet.options.dreamer import DreamerOptions
from dreamfleet.options.env import EnvOptions
from dreamfleet.options.fields import flatten, option, section
from dreamfleet.options.jax import JaxOptions
from dreamfleet.options.logger import LoggerOptions
from dreamfleet.options.ray import RayOptions
from dreamfleet.options.replay import ReplayOptions
from dreamfleet.options.run import RunOptions


@dataclass(frozen=True)
class MainOptions:
    """What stands at the top, beside the sections."""

    task: str = option("", "environment, such as gym_CartPole-v1, atari_pong or module:attr; some presets name one")
    logdir: str = option(
        "~/logdir/{timestamp}", "log directory; naming one that exists resumes its run", can_change=True
    )
    seed: int = option(0, "random seed", at_least=0)
    agent: str = option("dreamfleet.agent.dreamer:Dreamer", "agent class as module:attr")
    batch_size: int = option(16, "batch size in sequences", at_least=1)
    batch_length: int = option(64, "sequence length in steps, without burn-in", at_least=1)
    report_length: int = option(32, "sequence length of reports", at_least=1)
    consec_train: int = option(1, "chunks per sequence (truncated BPTT)", at_least=1)
    consec_report: int = option(1, "chunks per sequence of reports", at_least=1)
    replay_context: int = option(1, "burn-in steps", at_least=0)

    @property
    def sequence_length(self) -> int:
        """Steps in a sampled sequence: the training chunks and their burn-in."""
        return self.consec_train * self.batch_length + self.replay_context


@dataclass(frozen=True)
class Options(MainOptions):
    """Every option of a run."""

    run: RunOptions = section(RunOptions)
    ray: RayOptions = section(RayOptions)
    replay: ReplayOptions = section(ReplayOptions)
    env: EnvOptions = section(EnvOptions)
    logger: LoggerOptions = section(LoggerOptions)
    dreamer: DreamerOptions = section(DreamerOptions)
    jax: JaxOptions = section(JaxOptions)

    @property
    def replay_directory(self) -> Path:
        """Where the steps are kept on disk, with a directory each for training and evaluation."""
        return Path(self.replay.directory or Path(self.logdir) / REPLAY).expanduser().absolute()


@dataclass(frozen=True)
class RoleOptions(MainOptions, RunOptions):
    """What a role is given: the section `run` and the options at the top, side by side as scripts pass `args`."""

    ray: RayOptions = section(RayOptions)
    action_repeat: int = 1  # frames that the environment takes in one step
    most_envs: int = 0  # that the replay has room for; 0 where that is not known
    run_id: str = ""  # of the run, where it is known
    owner: str = ""  # whoever started this process, where that is known
    shared: dict[str, str] = dataclasses.field(default_factory=dict)  # options in which all replicas agree

    def __post_init__(self) -> None:
        if self.is_offline:  # there is nothing that training could keep pace with
            object.__setattr__(self, "train_ratio", 0.0)

    @property
    def inference_batch(self) -> int:
        """Observations in one inference batch: never more than there are environments, where these are known."""
        batch = self.actor_batch if self.actor_batch > 0 else max(self.envs // 2, self.envs_per_worker)
        return max(1, batch if self.remote_envs else min(batch, self.envs + self.eval_envs))


@dataclass(frozen=True)
class AgentOptions(RoleOptions):
    """What an agent is built with: what roles are given, and the sections that concern agents."""

    replay: ReplayOptions = section(ReplayOptions)
    dreamer: DreamerOptions = section(DreamerOptions)
    jax: JaxOptions = section(JaxOptions)


R = TypeVar("R", bound=RoleOptions)

# Beside the section `dreamer`: what the replicas' common updates depend on.
SHARED = (
    *("task", "agent", "seed", "batch_size", "batch_length", "consec_train", "replay_context"),
    *("jax.precision", "jax.train_devices", "run.replicas"),
)


def shared_options(options: Options) -> dict[str, str]:
    """The options that have to be the same in all replicas, as text."""
    flat = {key: value for key, value in flatten(options).items() if key in SHARED or key.startswith("dreamer.")}
    return {key: str(value) for key, value in {**flat, "replay.priority": options.replay.priority > 0}.items()}


def role_options(options: Options, **facts: Any) -> RoleOptions:
    """The options of the roles; `facts` are those fields that no user sets."""
    return _select(RoleOptions, options, facts)


def agent_options(options: Options) -> AgentOptions:
    """The options that an agent is built with."""
    return _select(AgentOptions, options, {})


def _select(selection: type[R], options: Options, facts: dict[str, Any]) -> R:
    names = {field.name for field in dataclasses.fields(selection)}
    given = {**_fields(options), **_fields(options.run), **facts}
    return selection(**{name: value for name, value in given.items() if name in names})


def _fields(options: Options | RunOptions) -> dict[str, Any]:
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
