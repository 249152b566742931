"""`dreamfleet dashboard`: shows runs in the browser, live or finished."""

import argparse
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dreamfleet.base.extras import check_installed, install_command
from dreamfleet.commands import refuse_words
from dreamfleet.errors import ConfigError

FLAGS = ("host", "port")
PACKAGES = ("starlette", "uvicorn", "bokeh")
DEFAULT = Path("~/logdir")
STOP_S = 10.0

EXAMPLES = """\
examples:
  dreamfleet dashboard
  dreamfleet dashboard ~/logdir/cartpole ~/logdir/pong
  ssh -L 8787:localhost:8787 trainer dreamfleet dashboard --port 8787

LOGDIR is a run or a directory of runs (default: ~/logdir). Runs that start later appear by themselves.
The page only reads: it cannot change or disturb a run. Only this machine can open it; with another --host the address
that is printed has a token. The connection is not encrypted: prefer ssh as above.
Requires the extra dashboard."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the runs and the address."""
    parser.usage = "dreamfleet dashboard [LOGDIR ...] [--host HOST] [--port PORT]"
    parser.epilog = EXAMPLES
    parser.add_argument("logdirs", nargs="*", type=Path, metavar="LOGDIR", help="runs, or directories of runs")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port, 0 for any free one (default: the first free one from 8787)")


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Serves the page until Ctrl-C."""
    refuse_words(words, "dashboard", FLAGS)
    if args.port is not None and not 0 <= args.port < 1 << 16:
        raise ConfigError("port", args.port, "must be in [0, 65535]", "choose another one")
    check_packages()
    roots = [_find_root(path) for path in args.logdirs or [DEFAULT]]
    from dreamfleet.dashboard.server import serve

    where = ", ".join(map(str, args.logdirs or [DEFAULT]))
    serve(roots, args.host, args.port, lambda address: print(f"dashboard of {where}: {address}", flush=True))
    return 0


def check_packages() -> None:
    """Refuses to start without the packages of the extra."""
    check_installed("command", "dashboard", PACKAGES, f"run {install_command('dashboard')}")


@contextlib.contextmanager
def open_dashboard(logdir: str) -> Iterator[None]:
    """Runs a dashboard in a process of its own while the block lasts; it ends with this process, however that ends."""
    check_packages()
    Path(logdir).mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "dreamfleet.dashboard.companion", str(Path(logdir).absolute())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the run, whose end the page still shows
        text=True,
    )
    assert process.stdin and process.stdout
    try:
        print(f"dashboard: {process.stdout.readline().strip() or 'did not start'}", flush=True)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdin.close()
        process.stdout.close()


def _find_root(path: Path) -> Path:
    root = path.expanduser().resolve()
    if path == DEFAULT:
        return root  # may come into being later
    if not root.is_dir():
        raise ConfigError("logdir", str(path), "is not a directory", "name a run or a directory of runs")
    return root
