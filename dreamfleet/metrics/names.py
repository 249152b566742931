"""The reference's names of metrics (danijar/dreamerv3) for those of ours that mean the same: `logger.names`."""

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from dreamfleet.metrics.values import Summary
from dreamfleet.options.logger import Names

# Ours, as a pattern of the whole name, and theirs. Names that are in neither are the same in both.
_SERVED = r"\w+/(?:rate|wait_ms|work_ms)|clients|pending|queue|bytes_(?:in|out)_rate"
RULES = [
    (r"actor/steps_per_s", r"fps/policy"),
    (r"env/steps_per_s", r"fps/env"),
    (r"learner/steps_per_s", r"fps/train"),
    (r"actor/environments", r"parallel/ep_states"),
    (r"episodes/(starts|ends|abandoned)", r"parallel/ep_\1"),
    (r"episode/(log/.+|reward_rate)", r"epstats/\1"),
    (r"episode/video", r"epstats/policy_image"),
    (r"eval_episode/(.+)", r"evaluation/\1"),  # it has none, and finds scores of training by `episode/score`
    (r"(?:actor|learner)/usage/(.+)", r"usage/agent/\1"),
    (r"(env|replay|logger)/usage/(.+)", r"usage/\1/\2"),
    (r"learner/time/(.+)", r"timer/agent/\1"),
    (r"env/time/(.+)", r"timer/env/\1"),
    (r"replay/ratio", r"replay/replay_ratio"),
    (r"replay/limiter/(insert|sample)_wait_s", r"limiter/\1_wait_dur"),
    (r"replay/limiter/(insert|sample)_waits", r"limiter/\1_wait_count"),
    (r"replay/limiter/(insert|sample)_wait_share", r"limiter/\1_wait_frac"),
    (r"replay/train/(.+)", r"replay/\1"),
    (r"replay/eval/(.+)", r"replay_eval/\1"),
    (r"learner/replay/(.+)", r"client/replay_train/\1"),
    (r"(actor|env|learner|replay)/(actor|logger|replay)/(.+)", r"client/\1_\2/\3"),
    (
        r"(actor|replay|logger)/(\w+/(?:rate|wait_ms|work_ms)|clients|pending|queue|bytes_(?:in|out)_rate)",
        r"server/\1/\2",
    ),
]
COUNTED = ("replay/inserts", "replay/samples")  # since the last line in the reference, and in total here


class Renaming:
    """An output that hands metrics on to others under the reference's names, or under both."""

    def __init__(self, outputs: list, names: Names):
        self._outputs, self._names = outputs, names
        self._before: dict[str, Any] = {}  # of what is counted

    def __call__(self, summaries: Iterable[Summary]) -> None:
        renamed = list(self._rename(summaries))
        for output in self._outputs:
            output(renamed)

    def close(self) -> None:
        for output in self._outputs:
            if hasattr(output, "close"):
                output.close()

    def _rename(self, summaries: Iterable[Summary]) -> Iterator[Summary]:
        for step, name, value in summaries:
            theirs = reference_name(name)
            if self._names == "both":
                yield step, name, value
                if theirs != name:
                    yield step, theirs, value
            elif name in COUNTED:
                if name in self._before:
                    yield step, name, value - self._before[name]
                self._before[name] = value
            else:
                yield step, theirs, value


@functools.lru_cache(maxsize=10_000)
def reference_name(name: str) -> str:
    """What the reference calls a metric of ours."""
    for ours, theirs in RULES:
        if match := re.fullmatch(ours, name):
            return match.expand(theirs)
    return name
