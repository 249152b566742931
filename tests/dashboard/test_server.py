"""The server as a process: what it answers, to whom, and what it never does."""

import base64
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import numpy as np
import psutil
import pytest

from dreamfleet.metrics.reports import ReportWriter
from dreamfleet.results.curves import load_run_curve
from tests.dashboard.client import Events, ask, get, send_raw
from tests.dashboard.conftest import serving, started
from tests.dashboard.runs import append, keep_alive, write_run, write_status
from tests.fleet import DEADLINE_S

pytestmark = pytest.mark.distributed


def decode(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f8")


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def test_runs_series_and_files(tmp_path, run, dashboard):
    (summary,) = ask(dashboard, "runs")
    assert summary["name"] == "run" and summary["task"] == "gym_CartPole-v1" and summary["phase"] == "finished"
    assert summary["progress"]["score"] == 12.5
    assert {"train/m0", "episode/score"} <= set(ask(dashboard, "metrics", run="run")["run"])
    series = ask(dashboard, "series", run="run", metric="episode/score", window=5)["run"]["episode/score"]
    curve = load_run_curve(run, "episode/score", "step")
    np.testing.assert_array_equal(decode(series["x"]), curve.xs)  # the same as `dreamfleet plot`
    np.testing.assert_array_equal(decode(series["y"]), curve.ys)
    assert len(decode(series["sy"])) == len(curve.ys) and series["total"] == 40
    hours = ask(dashboard, "series", run="run", metric="train/m0", axis="hours")["run"]["train/m0"]
    assert decode(hours["x"])[1] == pytest.approx(10 / 3600)
    status, body, headers = get(dashboard, "/api/csv", run="run", metric="episode/score")
    lines = body.decode().splitlines()
    assert (
        status == 200
        and lines[0] == "run,step,time,episode/score"
        and len(lines) == 41
        and lines[2] == "run,10,1010.0,1.0"
    )
    assert "episode_score.csv" in headers["content-disposition"]
    assert ask(dashboard, "configs", run="run")["run"]["task"] == "gym_CartPole-v1"


def test_seeds_are_put_together_as_plot_does(tmp_path, dashboard):
    for seed in (0, 1):
        write_run(tmp_path / f"seed_{seed}", seed=seed)
    write_run(tmp_path / "other", **{"dreamer.horizon": 100})
    events = Events(dashboard)
    groups: dict[str, str] = {}
    while len(groups) < 3:
        groups |= {run["name"]: run["group"] for run in events.wait("runs")["changed"] if run["group"]}
    events.close()
    assert groups["seed_0"] == groups["seed_1"] != groups["other"]
    band = ask(dashboard, "band", run=["seed_0", "seed_1"], metric="episode/score")
    assert band["runs"] == 2 and (decode(band["std"]) == 0).all() and len(decode(band["x"])) > 10


def test_only_what_is_new_is_sent_and_a_lost_connection_goes_on(tmp_path, run, dashboard):
    ask(dashboard, "runs")
    with Events(dashboard, run="run", window=2) as events, Events(dashboard, run="run") as other:
        for stream in (events, other):
            stream.wait("fleet")
        append(run / "scores.jsonl", [(5000, {"episode/score": 50.0, "episode/length": 3})])
        for stream in (events, other):
            rows = stream.wait("rows", lambda rows: rows["file"] == "scores.jsonl")
            assert rows["rows"] == 41 and rows["values"]["episode/score"][:3] == [[40], [5000.0], [50.0]]
        last = events.last_id
        events.close()
        append(run / "scores.jsonl", [(5010, {"episode/score": 60.0, "episode/length": 3})])
        other.wait("rows")  # the server knows the line before the browser is back
        events = Events(dashboard, {"Last-Event-ID": last}, run="run", window=2)
        rows = events.wait("rows")
        events.close()
        assert rows["values"]["episode/score"] == [[41], [5010.0], [60.0], [55.0]]


def test_a_page_gets_the_metrics_that_it_has_on_screen_and_the_names_of_all(run, dashboard):
    ask(dashboard, "runs")
    with Events(dashboard, run="run", page="mine") as events:
        names = events.wait("names")["metrics"]
        assert {"train/m0", "train/m4", "episode/score"} <= set(names)
        ask(dashboard, "watch", page="other", metric=["train/m0"])
        ask(dashboard, "watch", page="mine", metric=["train/m1", "train/new", "no/such"])
        append(run / "metrics.jsonl", [(5000, {"train/m0": 1.0, "train/m1": 2.0, "train/new": 3.0})])
        assert events.wait("names")["metrics"] == [*names[:5], "train/new", *names[5:]]
        rows = events.wait("rows", lambda rows: rows["file"] == "metrics.jsonl")
        assert rows["values"] == {"train/m1": [[100], [5000.0], [2.0]], "train/new": [[100], [5000.0], [3.0]]}


def test_a_run_that_starts_later_appears_and_one_that_is_removed_goes(tmp_path, run, dashboard):
    with Events(dashboard) as events:
        events.wait("runs", lambda runs: runs["changed"][0]["name"] == "run")
        write_run(tmp_path / "later" / "seed_0")
        events.wait("runs", lambda runs: any(run["name"] == "later/seed_0" for run in runs["changed"]))
        (tmp_path / "later").rename(tmp_path / ".later")
        events.wait("runs", lambda runs: "later/seed_0" in runs["gone"])


def test_a_page_that_has_not_heard_that_its_run_is_gone_is_answered(dashboard):
    for path in ("metrics", "series", "configs"):
        assert ask(dashboard, path, run="gone", metric="episode/score") == {}
    assert ask(dashboard, "band", run="gone", metric="episode/score")["runs"] == 0
    assert ask(dashboard, "faults", run="gone") == []
    assert ask(dashboard, "log", run="gone", role="agent") == {"roles": [], "lines": []}


def test_the_fleet(tmp_path, run, dashboard):
    wait = {"what": "learner: ratio allows no insert", "seconds": 9.0, "share": 0.81}
    dead = {"state": "starting", "restarts": 2, "exit": "killed by SIGKILL"}
    write_status(run, "running", agent={}, replay={"waits": [wait]}, logger={})
    (run / "logs").mkdir()
    trace = "Traceback (most recent call last):\n  File x\nValueError: no\n"
    (run / "logs" / "env0.log").write_text(f"--- 2026-01-02 03:04:05 env0 incarnation 1 pid 7 ---\n{trace}")
    fleet = ask(dashboard, "fleet", run="run")
    assert fleet["bottleneck"] == "learner-bound: acting waits 81 % of the time for the train ratio"
    (edge,) = fleet["edges"]
    assert (edge["who"], edge["for"], edge["is_cause"]) == ("replay", "learner", True)
    with Events(dashboard, run="run") as events:
        write_status(run, "running", agent={}, replay={}, logger={}, env0=dead)
        fleet = events.wait("fleet", lambda fleet: len(fleet["roles"]) == 4)
    assert fleet["roles"][-1]["state"] == "restarting" and fleet["edges"] == []
    faults = ask(dashboard, "faults", run="run")
    assert [fault["what"] for fault in faults] == ["restarted (incarnation 1)", "ValueError: no"]
    assert ask(dashboard, "log", run="run", role="env0", search="VALUE")["lines"] == ["ValueError: no"]


def test_a_resumed_run_has_no_faults_for_that(run, dashboard):
    write_status(run, "running", agent={})
    (run / "logs").mkdir()
    lives = ("2026-01-02 03:04:05 agent incarnation 0 pid 7", "2026-01-02 04:04:05 agent incarnation 1 pid 8")
    (run / "logs" / "agent.log").write_text("".join(f"--- {life} ---\n" for life in lives))
    assert ask(dashboard, "faults", run="run") == []


def test_roles_that_have_joined(tmp_path, run, dashboard):
    write_status(run, "running", agent={}, replay={}, logger={})
    worker = run / "joined" / "envs"
    wait = {"what": "actor.act", "seconds": 9.0, "share": 0.9}
    write_status(worker, "running", env0={"waits": [wait]}, env1={"state": "starting", "restarts": 1})
    (worker / "owner-there").touch()
    (worker / "logs").mkdir()
    (worker / "logs" / "env0.log").write_text("hello\n")
    (run / "joined" / "run.key").write_text("SECRET")
    fleet = ask(dashboard, "fleet", run="run")
    roles = {role["name"]: role for role in fleet["roles"]}
    assert list(roles) == ["agent", "replay", "logger", "envs/env0", "envs/env1"]
    assert roles["envs/env0"]["kind"] == "env" and roles["envs/env0"]["machine"] == "there"
    assert roles["envs/env1"]["state"] == "restarting"
    assert [(edge["who"], edge["for"]) for edge in fleet["edges"]] == [("env", "actor")]
    assert ask(dashboard, "log", run="run", role="envs/env0")["lines"] == ["hello"]
    assert ask(dashboard, "log", run="run", role="envs/../../run.key")["lines"] == []
    with Events(dashboard, run="run") as events:
        long_ago = time.time() - 60
        os.utime(worker / "status.json", (long_ago, long_ago))
        states = {"envs/env0": "silent", "envs/env1": "silent"}
        events.wait("fleet", lambda fleet: states.items() <= {r["name"]: r["state"] for r in fleet["roles"]}.items())
        write_status(worker, "stopped", env0={})
        events.wait("fleet", lambda fleet: len(fleet["roles"]) == 3)
        write_status(worker, "running", env0={})
        events.wait("fleet", lambda fleet: len(fleet["roles"]) == 4)
        os.utime(worker / "status.json", (1.0, 1.0))  # whoever has not been heard of for very long is gone
        events.wait("fleet", lambda fleet: len(fleet["roles"]) == 3)


def test_how_long_a_run_compiles_and_runs_is_told_by_its_supervisor(run, dashboard):
    wait = {"what": "device: update", "seconds": 69.2, "share": 1.0}
    write_status(run, "running", agent={"waits": [wait], "figures": {"new_updates": 0}})
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps({**status, "elapsed_s": 175.0}))
    keep_alive(run)
    (summary,) = ask(dashboard, "runs")
    assert summary["bottleneck"] == "compiling: for 69 s so far" and summary["progress"]["elapsed_s"] == 175.0


def test_reports(tmp_path, run, dashboard):
    writer = ReportWriter(run, keep=2)
    signals = np.zeros((2, 1, 4, 3))
    for step in (1, 2, 3):
        writer([(step, "report/open_loop/image", np.full((4, 6, 8, 3), step, np.uint8))])
    writer([(3, "report/open_loop_signals/vector", signals)])
    first, second, third = ask(dashboard, "fleet", run="run")["reports"]
    assert (first["step"], second["step"], third["kind"]) == (2, 3, "signals")
    status, body, headers = get(dashboard, "/api/report", run="run", name=second["name"], file=second["file"])
    assert status == 200 and body.startswith(b"\x89PNG") and headers["content-type"] == "image/png"
    assert ask(dashboard, "report", run="run", name=third["name"], file=third["file"])["truth"] == [[[0.0] * 3] * 4]
    status, _, _ = get(dashboard, "/api/report", run="run", name="../..", file="config.yaml")
    assert status == 404


def test_everything_is_served_from_this_machine(dashboard):
    status, page, headers = get(dashboard, "/")
    assert status == 200 and "default-src 'self'" in headers["content-security-policy"]
    for address in re.findall(r'(?:src|href)="([^"]+)"', page.decode()):
        if address.startswith("#"):
            continue
        assert address.startswith("/"), address
        assert get(dashboard, address)[0] == 200, address
    assert get(dashboard, "/charts/bokeh.min.js")[0] == 200 and get(dashboard, "/charts/../../settings.py")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "NONSENSE"])
def test_nothing_can_be_changed(run, dashboard, method):
    assert get(dashboard, "/api/runs", method=method)[0] == 405


def test_other_names_for_this_machine_are_refused(run, dashboard):
    assert get(dashboard, "/api/runs", {"Host": "evil.example:80"})[0] == 421
    assert get(dashboard, "/api/runs", {"Host": "localhost:1"})[0] == 200
    assert get(dashboard, "/api/runs", {"Host": "[::1]:1"})[0] == 200


def test_other_addresses_demand_the_token(tmp_path, run):
    with serving(tmp_path, host="0.0.0.0") as printed:
        match = re.fullmatch(r"http://0\.0\.0\.0:(\d+)/\?token=([\w-]{32})", printed)
        assert match, printed
        address, token = f"http://127.0.0.1:{match[1]}", match[2]
        for path in ("/", "/api/runs", "/static/main.js", "/?token=wrong", "/api/runs?token=" + token, "/?token=%ff"):
            assert get(address, path)[0] == 403, path
        status, _, headers = get(address, "/", token=token, run="run", tab="fleet")
        assert status == 303 and headers["location"] == "/?run=run&tab=fleet"
        assert "HttpOnly" in headers["set-cookie"] and "SameSite=Lax" in headers["set-cookie"]
        cookie = headers["set-cookie"].partition(";")[0]
        assert get(address, "/api/runs", {"Cookie": cookie})[0] == 200
        assert get(address, "/api/runs", {"Cookie": cookie[:-1] + ("x" if cookie[-1] != "x" else "y")})[0] == 403


def test_wrong_usage_is_told_in_one_line(tmp_path, run):
    for words, reason in (
        ((tmp_path / "nothing",), "is not a directory"),
        ((tmp_path, "--port", "99999"), "must be in [0, 65535]"),
        ((tmp_path, "--host", "203.0.113.1"), "cannot be used"),
        ((tmp_path, "--nonsense"), "is unknown"),
    ):
        command = [sys.executable, "-m", "dreamfleet", "dashboard", *map(str, words)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
        assert result.returncode == 2 and reason in result.stderr and len(result.stderr.splitlines()) == 1


def test_half_open_connections_are_closed(tmp_path, run, dashboard):
    parts = urlsplit(dashboard)
    connections = [socket.create_connection((parts.hostname, parts.port)) for _ in range(20)]
    for connection in connections[:10]:
        connection.sendall(b"GET /api/runs HTTP/1.1\r\nHost: loc")
    for connection in connections:
        connection.settimeout(DEADLINE_S)
        assert connection.recv(1000) == b""
        connection.close()
    assert ask(dashboard, "runs")


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.chaos)])
def test_many_bad_requests(tmp_path, run, count):
    """Odd paths, queries, headers and bytes: no crash, nothing from outside, and no growth."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("TOP-SECRET")
    root = tmp_path / "root"
    root.mkdir()
    run.rename(root / "run")
    (root / "run" / "link.jsonl").symlink_to(tmp_path / "outside" / "secret")
    (root / "run" / "logs").symlink_to(tmp_path / "outside")
    (root / "run" / "reports").symlink_to(tmp_path / "outside")
    with started("dashboard", root, "--port", 0) as server:
        assert server.stdout
        address = server.stdout.readline().split()[-1].rstrip("/")
        process = psutil.Process(server.pid)
        rng = np.random.default_rng(0)
        with Events(address, run="run") as slow_reader:  # nobody reads it
            answers: list[bytes] = []
            _send_many(address, rng, count // 4, answers)
            memory, files = process.memory_info().rss, process.num_fds()
            _send_many(address, rng, count - count // 4, answers)
            assert process.memory_info().rss < memory + (24 << 20), "it grows"
            assert process.num_fds() <= files + 8
            slow_reader.wait("runs")
        assert not any(b"TOP-SECRET" in answer or b"root:" in answer for answer in answers)
        assert not any(b" 500 " in answer.partition(b"\r\n")[0] for answer in answers)
        assert ask(address, "runs")[0]["name"] == "run"
        assert server.poll() is None


PATHS = ("runs", "series", "report", "log", "csv", "band", "metrics", "fleet", "configs", "faults", "events", "watch")
PARTS = (
    *("..", "%2e%2e", "..%2f..%2f", "%252e%252e", "..\\", "%c0%ae%c0%ae", "%00", "//", "%ff", "é", "x" * 3000),
    *("etc/passwd", "secret", "outside", "static", "charts", "api", "run", "logs", *PATHS),
)
KEYS = ("run", "metric", "name", "file", "role", "axis", "window", "points", "start", "end", "search", "token", "page")
VALUES = (
    *("run", "../outside", "..%2foutside", "/etc/passwd", "secret", "link.jsonl", "episode/score", "train/m0", ""),
    *("-1", "0", "1e999", "nan", "99999999999999999999", "%00", "%ff%fe", "step", "hours", "update"),
    *("'\"<script>", "%0d%0aSet-Cookie: a=b", "\u2028"),
)
HEADERS = (
    *("Last-Event-ID: {", "Last-Event-ID: [[[[", 'Last-Event-ID: {"run": [1e99, -1, 0, 0]}'),
    *("Range: bytes=0-99999999999", "Content-Length: 99999", "Transfer-Encoding: chunked"),
    *("Cookie: dreamfleet_token=;;=\x01", "X: " + "y" * 70_000),
)


def _send_many(address: str, rng: np.random.Generator, count: int, answers: list[bytes]) -> None:
    requests = [_make_request(rng) for _ in range(count)]
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not requests:
                    return
                request, should_wait = requests.pop()
            try:
                answer = send_raw(address, request, should_wait)
            except OSError as error:  # closed before all was sent, which is an answer too
                assert not isinstance(error, ConnectionRefusedError)
                continue
            with lock:
                answers.append(answer)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _make_request(rng: np.random.Generator) -> tuple[bytes, bool]:
    def choose(items):
        return items[int(rng.integers(len(items)))]

    kind = rng.random()
    if kind < 0.05:
        return rng.bytes(int(rng.integers(1, 400))), bool(rng.random() < 0.5)
    path = "/".join(choose(PARTS) for _ in range(int(rng.integers(1, 5))))
    if kind < 0.6:
        path = f"api/{choose(PATHS)}"
    query = "&".join(f"{choose(KEYS)}={choose(VALUES)}" for _ in range(int(rng.integers(0, 6))))
    headers = [f"Host: {choose(('localhost', '127.0.0.1', 'evil', '', '[::1'))}"] * (1 + (kind > 0.95))
    if rng.random() < 0.2:
        headers.append(choose(HEADERS))
    method = choose(("GET",) * 8 + ("HEAD", "POST", "G\tT"))
    head = f"{method} /{path}?{query} HTTP/1.{choose('10')}"
    data = "\r\n".join([head, *headers, "Connection: close", "", ""]).encode("utf-8", "replace")
    should_cut = rng.random() < 0.05
    return (data[: len(data) // 2] if should_cut else data), not should_cut and "events" not in path
