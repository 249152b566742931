"""The memory that the injector shares with the environments: commands one way, signs of life the other."""

import mmap
import os
import struct
import uuid
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "DREAMFLEET_CHAOS"  # names the file, and marks every process of the fleet
MAX_ENVS = 32
FAULTS = ("raise", "hang", "slow", "nan", "shape", "dtype", "leak")

_SLOT = 64  # bytes of one environment: its command, then what it says of itself
_LIFE = struct.Struct("<QQ")  # life, answered steps
_CLOCK = struct.Struct("<d")
_CLOCK_AT = _SLOT * MAX_ENVS
_SLOW_AT = _CLOCK_AT + 8
_PACE_AT = _CLOCK_AT + 16


@dataclass(frozen=True)
class Life:
    """Which construction of an environment is at work, and how many actions it has been given."""

    number: int
    steps: int


class Control:
    """Both sides open the same file; a field is only ever written by one of them, but for the command."""

    def __init__(self, path: Path):
        with path.open("a+b") as file:
            file.truncate(mmap.PAGESIZE)
            self._memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    @classmethod
    def of_this_process(cls) -> "Control | None":
        path = os.environ.get(VARIABLE)
        return cls(Path(path)) if path else None

    def command(self, index: int, fault: str) -> None:
        """Asks environment `index` to misbehave at its next step."""
        self._memory[_SLOT * index] = 1 + FAULTS.index(fault)

    def take(self, index: int) -> str | None:
        """The environment's side: the command, once."""
        code = self._memory[_SLOT * index]
        if not code:
            return None
        self._memory[_SLOT * index] = 0
        return FAULTS[code - 1]

    def tell(self, index: int, life: Life) -> None:
        _LIFE.pack_into(self._memory, _SLOT * index + 8, life.number, life.steps)

    def life(self, index: int) -> Life:
        return Life(*_LIFE.unpack_from(self._memory, _SLOT * index + 8))

    @property
    def clock_offset_s(self) -> float:
        """What the clocks of the fleet are off by."""
        return _CLOCK.unpack_from(self._memory, _CLOCK_AT)[0]

    @clock_offset_s.setter
    def clock_offset_s(self, seconds: float) -> None:
        _CLOCK.pack_into(self._memory, _CLOCK_AT, seconds)

    @property
    def slow_s(self) -> float:
        """How long a slow step takes."""
        return _CLOCK.unpack_from(self._memory, _SLOW_AT)[0]

    @slow_s.setter
    def slow_s(self, seconds: float) -> None:
        _CLOCK.pack_into(self._memory, _SLOW_AT, seconds)

    @property
    def pace_s(self) -> float:
        """How long every step takes at least."""
        return _CLOCK.unpack_from(self._memory, _PACE_AT)[0]

    @pace_s.setter
    def pace_s(self, seconds: float) -> None:
        _CLOCK.pack_into(self._memory, _PACE_AT, seconds)


def make_life() -> Life:
    """A life of its own; its number is exact in float32."""
    return Life(1 + uuid.uuid4().int % (1 << 23), 0)
