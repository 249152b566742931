"""A fleet as data: which roles there are, how each is started, restarted and stopped. Every launcher reads this."""

from collections.abc import Callable
from dataclasses import dataclass, field

from dreamfleet.base.loader import load_attribute


@dataclass(frozen=True)
class RestartPolicy:
    """What happens when a role dies before the run ends.

    A role may die `max_restarts` times without progress in between (`lifecycle.progress`, or a minute of running); the
    last of these deaths ends the run, and with 0 any death does. The delay before a restart starts at `backoff_s` and
    doubles up to `backoff_max_s`.
    """

    restart: bool = True
    max_restarts: int = 5
    backoff_s: float = 0.2
    backoff_max_s: float = 10.0

    def delay_s(self, step: int) -> float:
        """The delay before the restart after `step` earlier ones that did not last."""
        return min(self.backoff_s * 2.0 ** min(step, 60), self.backoff_max_s)


@dataclass(frozen=True)
class RoleSpec:
    """One role: the call that it is, and how it is run.

    Args:
      target: a callable, or `module:attr`, that is called with `args` and `kwargs` and returns when the role is done.
      optional: without restarts, the fleet goes on when this role dies.
      is_main: the run is complete when this role returns; it is the first to be stopped.
      ends_run: the run is complete when this role returns.
      is_spread: may run on any machine of a cluster, while the others share one.
      is_fleet: starts roles of its own, and takes of its machine what a whole fleet takes.
      in_thread: run in a thread of the supervisor's process, where it cannot be restarted.
      stop_order: among the other roles, lower ones are stopped first.
      stop_grace_s: time to stop in that it gets at least.
      environ: variables that have to be set before the process starts, such as thread counts.
      seed: the run's seed, from which the seed of each incarnation is derived.
    """

    name: str
    target: Callable | str
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    policy: RestartPolicy = RestartPolicy()
    optional: bool = False
    is_main: bool = False
    ends_run: bool = False
    is_spread: bool = False
    is_fleet: bool = False
    in_thread: bool = False
    stop_order: int = 0
    stop_grace_s: float = 0.0
    environ: dict[str, str] = field(default_factory=dict)
    seed: int = 0


def load_target(target: Callable | str) -> Callable:
    """The callable that `target` is, or that it names as `module:attr`."""
    return target if callable(target) else load_attribute(target)
