"""bsuite's experiments, named EXPERIMENT/NUMBER, with what they record (such as the regret) as `log/` keys."""

import inspect

import elements
import numpy as np
from bsuite import sweep
from bsuite.bsuite import EXPERIMENT_NAME_TO_ENVIRONMENT as EXPERIMENTS

from dreamfleet.base.keys import LOG_PREFIX
from dreamfleet.envs.adapt import fit
from dreamfleet.envs.contract import Act, Env, Obs
from dreamfleet.envs.dm_env import FromDmEnv
from dreamfleet.envs.suites.names import check_name
from dreamfleet.envs.wrappers import Wrapper


def make_bsuite(name: str, seed: int, options: None) -> Env:
    """An experiment with the settings of its number; the seed changes chance, not the task."""
    check_name("bsuite", name, sweep.SETTINGS)
    load = EXPERIMENTS[name.partition("/")[0]]
    settings = dict(sweep.SETTINGS[name])
    if "seed" in inspect.signature(load).parameters:
        settings["seed"] = seed % 2**32
    env = load(**settings)
    return Records(fit(FromDmEnv(env)), env)


class Records(Wrapper):
    """Adds the numbers that an experiment keeps about itself."""

    def __init__(self, env: Env, experiment):
        super().__init__(env)
        self._read = experiment.bsuite_info
        logs = {f"{LOG_PREFIX}{name}": elements.Space(np.float32) for name in self._read()}
        self._space = env.obs_space | logs

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return self._space

    def step(self, action: Act) -> Obs:
        obs = self.env.step(action)
        return {**obs, **{f"{LOG_PREFIX}{name}": np.float32(value) for name, value in self._read().items()}}
