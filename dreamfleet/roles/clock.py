"""When to do what has to be done every so many seconds."""

import time


class Every:
    """True once every `seconds`, for the first time after as many; never for 0."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._next = time.monotonic() + seconds

    def __call__(self) -> bool:
        now = time.monotonic()
        if self._seconds <= 0 or now < self._next:
            return False
        self._next = now + self._seconds
        return True
