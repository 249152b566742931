"""What the terminal shows: progress and status as a rich block or as one line of text."""

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from dreamfleet.base.joined import ENDED
from dreamfleet.metrics.bottlenecks import find_compilation_s, find_phase, format_waits, is_joined
from dreamfleet.metrics.progress import Goal, Progress

_CELL_WIDTH = 25
_MAX_COLUMNS = 4
_PHASE_STYLES = {
    "training": "green",
    "finished": "green",
    "stopped": "yellow",
    "failed": "bold red",
    "stopping": "yellow",
}
# What the agent says of itself: nothing once its process has ended.
_UNKNOWN_OF_AGENT = [(label, "-") for label in ("loss", "device", "memory", "checkpoint")]


class Block:
    """The live block: phase and progress, a grid of numbers, the roles, and the longest waits."""

    def __init__(self, progress: Progress, status: dict):
        self._progress = progress
        self._status = status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(characters="-" if options.ascii_only else "─", style="dim")
        yield self._headline(options.max_width)
        yield self._numbers(options.max_width)
        lines = Table.grid(padding=(0, 1, 0, 0))
        lines.add_row(Text("roles", style="dim"), Text(format_roles(self._status)))
        lines.add_row(Text("waits", style="dim"), Text(format_waits(self._status, self._progress) or "none"))
        yield lines

    def _shown(self) -> list[tuple[str, str]]:
        return format_numbers(self._progress, self._status)

    def _headline(self, width: int) -> Table:
        progress, phase = self._progress, find_phase(self._progress, self._status)
        row: list = [Text(_format_phase(phase, self._status), style=_PHASE_STYLES.get(phase, "cyan"))]
        goal = progress.goal()
        if goal.total > 0 and width >= 50:
            row.append(ProgressBar(goal.total, min(goal.done, goal.total)))
        row += [Text(_format_goal(goal), style="bold"), Text(_format_times(progress, self._status), style="dim")]
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
        cells = [Text.assemble((f"{label} ", "dim"), value) for label, value in self._shown()]
        for start in range(0, len(cells), columns):
            table.add_row(*cells[start : start + columns])
        return table


def format_line(progress: Progress, status: dict) -> str:
    """Everything in one line, for logs."""
    goal = progress.goal()
    prefix = "step " if goal.unit == "step" else ""
    phase = _format_phase(find_phase(progress, status), status)
    parts = [phase, f"{prefix}{_format_goal(goal)}", _format_times(progress, status)]
    parts += [f"{label} {value}" for label, value in format_numbers(progress, status)]
    parts.append(f"roles {format_roles(status)}")
    waits = format_waits(status, progress)
    return " | ".join(parts + [waits] if waits else parts)


def format_numbers(progress: Progress, status: dict) -> list[tuple[str, str]]:
    """The numbers of the grid with their labels, most important first."""
    return _format_joined(progress, status) if is_joined(status) else _format_run(progress, status)


def _format_joined(progress: Progress, status: dict) -> list[tuple[str, str]]:
    """What roles know whose run is elsewhere."""
    numbers = [("env steps/s", _shorten(progress.env_rate))]
    figures = [role.get("figures") or {} for role in status["roles"].values()]
    for key, label in (("envs", "envs"), ("rebuilds", "envs rebuilt"), ("lost_answers", "lost answers")):
        if any(key in entry for entry in figures):
            numbers.append((label, _shorten(sum(entry.get(key, 0) for entry in figures))))
    return [*numbers, ("memory", _format_memory(status))]


def _format_run(progress: Progress, status: dict) -> list[tuple[str, str]]:
    figures = status.get("roles", {}).get("agent", {}).get("figures") or {}
    replay = f"{_shorten(progress.replay_fill)}/{_shorten(progress.replay_capacity)}"
    target = f"/{progress.target_ratio:.4g}" if progress.target_ratio > 0 else ""
    numbers = [
        ("score", _format_optional(progress.score)),
        ("eval score", _format_optional(progress.eval_score)),
        ("episode length", _format_optional(progress.episode_length)),
        ("loss", _format_optional(figures.get("loss"))),
        ("env steps/s", _shorten(progress.env_rate)),
        ("updates/s", _shorten(progress.update_rate)),
        ("episodes", _shorten(progress.episodes)),
        ("updates", _shorten(progress.updates)),
        ("replay", replay),
        ("train ratio", _format_optional(progress.ratio) + target),
        ("device", figures.get("device") or "-"),
        ("memory", _format_memory(status)),
        ("checkpoint", _format_checkpoint(figures)),
        *([] if _find_eta(progress, status) is None else [("elapsed", _format_elapsed(progress, status))]),
    ]
    has_ended = status.get("state") in ENDED
    return [number for number in numbers if not (has_ended and number in _UNKNOWN_OF_AGENT)]


def _format_memory(status: dict) -> str:
    """Of all roles here; pages that they share count for each of them."""
    used_mb = sum(role.get("memory_mb") or 0 for role in status.get("roles", {}).values())
    return f"{used_mb / 1024:.1f} GB" if used_mb else "-"


def _format_checkpoint(figures: dict) -> str:
    if figures.get("saved_step") is None:
        return "-"
    return f"{_shorten(figures['saved_step'])}, {_format_duration(figures['saved_ago_s'])} ago"


def format_roles(status: dict) -> str:
    """How many roles run, how often roles were restarted, and which do not run."""
    roles = status.get("roles", {})
    if status.get("mode") == "serial":
        return "all in one process"
    if roles and all(role.get("state") == "done" for role in roles.values()):
        return "all done"
    running = sum(role.get("state") == "running" for role in roles.values())
    restarts = sum(role.get("restarts", 0) for role in roles.values())
    text = f"{running}/{len(roles)} running"
    if restarts:
        text += f", {_count(restarts, 'restart')}"
    others: dict[str, list[str]] = {}
    for name, role in roles.items():
        if role.get("state") != "running":
            others.setdefault(role.get("state", "starting"), []).append(name)
    for state, names in others.items():
        text += f", {state}: {_enumerate(names)}"
    return text + _format_machines(status.get("machines") or {})


def _format_machines(machines: dict) -> str:
    """How many machines have joined and are there."""
    present = [machine for machine in machines.values() if machine["state"] not in (*ENDED, "silent")]
    silent = sum(machine["state"] == "silent" for machine in machines.values())
    text = ""
    if present:
        processes = sum(machine["processes"] for machine in present)
        text = f", {_count(len(present), 'machine')} joined ({_count(processes, 'process', 'processes')})"
    return text + (f", {_count(silent, 'machine')} silent" if silent else "")


def format_machine(name: str, machine: dict) -> str:
    """A line on a machine that has joined: how its processes do, and when it was heard of."""
    parts = [f"{name}: {machine['state']}", f"env steps/s {_shorten(machine['env_rate'])}"]
    roles = machine["roles"]
    parts.append(f"roles {format_roles(machine)}" if roles else _count(machine["processes"], "process", "processes"))
    waits = format_waits(machine, Progress())
    parts += [waits] if waits else []
    return " | ".join([*parts, f"dreamfleet {machine['package']}, heard of {machine['seen_s']:.0f} s ago"])


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def _enumerate(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _format_goal(goal: Goal) -> str:
    if goal.total <= 0:
        return f"{int(goal.done):,} {goal.unit}s"
    unit = " updates" if goal.unit == "update" else ""
    return f"{int(goal.done):,}/{int(goal.total):,}{unit} {100 * goal.share:.0f}%"


def _format_phase(phase: str, status: dict) -> str:
    return f"{phase} ({find_compilation_s(status):.0f} s)" if phase == "compiling" else phase


def _format_times(progress: Progress, status: dict) -> str:
    """What is left, if that is known; otherwise the time so far."""
    eta_s = _find_eta(progress, status)
    return f"{_format_elapsed(progress, status)} elapsed" if eta_s is None else f"ETA {_format_duration(eta_s)}"


def _find_eta(progress: Progress, status: dict) -> float | None:
    return progress.eta_s if find_phase(progress, status) == "training" else None


def _format_elapsed(progress: Progress, status: dict) -> str:
    """The time of the run over all its lives, or of this start while the run has none yet."""
    return _format_duration(max(progress.elapsed_s, status.get("elapsed_s", 0.0)))


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
