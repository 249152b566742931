"""A run of guests in this process: `python guest_run.py serial|parallel LOGDIR OPTIONS`, options as JSON."""

import functools
import json
import sys
from pathlib import Path

import elements

from dreamfleet.launch.combined import combined
from dreamfleet.launch.factories import Factories
from dreamfleet.launch.outcome import COMPLETE
from dreamfleet.launch.serial import run_serial
from dreamfleet.options import Args, read_args
from dreamfleet.testing import CountingEnv
from dreamfleet.testing.guests import GuestAgent, GuestBatches, GuestLogger, GuestReplay, GuestWrapper

LENGTH = 9  # one chunk of 8 for training, two of 4 for reports, and the row before


def make_env(index: int) -> GuestWrapper:
    return GuestWrapper(GuestWrapper(CountingEnv(index)))


def make_guests(args: Args) -> Factories:
    """Every part that can be one."""
    options = read_args(args)
    logdir = Path(options.logdir)
    agent = functools.partial(
        GuestAgent,
        actor_batch=options.inference_batch,
        batch_size=options.batch_size,
        report_batches=options.report_batches,
        consec_report=options.consec_report,
        policy_modes=("train",) if options.eval_policy == "train" else ("train", "eval"),
    )
    replays = [functools.partial(GuestReplay, LENGTH, logdir / "guest_replay" / mode) for mode in ("train", "eval")]
    return Factories(
        agent,
        *replays,
        make_env,
        make_env,
        functools.partial(make_stream, options.batch_size, options.consec_report),
        functools.partial(GuestLogger, logdir / "guest_metrics.jsonl"),
    )


def make_stream(batch_size: int, consec_report: int, replay: GuestReplay, mode: str) -> GuestBatches:
    length, consec = (8, 1) if mode == "train" else (8 // consec_report, consec_report)
    return GuestBatches(replay, mode, batch_size, length, consec)


def main(mode: str, logdir: str, options: str) -> int:
    args = elements.Config({"logdir": logdir, **json.loads(options)})
    if mode == "parallel":
        combined(*make_guests(args), args)
        return 0
    return 0 if run_serial(make_guests(args), read_args(args)).state == COMPLETE else 3


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
