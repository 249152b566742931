"""Training from Python: `dreamfleet.train(...)` starts a run in the background and returns a handle of it."""

import atexit
import contextlib
import dataclasses
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dreamfleet.base.logdir import EVAL_SCORES, METRICS, SCORES
from dreamfleet.errors import ConfigError
from dreamfleet.launch.background import BackgroundRun
from dreamfleet.launch.history import check_start
from dreamfleet.launch.modules import check_modules
from dreamfleet.launch.outcome import FAILED
from dreamfleet.launch.run import run_options
from dreamfleet.launch.supervise.status import read_status
from dreamfleet.metrics.progress import Progress, read_progress
from dreamfleet.metrics.reading import Series, make_series, read_series
from dreamfleet.metrics.terminal import Terminal
from dreamfleet.options import Options, check_options, load_options, place_replica

STOP_MARGIN_S = 60.0  # for a stop, beyond what the agent gets: the other roles, and the logger's services
REFRESH_S = 1.0


def train(
    task: str | Callable | None = None,
    *,
    preset: str | Sequence[str] = (),
    agent: str | Callable | None = None,
    **options: Any,
) -> "Run":
    """Starts a run, or resumes the one in `logdir`, in the background.

    Args:
      task: what `--task` takes, or a class or function that makes an environment, wherever it is defined.
      preset: name or names of presets.
      agent: what `--agent` takes, or a class of an agent.
      options: by section (`run={"envs": 4}`), by dotted key (`**{"run.envs": 4}`) or short (`envs=4`).
    """
    named, made = _split({"task": task, "agent": agent})
    settings = place_replica(load_options({**options, **named}, [preset] if isinstance(preset, str) else preset))
    check_options(settings)
    check_modules(settings, *(key for key in ("agent", "task", "logger.outputs") if key not in made))
    check_start(settings)
    return Run(settings, made.get("task"), made.get("agent"))


class Run:
    """A run in the background of this process, with which it ends.

    Leaving it as a context, and the end of the script, stop it in order: there is a checkpoint to resume from.
    """

    def __init__(self, options: Options, task: Callable | None, agent: Callable | None):
        self.options = options
        self.logdir = Path(options.logdir)
        log_file = self.logdir / "logs" / "launcher.log"
        try:
            stop_s = options.run.stop_grace + STOP_MARGIN_S
            self._background = BackgroundRun(log_file, stop_s, run_options, options, task, agent)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            reason = f"cannot be sent to other processes ({error})"
            remedy = "create what cannot be pickled inside of it instead of using it from outside"
            raise ConfigError("task", task or agent, reason, remedy) from error
        _live.append(self)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        status = self.status()
        return f"<Run {status['state']} step {status['step']:,} in {self.logdir}>"

    def wait(self, timeout_s: float | None = None, show: bool = True) -> str | None:
        """Waits for the end of the run and shows meanwhile how it does.

        Returns whether it is "complete" or "stopped", or None if it is not over yet. Raises what ended the run, with
        the first cause, if it failed. An interrupt ends the wait, not the run.
        """
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        run = self.options.run
        shown = Terminal(run.steps, total_updates=run.updates) if show else contextlib.nullcontext()
        with shown as terminal:
            while not self._background.wait(min(REFRESH_S, deadline - time.monotonic())):
                if terminal:
                    terminal.update(read_progress(self.logdir), self._fleet_status())
                if time.monotonic() >= deadline:
                    return None
        self._forget()
        if self._background.error:
            raise self._background.error
        return self._background.outcome.state

    def stop(self) -> None:
        """Ends the run with a checkpoint, and waits for that; what does not end in time is killed."""
        background = self._background
        background.request_stop()
        if not background.wait(background.stop_s):
            background.kill()
        self._forget()

    def status(self) -> dict[str, Any]:
        """What the run is doing: `state`, the numbers of its progress, and its `roles`."""
        fleet = self._fleet_status()
        progress = read_progress(self.logdir) or Progress(
            total_steps=self.options.run.steps, total_updates=self.options.run.updates
        )
        return {"state": fleet["state"], **dataclasses.asdict(progress), "roles": fleet["roles"]}

    def scores(self, is_eval: bool = False) -> Series:
        """Steps and scores of the episodes so far, of training or of evaluation."""
        file, metric = (EVAL_SCORES, "eval_episode/score") if is_eval else (SCORES, "episode/score")
        return read_series(self.logdir / file).get(metric, make_series([]))

    def metrics(self) -> dict[str, Series]:
        """Steps and values of every metric so far, by its key."""
        return read_series(self.logdir / METRICS)

    def _fleet_status(self) -> dict[str, Any]:
        background = self._background
        if background.wait(0.0):
            state = FAILED if background.error else background.outcome.state
        else:
            state = "running" if self.options.run.mode == "serial" else "starting"
        with contextlib.suppress(OSError, ValueError):  # there is none yet
            status = read_status(self.logdir)
            if status["supervisor"] == background.pid:  # and not that of an earlier life
                return status if not background.is_over else {**status, "state": state}
        return {"state": state, "roles": {}}

    def _forget(self) -> None:
        if self in _live:
            _live.remove(self)


_live: list[Run] = []  # what is not known to be over, so that runs go on without a variable that holds them


@atexit.register
def _stop_all() -> None:
    for run in list(_live):
        background = run._background
        if background.owner == os.getpid() and not background.wait(0.0):
            print(f"dreamfleet: the script ends, stopping {run.logdir} (run.wait() waits for it)", file=sys.stderr)
            run.stop()


def _split(given: dict[str, str | Callable | None]) -> tuple[dict[str, str], dict[str, Callable]]:
    """The names to put into the options, and the callables among them that a name alone does not lead to."""
    named, made = {}, {}
    for key, value in given.items():
        if isinstance(value, str):
            named[key] = value
        elif callable(value):
            named[key] = _label(value)
            if not _is_importable(value):
                made[key] = value
        elif value is not None:
            remedy = "give a name, or a class or function that makes one"
            raise ConfigError(key, value, "is neither a name nor can it be called", remedy)
    return named, made


def _label(value: Callable) -> str:
    """A name for the options, of the form module:attr."""
    path = getattr(value, "__qualname__", type(value).__name__).split(".")
    return f"{getattr(value, '__module__', None) or 'unknown'}:{'.'.join(filter(str.isidentifier, path)) or 'unnamed'}"


def _is_importable(value: Callable) -> bool:
    """Whether every process can import it by its name; what `__main__` holds is only there in this one."""
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", "<unnamed>").split(".")
    if module in (None, "__main__") or not all(map(str.isidentifier, path)):
        return False
    found: Any = sys.modules.get(module)
    for name in path:
        found = getattr(found, name, None)
    return found is value
