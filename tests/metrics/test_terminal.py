"""The live block and the plain lines."""

import io

import pytest
from rich.console import Console

from dreamfleet.metrics import Progress
from dreamfleet.metrics.panel import format_line
from dreamfleet.metrics.terminal import PatientConsole, Terminal

PROGRESS = Progress(
    step=12_345,
    total_steps=200_000,
    score=123.456,
    eval_score=140.2,
    env_rate=3012.3,
    update_rate=12.34,
    replay_fill=12_345,
    replay_capacity=100_000,
    ratio=31.84,
    target_ratio=32,
    updates=4321,
    episodes=321,
    episode_length=98.25,
    elapsed_s=75,
    eta_s=3661,
)


def make_role(state="running", restarts=0, waits=()):
    waits = [{"what": what, "seconds": seconds, "share": share} for what, seconds, share in waits]
    return {"pid": 1, "state": state, "restarts": restarts, "heartbeat_age_s": 0.1, "waits": waits, "exit": None}


STATUS = {
    "state": "running",
    "roles": {
        "agent": {
            **make_role(),
            "memory_mb": 2048.0,
            "figures": {"loss": 3.21987, "device": "cpu", "new_updates": 5, "saved_step": 12_000, "saved_ago_s": 61.0},
        },
        "replay": make_role(waits=[("learner: ratio allows no insert", 3.2, 0.4)]),
        "logger": make_role(state="restarting", restarts=1),
        "env0": make_role(waits=[("actor.act", 1.0, 1.0)]),
        "env1": make_role(waits=[("actor.act", 1.5, 1.0)]),
        "env2": make_role(waits=[("something short", 0.6, 1.0)]),
    },
}
EXPECTED = [
    "training",
    "12,345/200,000 6%",
    "ETA 1:01:01",
    "score 123.5",
    "eval score 140.2",
    "env steps/s 3.01k",
    "updates/s 12.3",
    "episodes 321",
    "replay 12.3k/100k",
    "train ratio 31.84/32",
    "episode length 98.25",
    "loss 3.22",
    "device cpu",
    "memory 2.0 GB",
    "checkpoint 12k, 0:01:01 ago",
    "elapsed 0:01:15",
    "5/6 running, 1 restart, restarting: logger",
    "collection paused 40% of the last 3.2 s: learner-bound (train ratio reached)",
    "2 env workers waiting for the policy (1.5 s)",
]


def make_console(width, is_terminal):
    options = {"color_system": None, "legacy_windows": False, "_environ": {}}
    return Console(file=io.StringIO(), width=width, height=30, force_terminal=is_terminal, **options)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_shows_everything(is_terminal):
    console = make_console(160, is_terminal)
    with Terminal(200_000, console) as terminal:
        terminal.update(PROGRESS, STATUS)
    shown = console.file.getvalue()
    for text in EXPECTED:
        assert text in shown
    assert "something short" not in shown


@pytest.mark.parametrize("width", [60, 100, 160])
def test_fits_the_width(width):
    console = make_console(width, True)
    with Terminal(200_000, console) as terminal:
        terminal.update(PROGRESS, STATUS)
    lines = console.file.getvalue().splitlines()
    assert max(len(line) for line in lines if "\x1b" not in line) <= width
    assert any("━" in line for line in lines)
    for label in ("score 123.5", "train ratio 31.84/32", "ETA 1:01:01", "12,345/200,000"):
        assert any(label in line for line in lines), label


@pytest.mark.parametrize("is_terminal", [True, False])
def test_no_width_and_no_content_is_too_odd(is_terminal):
    odd = [
        (None, {}),
        (None, {"state": "starting", "roles": {}}),
        (Progress(step=5), {"state": "failed", "roles": {"env0": {}}}),
        (Progress(step=10**15, total_steps=1, score=-1e300, eta_s=1e12, env_rate=1e20, ratio=1e-9), STATUS),
        (PROGRESS, {"state": "unheard of", "roles": {"x" * 300: make_role(waits=[("[/y]" * 200, 1e9, 0.2)])}}),
    ]
    for width in [1, 2, 3, 5, 10, 20, 49, 50, 51, 500]:
        with Terminal(100, make_console(width, is_terminal), every_s=0) as terminal:
            for progress, status in odd:
                terminal.update(progress, status)
                terminal.print("[/] text [bold]\n\x1b[31mred\x1b[0m \x1b[")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_print_keeps_the_text_as_it_is(is_terminal):
    console = make_console(40, is_terminal)
    with Terminal(0, console) as terminal:
        terminal.update(PROGRESS, STATUS)
        terminal.print("env0: [bold]no markup[/] " + "x" * 60)
    assert "env0: [bold]no markup[/] " + "x" * 60 in console.file.getvalue()


def test_plain_lines_are_rare():
    now = [0.0]
    console = make_console(80, False)
    with Terminal(100, console, every_s=10, clock=lambda: now[0]) as terminal:
        for second in range(25):
            now[0] = float(second)
            terminal.update(Progress(step=second, total_steps=100), {"state": "running", "roles": {}})
        terminal.update(Progress(step=25, total_steps=100), {"state": "stopping", "roles": {}})
        terminal.update(Progress(step=26, total_steps=100), {"state": "stopping", "roles": {}})
    lines = console.file.getvalue().splitlines()
    # Every ten seconds, at the change of state, and the last one when it ends.
    assert [line.split("step ")[1].split("/")[0] for line in lines] == ["0", "10", "20", "25", "26"]
    assert lines[3].startswith("stopping | ")


def test_runs_without_end_have_no_bar():
    console = make_console(100, True)
    with Terminal(0, console) as terminal:
        terminal.update(Progress(step=1234, elapsed_s=90_061), STATUS)
    shown = console.file.getvalue()
    assert "1,234 steps" in shown and "1d 1:01:01 elapsed" in shown
    assert "━" not in shown and "ETA" not in shown


def show_line(progress: Progress, status: dict) -> str:
    console = make_console(500, False)
    with Terminal(0, console) as terminal:
        terminal.update(progress, status)
    return console.file.getvalue()


def test_there_is_no_eta_unless_the_run_trains():
    waits = [("device: update", 23.4, 1.0)]
    compiling = {**STATUS, "elapsed_s": 31.0, "roles": {"agent": {**make_role(waits=waits), "figures": {}}}}
    line = show_line(Progress(step=600, total_steps=1000, eta_s=12.0, updates=0), compiling)
    assert line.startswith("compiling (23 s) | ") and "0:00:31 elapsed" in line and "ETA" not in line
    assert "ETA" not in show_line(PROGRESS, {**STATUS, "state": "complete"})


def test_a_resumed_run_compiles_too():
    waits = [("device: update", 8.0, 1.0)]
    status = {**STATUS, "roles": {"agent": {**make_role(waits=waits), "figures": {"new_updates": 0}}}}
    assert show_line(PROGRESS, status).startswith("compiling (8 s) | ")


def test_training_begins_with_the_first_update_before_the_logger_has_heard_of_it():
    status = {**STATUS, "roles": {"agent": {**make_role(), "figures": {"new_updates": 1}}}}
    assert show_line(Progress(step=600, updates=0), status).startswith("training | ")


def test_a_wait_with_gaps_is_a_share_of_the_time():
    waits = [("learner: ratio allows no insert", 11.4, 0.97)]
    status = {**STATUS, "roles": {"agent": make_role(), "replay": make_role(waits=waits)}}
    assert "collection paused 97% of the last 11.4 s" in show_line(PROGRESS, status)


def test_workers_that_have_joined_show_their_own_figures():
    figures = {"steps": 50, "envs": 8, "rebuilds": 1, "lost_answers": 2}
    roles = {name: {**make_role(), "figures": figures, "memory_mb": 512.0} for name in ("env0", "env8")}
    line = show_line(Progress(step=100, env_rate=20.0), {"state": "running", "roles": roles})
    for text in ("env steps/s 20", "envs 16", "envs rebuilt 2", "lost answers 4", "memory 1.0 GB", "2/2 running"):
        assert text in line
    assert not any(text in line for text in ("score", "train ratio", "updates", "device", "replay"))


def test_machines_that_have_joined_are_counted():
    machines = {f"host{i}": {"state": "running", "processes": 12} for i in range(2)}
    assert ", 2 machines joined (24 processes)" in show_line(PROGRESS, {**STATUS, "machines": machines})
    machines = {"a": {"state": "silent", "processes": 12}, "b": {"state": "starting", "processes": 1}}
    machines["c"] = {"state": "stopped", "processes": 1}
    line = show_line(PROGRESS, {**STATUS, "machines": machines})
    assert ", 1 machine joined (1 process), 1 machine silent" in line
    assert "machine" not in show_line(PROGRESS, {**STATUS, "machines": {}})


@pytest.mark.parametrize("is_terminal", [True, False])
def test_updates_are_shown_where_they_are_the_limit(is_terminal):
    console = make_console(160, is_terminal)
    with Terminal(0, console, total_updates=5000) as terminal:
        terminal.update(None, {"state": "starting", "roles": {}})
        terminal.update(Progress(updates=1234, total_updates=5000, update_rate=2.0, eta_s=1883), STATUS)
    shown = console.file.getvalue()
    assert "0/5,000 updates 0%" in shown
    assert "1,234/5,000 updates 25%" in shown and "ETA 0:31:23" in shown


def test_an_output_without_unicode_gets_what_it_can_encode(monkeypatch):
    content = io.BytesIO()
    with io.TextIOWrapper(content, encoding="ascii", write_through=True) as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        with Terminal(200_000, PatientConsole(force_terminal=True, width=100)) as terminal:
            terminal.update(PROGRESS, STATUS)
        text = content.getvalue().decode()
    assert "training" in text and "score" in text


def test_what_an_agent_said_of_itself_is_not_asked_for_after_the_end():
    roles = {name: make_role(state="done") for name in STATUS["roles"]}
    line = format_line(PROGRESS, {"state": "complete", "roles": roles})
    assert "roles all done" in line and "score 123.5" in line
    assert not any(f"{label} -" in line for label in ("loss", "device", "memory", "checkpoint"))
