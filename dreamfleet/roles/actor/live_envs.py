"""Which environments can be expected to ask for an action soon, so that a batch need not wait for others."""

import time
from collections.abc import Sequence

LIVE_WINDOW_S = 1.0  # an environment that asked within this time is expected to ask again


class LiveEnvs:
    """Counts the environments that can be expected to ask soon, apart for training and evaluation."""

    def __init__(self):
        self._seen: dict[bool, dict[int, float]] = {False: {}, True: {}}
        self._counts: dict[bool, tuple[float, int]] = {}

    def mark_seen(self, env_ids: Sequence[int], is_eval: bool) -> None:
        self._seen[is_eval].update(dict.fromkeys(env_ids, time.monotonic()))

    def count(self, is_eval: bool) -> int:
        """Environments seen lately, counted a few times a second; out of reach while none is known."""
        now = time.monotonic()
        valid_until, count = self._counts.get(is_eval, (0.0, 0))
        if now >= valid_until:
            times = list(self._seen[is_eval].values())
            count = sum(now - seen < LIVE_WINDOW_S for seen in times)
            self._counts[is_eval] = (now + LIVE_WINDOW_S / 4, count)
        return count or 1_000_000  # nobody known yet: the batch fills or its time runs out
