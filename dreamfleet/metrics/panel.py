"""What the terminal shows: progress and status as a rich block or as one line of text."""

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from dreamfleet.metrics.bottlenecks import find_phase, format_waits
from dreamfleet.metrics.progress import Progress

_CELL_WIDTH = 25
_MAX_COLUMNS = 4
_PHASE_STYLES = {
    "training": "green",
    "finished": "green",
    "stopped": "yellow",
    "failed": "bold red",
    "stopping": "yellow",
}


class Block:
    """The live block: phase and progress, a grid of numbers, the roles, and the longest waits."""

    def __init__(self, progress: Progress, status: dict):
        self._progress = progress
        self._status = status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(style="dim")
        yield self._headline(options.max_width)
        yield self._numbers(options.max_width)
        lines = Table.grid(padding=(0, 1, 0, 0))
        lines.add_row(Text("roles", style="dim"), Text(format_roles(self._status)))
        lines.add_row(Text("waits", style="dim"), Text(format_waits(self._status, self._progress) or "none"))
        yield lines

    def _headline(self, width: int) -> Table:
        progress, phase = self._progress, find_phase(self._progress, self._status)
        row: list = [Text(phase, style=_PHASE_STYLES.get(phase, "cyan"))]
        if progress.total_steps > 0 and width >= 50:
            row.append(ProgressBar(progress.total_steps, min(progress.step, progress.total_steps)))
        row += [Text(_format_steps(progress), style="bold"), Text(_format_times(progress), style="dim")]
        table = Table.grid(expand=True, padding=(0, 2, 0, 0))
        for cell in row:
            table.add_column(ratio=1 if isinstance(cell, ProgressBar) else None, no_wrap=True)
        table.add_row(*row)
        return table

    def _numbers(self, width: int) -> Table:
        columns = min(max(1, width // _CELL_WIDTH), _MAX_COLUMNS)
        table = Table.grid(expand=True)
        for _ in range(columns):
            table.add_column(ratio=1, no_wrap=True, overflow="crop")
        cells = [Text.assemble((f"{label} ", "dim"), value) for label, value in format_numbers(self._progress)]
        for start in range(0, len(cells), columns):
            table.add_row(*cells[start : start + columns])
        return table


def format_line(progress: Progress, status: dict) -> str:
    """Everything in one line, for logs."""
    parts = [find_phase(progress, status), f"step {_format_steps(progress)}", _format_times(progress)]
    parts += [f"{label} {value}" for label, value in format_numbers(progress)]
    parts.append(f"roles {format_roles(status)}")
    waits = format_waits(status, progress)
    return " | ".join(parts + [waits] if waits else parts)


def format_numbers(progress: Progress) -> list[tuple[str, str]]:
    """The numbers of the grid with their labels, most important first."""
    replay = f"{_shorten(progress.replay_fill)}/{_shorten(progress.replay_capacity)}"
    target = f"/{progress.target_ratio:.4g}" if progress.target_ratio > 0 else ""
    return [
        ("score", _format_optional(progress.score)),
        ("eval score", _format_optional(progress.eval_score)),
        ("env steps/s", _shorten(progress.env_rate)),
        ("updates/s", _shorten(progress.update_rate)),
        ("episodes", _shorten(progress.episodes)),
        ("updates", _shorten(progress.updates)),
        ("replay", replay),
        ("train ratio", _format_optional(progress.ratio) + target),
    ]


def format_roles(status: dict) -> str:
    """How many roles run, how often roles were restarted, and which do not run."""
    roles = status.get("roles", {})
    running = sum(role.get("state") == "running" for role in roles.values())
    restarts = sum(role.get("restarts", 0) for role in roles.values())
    text = f"{running}/{len(roles)} running"
    if restarts:
        text += f", {restarts} {'restart' if restarts == 1 else 'restarts'}"
    others: dict[str, list[str]] = {}
    for name, role in roles.items():
        if role.get("state") != "running":
            others.setdefault(role.get("state", "starting"), []).append(name)
    for state, names in others.items():
        text += f", {state}: {_enumerate(names)}"
    return text


def _enumerate(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _format_steps(progress: Progress) -> str:
    if progress.total_steps <= 0:
        return f"{int(progress.step):,} steps"
    percent = 100 * progress.step / progress.total_steps
    return f"{int(progress.step):,}/{int(progress.total_steps):,} {percent:.0f}%"


def _format_times(progress: Progress) -> str:
    if progress.total_steps <= 0 or progress.eta_s is None:
        return f"{_format_duration(progress.elapsed_s)} elapsed"
    return f"ETA {_format_duration(progress.eta_s)}"


def _format_duration(seconds: float) -> str:
    days, rest = divmod(int(max(0, seconds)), 86400)
    hours, minutes, seconds = rest // 3600, rest // 60 % 60, rest % 60
    return f"{days}d {hours}:{minutes:02d}:{seconds:02d}" if days else f"{hours}:{minutes:02d}:{seconds:02d}"


def _format_optional(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 1e4 else _shorten(value)


def _shorten(value: float) -> str:
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
