"""The public functions of a parallel run, under the names that they are documented with."""

from dreamfleet.launch.combined import combined, parallel_envs
from dreamfleet.roles.actor.role import parallel_actor
from dreamfleet.roles.agent import parallel_agent
from dreamfleet.roles.env import parallel_env
from dreamfleet.roles.learner.batches import parallel_stream
from dreamfleet.roles.learner.role import parallel_learner
from dreamfleet.roles.logger import parallel_logger
from dreamfleet.roles.replay.role import parallel_replay

__all__ = [
    "combined",
    "parallel_actor",
    "parallel_agent",
    "parallel_env",
    "parallel_envs",
    "parallel_learner",
    "parallel_logger",
    "parallel_replay",
    "parallel_stream",
]
