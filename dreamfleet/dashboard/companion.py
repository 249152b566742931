"""`python -m dreamfleet.dashboard.companion LOGDIR`: the dashboard of `train --dashboard`, which ends with the run.

Its standard input is a pipe that the launcher holds: when that ends, the launcher is gone, and so is this process.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from dreamfleet.dashboard.server import serve


def main() -> None:
    """Serves until the launcher asks for the end or is gone."""
    os.nice(5)  # the run comes first
    threading.Thread(target=_stop_with_launcher, daemon=True).start()
    serve([Path(sys.argv[1])], "127.0.0.1", None, lambda address: print(address, flush=True))


def _stop_with_launcher() -> None:
    while os.read(sys.stdin.fileno(), 1):  # and not through a buffer, whose lock the end of Python would wait for
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
