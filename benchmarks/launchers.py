"""What the Ray launcher costs beside the local one (the baseline): steps per second, and the time to start."""

import itertools
import logging
import os
import statistics
from collections.abc import Callable

import ray

from benchmarks.report import Case, finish, parse_args
from benchmarks.transport import TURNS, measure_pipeline, measure_start

TRANSPORTS = {"auto": "unix sockets", "zmq": "tcp with curve"}
CLUSTER_CPUS = 32  # more than the environment workers of a case


def main() -> None:
    parser = parse_args(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement")
    parser.add_argument("--turns", type=int, default=TURNS, help="measurements of each case; the median counts")
    args = parser.parse_args()
    os.environ.pop("RAY_ADDRESS", None)
    finish("launchers", [*measure_rates(args.seconds, args.turns), *measure_starts(args.turns)], args.json)


def measure_rates(seconds: float, turns: int) -> list[Case]:
    """Whole fleets of eight environment processes, over the same transport."""
    cases = []
    for transport, name in TRANSPORTS.items():

        def measure(launcher: str, transport: str = transport) -> float:
            return measure_pipeline(transport, 8, 1, "ram", seconds, launcher)

        cases.append(Case(f"pipeline 8x1, {name}", "env steps/s", "higher", *in_turns(measure, turns)))
    return cases


def measure_starts(turns: int) -> list[Case]:
    """Seconds to the first step of 16 environments, with a cluster that is started for it and with an existing one."""

    def measure(launcher: str) -> float:
        return measure_start("auto", launcher)["first step s"]

    own = in_turns(measure, turns)
    ray.init("local", num_cpus=CLUSTER_CPUS, include_dashboard=False, logging_level=logging.ERROR)
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    joined = in_turns(measure, turns)
    del os.environ["RAY_ADDRESS"]
    ray.shutdown()
    return [
        Case("first step s, cluster started for it", "s", "lower", *own),
        Case("first step s, existing cluster", "s", "lower", *joined),
    ]


def in_turns(measure: Callable[[str], float], turns: int) -> tuple[float, float]:
    """The medians with Ray and without."""
    values: dict[str, list[float]] = {"ray": [], "local": []}
    for _, launcher in itertools.product(range(turns), values):
        values[launcher].append(measure(launcher))
    return statistics.median(values["ray"]), statistics.median(values["local"])


if __name__ == "__main__":
    main()
