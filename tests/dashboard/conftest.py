"""A dashboard as its own process, and a real browser to look at it with."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import quick_jax
from tests.fleet import DEADLINE_S

quick_jax.set_up()

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_MS = 1000 * DEADLINE_S
HOLDING = """
const fetchNow = window.fetch;
window.held = []; // what lets each answer go
window.fetch = async (address, ...how) => {
    const answer = await fetchNow(address, ...how);
    if (!window.heldPath || !address.startsWith(window.heldPath)) return answer;
    const text = await answer.text();
    await new Promise((resolve) => window.held.push(resolve));
    return { ok: answer.ok, text: async () => text, json: async () => JSON.parse(text) };
};
"""


@contextlib.contextmanager
def started(*words: object, **how) -> Iterator[subprocess.Popen]:
    """A command of dreamfleet in the background, ended with all that it started."""
    command = [sys.executable, "-m", "dreamfleet", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, **how)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        assert process.stdout
        print(process.stdout.read())  # for a test that failed
        process.stdout.close()


@contextlib.contextmanager
def serving(*logdirs: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """A dashboard on any free port; gives its address without the slash at the end."""
    with started("dashboard", *logdirs, "--host", host, "--port", 0) as process:
        assert process.stdout
        line = process.stdout.readline()
        assert "http://" in line, line
        yield line.split()[-1].rstrip("/")


@pytest.fixture
def dashboard(tmp_path) -> Iterator[str]:
    """The address of a dashboard on the runs below tmp_path."""
    with serving(tmp_path) as address:
        yield address


@pytest.fixture(scope="session")
def browser():
    """Debian's chromium, without a window."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs chromium")
    flags = [*FLAGS, *(["--no-sandbox"] if os.getuid() == 0 else [])]
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, headless=True, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """A page at which no error may appear."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.errors = errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield page
    assert errors == []
    context.close()


class HeldAnswers:
    """Answers that the server has given, and that the page gets when a test says so: in the order that it chooses."""

    def __init__(self, page):
        self._page = page
        page.add_init_script(HOLDING)

    def hold(self, path: str) -> None:
        self._page.evaluate("(path) => { window.heldPath = path; }", path)

    def wait(self, count: int) -> None:
        """Until so many are held."""
        self._page.wait_for_function("(count) => window.held.length >= count", arg=count)

    def release(self, index: int | None = None) -> None:
        """Lets one of them go, or all and those that come; returns when the page has done what it does with them."""
        self._page.evaluate(
            """(index) => {
                if (index === null) window.heldPath = "";
                window.held.filter((_, i) => index === null || i === index).forEach((release) => release());
                return new Promise((resolve) => setTimeout(resolve));
            }""",
            index,
        )


@pytest.fixture
def held_answers(page) -> HeldAnswers:
    """To be asked for before the page is opened."""
    return HeldAnswers(page)
