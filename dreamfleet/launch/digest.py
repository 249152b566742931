"""What roles log, for the terminal: warnings and errors are told once, and counted when they come again.

Roles that fail for the same reason, or one that fails again and again, would bury everything else.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

FIRST_S = 10.0  # until repeats are told; the time doubles with each telling
MOST_S = 600.0
MOST_KINDS = 1000  # that are remembered
MOST_LINES = 12  # of one text; all of it is in the role's log


@dataclass
class Repeats:
    """A text that was told before, and how often it came since."""

    text: str
    due: float
    every_s: float = FIRST_S
    count: int = 0
    roles: list[str] = field(default_factory=list)


class LogDigest:
    """Prints the log of a fleet; texts that differ in nothing but numbers, also in that of the role, are the same."""

    def __init__(self, print_text: Callable[[str], None], clock: Callable[[], float] = time.monotonic):
        self._print = print_text
        self._clock = clock
        self._told: dict[str, Repeats] = {}
        self._details: set[str] = set()

    def add(self, role: str, level: str, text: str) -> None:
        """Takes one record: its first line, and below it the details, such as the frames of a traceback."""
        head, _, details = text.partition("\n")
        if level not in ("warning", "error"):
            self._print(f"[{role}] {text}")
            return
        kind = _without_numbers(f"{role} {head}")
        if kind not in self._told:
            if len(self._told) >= MOST_KINDS:
                self.close()
                self._told.clear()
            self._told[kind] = Repeats(head, self._clock() + FIRST_S)
            self._tell_first(role, head, details)
            return
        repeats = self._told[kind]
        repeats.count += 1
        if role not in repeats.roles:
            repeats.roles.append(role)
        self._tell_if_due(repeats)

    def tell_repeats(self) -> None:
        """Prints what came again and has not been told for long enough; called every second."""
        for repeats in self._told.values():
            self._tell_if_due(repeats)

    def close(self) -> None:
        """Prints what came again and has not been told."""
        for repeats in self._told.values():
            self._tell(repeats)

    def _tell_first(self, role: str, head: str, details: str) -> None:
        kind = _without_numbers(details)
        lines = [] if kind in self._details else details.splitlines()[-MOST_LINES:]
        self._details.add(kind)
        self._print("\n".join([f"[{role}] {head}", *lines]))

    def _tell_if_due(self, repeats: Repeats) -> None:
        now = self._clock()
        if repeats.count and now >= repeats.due:
            self._tell(repeats)
            repeats.every_s = min(2 * repeats.every_s, MOST_S)
            repeats.due = now + repeats.every_s

    def _tell(self, repeats: Repeats) -> None:
        if repeats.count:
            first, *others = repeats.roles
            roles = f"{first} and {len(others)} more" if others else first
            times = "once more" if repeats.count == 1 else f"{repeats.count} more times"
            self._print(f"[{roles}] {repeats.text} ({times})")
            repeats.count, repeats.roles = 0, []


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "#", text)
