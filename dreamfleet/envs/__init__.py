"""Environments: the contract, the registry, adapters and the group that a worker steps."""

from dreamfleet.envs.contract import Act, Env, Obs, check_spaces, reset_action
from dreamfleet.envs.group import EnvGroup
from dreamfleet.envs.registry import make_env

__all__ = ["Act", "Env", "EnvGroup", "Obs", "check_spaces", "make_env", "reset_action"]
