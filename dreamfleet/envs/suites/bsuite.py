"""bsuite's experiments, named EXPERIMENT/NUMBER, with what they record (such as the regret) as `log/` keys.

An experiment ends the run after its own number of episodes.
"""

import inspect
from typing import Any

import elements
import numpy as np
from bsuite import sweep
from bsuite.bsuite import EXPERIMENT_NAME_TO_ENVIRONMENT as EXPERIMENTS

from dreamfleet.base.keys import LOG_PREFIX, RUN_OVER
from dreamfleet.envs.adapt import fit
from dreamfleet.envs.contract import Act, Env, Obs
from dreamfleet.envs.dm_env import FromDmEnv
from dreamfleet.envs.suites.bsuite_results import Results
from dreamfleet.envs.suites.names import check_name
from dreamfleet.envs.wrappers import Wrapper
from dreamfleet.options.env import BsuiteOptions


def check(suite: str, name: str) -> None:
    """Raises ConfigError for a name that the suite does not have."""
    check_name(suite, name, sweep.SETTINGS)


def make_bsuite(name: str, seed: int, options: BsuiteOptions) -> Env:
    """An experiment with the settings of its number; the seed changes chance, not the task."""
    check("bsuite", name)
    load = EXPERIMENTS[name.partition("/")[0]]
    settings = dict(sweep.SETTINGS[name])
    if "seed" in inspect.signature(load).parameters:
        settings["seed"] = seed % 2**32
    experiment = load(**settings)
    results = Results(options.results, name) if options.results else None
    return Records(fit(FromDmEnv(experiment)), experiment, sweep.EPISODES[name], results)


class Records(Wrapper):
    """Adds the numbers that an experiment keeps about itself, and hands them to its result file after each episode."""

    def __init__(self, env: Env, experiment: Any, episodes: int, results: Results | None):
        super().__init__(env)
        self._read = experiment.bsuite_info
        self._episodes = episodes
        self._results = results
        self._before = results.load() if results else {}  # what earlier processes of this run have counted
        self._counts = {"steps": 0, "episode": 0, "total_return": 0.0}
        self._episode = {"episode_len": 0, "episode_return": 0.0}
        logs = {f"{LOG_PREFIX}{name}": elements.Space(np.float32) for name in self._read()}
        self._space = env.obs_space | logs | {RUN_OVER: elements.Space(np.float32)}

    @property
    def obs_space(self) -> dict[str, elements.Space]:
        return self._space

    def step(self, action: Act) -> Obs:
        obs = self.env.step(action)
        self._count(obs)
        row = self._row()
        if self._results and obs["is_last"] and row["episode"] <= self._episodes:
            self._results.add(row)
        logs = {f"{LOG_PREFIX}{name}": np.float32(row[name]) for name in self._read()}
        return {**obs, **logs, RUN_OVER: np.float32(row["episode"] >= self._episodes)}

    def _count(self, obs: Obs) -> None:
        if obs["is_first"]:
            self._episode = {"episode_len": 0, "episode_return": 0.0}
            return
        reward = float(obs["reward"])
        self._episode["episode_len"] += 1
        self._episode["episode_return"] += reward
        self._counts["steps"] += 1
        self._counts["total_return"] += reward
        self._counts["episode"] += bool(obs["is_last"])

    def _row(self) -> dict[str, float]:
        """What a line of the result file says, over all processes that the experiment was run in."""
        totals = {**self._counts, **{name: float(value) for name, value in self._read().items()}}
        for name, before in self._before.items():
            if name in totals:
                totals[name] = max(totals[name], before) if name.startswith("best") else totals[name] + before
        return {**totals, **self._episode}
