"""Environments: the contract, the registry, adapters and the group that a worker steps."""

from dreamfleet.envs.adapt import as_env
from dreamfleet.envs.contract import Act, Env, Obs, check_spaces, reset_action
from dreamfleet.envs.group import EnvGroup
from dreamfleet.envs.registry import check_task, make_env

__all__ = ["Act", "Env", "EnvGroup", "Obs", "as_env", "check_spaces", "check_task", "make_env", "reset_action"]
