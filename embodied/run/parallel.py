"""Import paths of the reference: `embodied.run.parallel` is `dreamfleet.parallel`."""

from dreamfleet.parallel import (
    combined,
    parallel_actor,
    parallel_agent,
    parallel_env,
    parallel_envs,
    parallel_learner,
    parallel_logger,
    parallel_replay,
)

__all__ = [
    "combined",
    "parallel_actor",
    "parallel_agent",
    "parallel_env",
    "parallel_envs",
    "parallel_learner",
    "parallel_logger",
    "parallel_replay",
]
