"""The page beside a real fleet: it is there from the start to the end of the run, and nobody reloads it."""

import json
import os
import re
import signal
import subprocess
import sys

import psutil
import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import WAIT_MS, started
from tests.fleet import DEADLINE_S

pytestmark = pytest.mark.distributed
expect.set_options(timeout=WAIT_MS)


def find_chart(page, metric: str):
    return page.locator(f".chart[data-metric='{metric}']").first


def kill_role(logdir, name: str) -> None:
    pid = json.loads((logdir / "status.json").read_text())["roles"][name]["pid"]
    if pid:
        psutil.Process(pid).kill()


GATED_ENV = """
import os, time
from dreamfleet.envs.dummy import Dummy

def make():
    while os.path.exists(os.environ["GATE"]):
        time.sleep(0.01)
    return Dummy("image")
"""


@pytest.fixture
def gate(tmp_path_factory, monkeypatch):
    """The module `gated` for processes started in the test; its environments cannot be built while this file exists."""
    directory = tmp_path_factory.mktemp("modules")
    (directory / "gated.py").write_text(GATED_ENV)
    monkeypatch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)
    monkeypatch.setenv("GATE", str(directory / "closed"))
    return directory / "closed"


def test_a_run_from_its_start_to_its_end(tmp_path, dashboard, page, gate):
    page.goto(dashboard)
    expect(page.get_by_text("No runs yet")).to_be_visible()
    page.evaluate("window.wasLoadedOnce = true")
    logdir = tmp_path / "first"
    options = ("--preset", "debug", "--task", "gated:make", "--steps", "1e7", "--replay.capacity", "2000")
    with started("train", *options, "--logdir", logdir) as run:
        # It appears by itself, and its score grows.
        expect(page.get_by_role("heading", name="first")).to_be_visible()
        expect(page.locator("#phase")).to_have_text("training")
        chart = find_chart(page, "episode/score")
        expect(chart).to_have_attribute("data-points", re.compile(r"[1-9]\d*"))
        expect(chart).not_to_have_attribute("data-points", chart.get_attribute("data-points"))
        step = page.locator("#step")
        expect(step).not_to_have_text(step.inner_text())
        expect(page.locator("#bottleneck")).not_to_be_empty()

        # A killed role turns red, and green again.
        page.get_by_role("button", name="Fleet").click()
        env = page.locator(".picture .node[data-role=env0]")
        expect(env).to_have_class("node running")
        gate.touch()
        kill_role(logdir, "env0")
        expect(env).to_have_class("node restarting")
        gate.unlink()
        expect(env).to_have_class("node running")
        row = page.locator("#roles tr[data-role=env0]")
        expect(row.locator("td").nth(2)).to_have_text("1")
        expect(page.locator(".fault").first).to_contain_text("env0 restarted")
        for role in ("agent", "replay", "logger", "env0"):
            cells = page.locator(f"#roles tr[data-role={role}] td")
            expect(cells.nth(4)).to_contain_text("%")
            expect(cells.nth(5)).to_contain_text(re.compile(r"\d [MG]B"))

        # Its log can be searched.
        page.locator("#log-role").select_option("env0")
        page.locator("#log-search").fill("incarnation 1")
        expect(page.get_by_label("log", exact=True)).to_contain_text("env0 incarnation 1")

        # A dream plays.
        page.get_by_role("button", name="Dreams").click()
        dream = page.locator("[data-report='report.open_loop.image']")
        expect(dream.locator("[data-ready]")).to_be_visible()
        frame = dream.locator("canvas").get_attribute("data-frame")
        expect(dream.locator("canvas")).not_to_have_attribute("data-frame", frame or "")
        dream.get_by_label("frame").fill("0")
        expect(dream.locator("canvas")).to_have_attribute("data-frame", "0")

        # The run ends, and the page says so.
        page.get_by_role("button", name="Overview").click()
        run.send_signal(signal.SIGINT)
        expect(page.locator("#phase")).to_have_text("stopped")
        assert page.evaluate("window.wasLoadedOnce")


def test_the_dashboard_of_a_train_command(tmp_path, page):
    options = ("--preset", "random", "cartpole", "--steps", "1e7", "--logdir", tmp_path / "run", "--dashboard")
    with started("train", *options) as run:
        assert run.stdout
        line = next(line for line in run.stdout if line.startswith("dashboard: "))
        page.goto(line.split()[-1])
        expect(page.get_by_role("heading", name="run", exact=True)).to_be_visible()
        chart = find_chart(page, "episode/score")
        expect(chart).to_have_attribute("data-points", re.compile(r"\d\d+"))
        run.send_signal(signal.SIGINT)
        # The last state is still sent, and what was drawn stays.
        expect(page.locator("#phase")).to_have_text("stopped")
        expect(page.locator("#notice")).to_contain_text("The dashboard has ended")
        expect(chart).to_be_visible()
        page.goto("about:blank")
        assert run.wait(DEADLINE_S) == 130
    # Not those of its tries to come back, which the end may have found in the queue of the socket.
    page.errors[:] = [error for error in page.errors if not re.search("ERR_CONNECTION_(REFUSED|RESET)", error)]


def test_the_dashboard_of_a_train_command_that_was_killed_ends_too(tmp_path):
    command = [sys.executable, "-m", "dreamfleet.dashboard.companion", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as companion:
        assert companion.stdin and companion.stdout
        try:
            assert companion.stdout.readline().startswith("http://127.0.0.1:")
            companion.stdin.close()  # as the end of the process that holds it does
            assert companion.wait(DEADLINE_S) in (0, -signal.SIGTERM)
        finally:
            companion.kill()
