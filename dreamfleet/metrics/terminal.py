"""The live block in the launcher's terminal: progress and waits. Plain lines without a terminal.

`update` is called with what `progress.json` and `status.json` hold; the drawing itself is in `panel`.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dreamfleet.metrics import panel
from dreamfleet.metrics.bottlenecks import find_phase
from dreamfleet.metrics.progress import Progress


class PatientConsole(Console):
    """Leaves a broken pipe to whoever prints, where rich would exit, and draws with what the output can encode."""

    @property
    def encoding(self) -> str:
        """That of the output, also of one that rich itself looks up: it would take UTF-8 for granted."""
        return (getattr(self.file, "encoding", None) or "utf-8").lower()

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Terminal:
    """Shows a run while the context is open: a block that redraws in place, or a line every `every_s` seconds."""

    def __init__(
        self,
        total_steps: int,
        console: Console | None = None,
        every_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        total_updates: int = 0,
    ):
        self._totals = {"total_steps": total_steps, "total_updates": total_updates}
        self._console = console or PatientConsole()
        self._every_s = every_s
        self._clock = clock
        self._live: Live | None = None
        self._due = clock()
        self._phase: str | None = None
        self._pending: str | None = None  # the latest line that was not due
        self.is_lost = False  # nobody reads the pipe any more

    def __enter__(self) -> "Terminal":
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            # Drawn only in update and print: no refresh thread.
            self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            with self._surviving():
                self._live.stop()
            self._live = None
        elif self._pending:
            self.print(self._pending)

    def update(self, progress: Progress | None, status: dict) -> None:
        """Shows the latest progress and status."""
        progress = progress or Progress(**self._totals)
        if self._live:
            with self._surviving():
                self._live.update(panel.Block(progress, status), refresh=True)
        else:
            self._update_line(progress, status)

    def print(self, text: str) -> None:
        """Prints lines above the block verbatim, without markup."""
        with self._surviving():
            self._console.print(Text.from_ansi(text), soft_wrap=True)

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        """A terminal that is gone, or a full disk behind its file, does not end a run on the spot."""
        try:
            yield
        except BrokenPipeError:
            self.is_lost = self._console.quiet = True
        except OSError:
            pass

    def _update_line(self, progress: Progress, status: dict) -> None:
        # A change of phase is shown at once.
        line, phase, now = panel.format_line(progress, status), find_phase(progress, status), self._clock()
        if now >= self._due or phase != self._phase:
            self.print(line)
            self._due, self._phase, self._pending = now + self._every_s, phase, None
        else:
            self._pending = line
