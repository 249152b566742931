"""Checks an environment before anybody trains on it; called by `dreamfleet check-env`, from Python and before a run."""

import contextlib
import hashlib
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import elements
import numpy as np
import psutil

from dreamfleet.base.arrays import Batch
from dreamfleet.base.keys import without_logs
from dreamfleet.envs.adapt import as_env
from dreamfleet.envs.check_report import CheckReport
from dreamfleet.envs.contract import Env, check_spaces, count_envs, take_step
from dreamfleet.envs.images import is_usable
from dreamfleet.envs.step_checker import StepChecker
from dreamfleet.errors import ConfigError, EnvError

COMPARED_STEPS = 200
LARGE_VECTOR = 10_000
SLOW = 30  # steps/s
LEAK_MB = 16  # over the second half of the steps


def check_env(make_env: Callable[[int], Any], steps: int = 1000, seed: int = 0) -> CheckReport:
    """Steps the environment that `make_env(seed)` returns with random actions and reports all that was seen."""
    report = CheckReport()
    is_light = "jax" not in sys.modules
    with _reporting(report):
        if _try(make_env, seed, steps, report):
            _compare(make_env, seed, min(steps, COMPARED_STEPS), report)
    _check_process(make_env, is_light, report)
    return report


def check_quickly(
    make_env: Callable[[int], Any], steps: int, most_s: float, on_step: Callable[[], None] = lambda: None
) -> CheckReport:
    """The same for one environment, and at most about so many seconds of steps; `on_step` is called before each."""
    report = CheckReport()
    with _reporting(report):
        _try(make_env, 0, steps, report, most_s, on_step)
    return report


@contextlib.contextmanager
def _reporting(report: CheckReport) -> Iterator[None]:
    """Turns what an environment raises into findings."""
    try:
        yield
    except ConfigError:
        raise  # the task is wrong, not the environment
    except EnvError as error:
        report.raised = error
        report.add("error", "contract", str(error))
    except Exception as error:
        report.raised = error
        report.add("error", "raised", traceback.format_exc().rstrip())


def _try(
    make_env: Callable[[int], Any],
    seed: int,
    steps: int,
    report: CheckReport,
    most_s: float = math.inf,
    on_step: Callable[[], None] = lambda: None,
) -> bool:
    env = as_env(make_env(seed), seed)
    try:
        check_spaces(env)
        report.spaces = {**env.obs_space, **env.act_space}
        _check_spaces(env, report)
        return _play(env, steps, report, most_s, on_step)
    finally:
        _close(env, report)


def _check_spaces(env: Env, report: CheckReport) -> None:
    for kind, spaces in (("obs", env.obs_space), ("act", env.act_space)):
        shown = ", ".join(f"{k} {s.dtype.name}{list(s.shape) or ''}" for k, s in spaces.items())
        report.add("ok", kind, shown)
    for key, space in env.obs_space.items():
        is_image = space.dtype == np.uint8 and len(space.shape) == 3
        if is_image and not is_usable(space.shape):
            message = f"'{key}' is an image of {space.shape[:2]}; the networks take sides of 48 to 256 in steps of 16"
            report.add("warning", "images", message)
        elif not is_image and np.prod(space.shape) > LARGE_VECTOR:
            message = f"'{key}' has {np.prod(space.shape):,.0f} numbers; if it is an image, make it uint8 of (H, W, C)"
            report.add("warning", "images", message)
    for key, space in env.act_space.items():
        if not space.discrete and not ((space.low == -1).all() and (space.high == 1).all()):
            report.add("warning", "actions", f"'{key}' is not in [-1, 1]: wrap it in NormalizeAction and ClipAction")


def _play(env: Env, steps: int, report: CheckReport, most_s: float, on_step: Callable[[], None]) -> bool:
    """Checks every step, and measures; returns whether the environment could be stepped to the end."""
    num_envs = count_envs(env) or 1
    checker = StepChecker(env.obs_space, num_envs, report)
    times, memory = [], []
    on_step()
    start = begin = time.perf_counter()
    # Half-way an episode is left before its end, as happens when a connection is lost.
    for action, obs in _steps(env, steps, leave_at=steps // 2):
        times.append(time.perf_counter() - begin)
        if not checker.add(np.atleast_1d(action["reset"]), obs):
            return False
        report.episodes = len(checker.episodes)
        if time.perf_counter() - start > most_s:
            break
        memory.append(_memory_mb())
        on_step()
        begin = time.perf_counter()
    checker.finish()
    _report_episodes(checker, len(times), report)
    if times:
        _report_speed(times, num_envs, report)
    if memory:
        _report_memory(memory, report)
    return True


def _steps(env: Env, steps: int, leave_at: int = -1) -> Iterator[tuple[dict, Batch]]:
    """Random actions, always the same ones, and what the environment answers to them."""
    rng = np.random.default_rng(0)
    count = count_envs(env)
    rows = count or 1
    is_last = np.ones(rows, bool)
    for step in range(steps):
        action: dict = {k: _sample(s, rows, rng) for k, s in env.act_space.items()}
        action["reset"] = is_last | (step == leave_at)
        obs = take_step(env, action if count else {k: v[0] for k, v in action.items()})
        obs = {k: np.asarray(v) if count else np.asarray(v)[None] for k, v in obs.items()}
        yield action, obs
        is_last = obs["is_last"].astype(bool)


def _sample(space: elements.Space, rows: int, rng: np.random.Generator) -> np.ndarray:
    shape = (rows, *space.shape)
    if space.discrete:
        return rng.integers(space.low, 2 if space.dtype == bool else space.high, shape).astype(space.dtype)
    low = np.where(np.isfinite(space.low), space.low, np.minimum(space.high - 1, -1))
    high = np.where(np.isfinite(space.high), space.high, np.maximum(space.low + 1, 1))
    return rng.uniform(low, high, shape).astype(space.dtype)


def _report_episodes(checker: StepChecker, steps: int, report: CheckReport) -> None:
    for check in ("shapes", "dtypes", "ranges", "numbers", "flags"):
        if not report.has(check):
            report.add("ok", check, f"passed in {steps:,} steps")
    if not checker.episodes:
        report.add("ok", "episodes", f"no episode ended in {steps:,} random steps")
        return
    scores, lengths = zip(*checker.episodes, strict=True)
    report.facts |= {"episodes": len(scores), "score": float(np.mean(scores)), "length": float(np.mean(lengths))}
    means = f"mean score {np.mean(scores):.4g}, mean length {np.mean(lengths):.4g}"
    report.add("ok", "episodes", f"{len(scores)} ended, {means}")


def _report_speed(times: list[float], rows: int, report: CheckReport) -> None:
    speed = rows * len(times) / sum(times)
    report.facts |= {"steps_per_s": round(speed, 1), "slowest_step_ms": round(1000 * max(times), 2)}
    message = f"{speed:,.0f} steps/s in one process, slowest step {1000 * max(times):,.1f} ms"
    advice = ": use several processes (--run.envs)" if speed < SLOW else ""
    report.add("warning" if advice else "ok", "speed", message + advice)


def _report_memory(memory: list[float], report: CheckReport) -> None:
    growth = memory[-1] - memory[len(memory) // 2]
    report.facts["memory_growth_mb"] = round(growth, 1)
    level, advice = ("warning", ": does it keep old observations?") if growth > LEAK_MB else ("ok", "")
    steps = len(memory) - len(memory) // 2
    report.add(level, "memory", f"grew by {max(growth, 0):.1f} MB in the last {steps:,} steps{advice}")


def _compare(make_env: Callable, seed: int, steps: int, report: CheckReport) -> None:
    """Whether two environments of one seed do the same, and those of two seeds something else."""
    first, again, other = (_digests(make_env, number, steps, report) for number in (seed, seed, seed + 1))
    for step, (one, two) in enumerate(zip(first, again, strict=True)):
        if changed := sorted(k for k in one if one[k] != two[k]):
            message = f"step {step}: {changed} differ between two environments with one seed: runs cannot be repeated"
            report.add("warning", "seeds", message)
            return
    same = "; another seed changes nothing, so that all environments of a run do the same" if first == other else ""
    report.add("warning" if same else "ok", "seeds", f"{steps} steps are the same for one seed{same}")


def _digests(make_env: Callable, seed: int, steps: int, report: CheckReport) -> list[dict[str, bytes]]:
    env = as_env(make_env(seed), seed)
    try:
        return [
            {k: hashlib.blake2b(v.tobytes()).digest() for k, v in without_logs(obs).items()}
            for _, obs in _steps(env, steps)
        ]
    finally:
        _close(env, report)


def _check_process(make_env: Callable, is_light: bool, report: CheckReport) -> None:
    try:
        cloudpickle.dumps(make_env)
        report.add("ok", "pickling", "can be sent to other processes")
    except Exception as error:
        message = f"cannot be sent to other processes ({error}): make what it needs inside of the factory"
        report.add("error", "pickling", message)
    if is_light and "jax" in sys.modules:
        report.add("warning", "imports", "the environment imports JAX: every environment process starts slowly")


def _close(env: Env, report: CheckReport) -> None:
    try:
        env.close()
    except Exception as error:
        report.add("warning", "close", f"close() raised {error!r}")


def _memory_mb() -> float:
    """Memory of this process that is not backed by files."""
    info = psutil.Process().memory_info()
    return (info.rss - getattr(info, "shared", 0)) / 2**20
