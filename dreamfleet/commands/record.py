"""`dreamfleet record`: records videos of evaluation episodes and of the world model's open-loop predictions."""

import argparse
import contextlib
import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dreamfleet.base.hints import choose_from
from dreamfleet.commands.eval import add_run_arguments
from dreamfleet.errors import ConfigError
from dreamfleet.launch.modules import check_modules
from dreamfleet.options import Options

FLAGS = ("episodes", "dreams", "formats", "fps", "max-frames", "out", "checkpoint")
FORMATS = ("mp4", "gif")
DREAM_SLOWDOWN = 3  # they are short, and there is more to compare

EXAMPLES = """\
examples:
  dreamfleet record ~/logdir/cartpole
  dreamfleet record ~/logdir/crafter --episodes 3 --dreams 6 --report_length 64 --formats mp4
  dreamfleet record ~/logdir/crafter --episodes 0 --out dreams/

Episodes show the environment's render(), or else the largest image observation. Open-loop predictions ("dreams") start
from the first half of a sequence of report_length steps and get only the actions of the second half. Rows: truth,
prediction, difference; one column per sequence.
Requires the extra video."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the run, what to record and the output."""
    parser.usage = (
        "dreamfleet record LOGDIR [--episodes N] [--dreams N] [--formats mp4 gif] [--fps N] [--max-frames N]"
        " [--out DIR] [--checkpoint best|latest|NAME] [--KEY VALUE ...]"
    )
    parser.epilog = EXAMPLES
    add_run_arguments(parser)
    parser.add_argument("--episodes", type=int, default=1, metavar="N", help="episodes to record (default: 1)")
    parser.add_argument(
        "--dreams", type=int, default=4, metavar="N", help="open-loop predictions to record, 0 for none (default: 4)"
    )
    parser.add_argument(
        "--formats", nargs="+", default=FORMATS, metavar="NAME", help="mp4, gif or both (default: both)"
    )
    parser.add_argument("--fps", type=float, default=30.0, metavar="N", help="frames per second (default: 30)")
    parser.add_argument(
        "--max-frames", type=int, default=1000, metavar="N", help="maximum frames per episode (default: 1000)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="output directory (default: LOGDIR/videos/CHECKPOINT)")


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Records in this process and prints the files."""
    _check(args)
    from dreamfleet.launch.trained import load_run, make_trained_agent
    from dreamfleet.results.extras import load_extra

    for module in ("av", "PIL.Image"):
        load_extra(module, "video", "record")
    saved = load_run(args.logdir, words, args.checkpoint, FLAGS)
    check_modules(saved.options, "agent", "task")
    out = (args.out or Path(saved.options.logdir) / "videos" / saved.checkpoint.name).expanduser()
    say = functools.partial(print, file=sys.stdout, flush=True)
    # Environments may print; standard output is for the result.
    with contextlib.redirect_stdout(sys.stderr):
        agent = make_trained_agent(saved)
        if args.episodes:
            _record_episodes(args, saved.options, agent, out, say)
        if args.dreams:
            _record_dreams(args, saved.options, agent, out, say)
    return 0


def _check(args: argparse.Namespace) -> None:
    least = {"episodes": 0, "dreams": 0, "max_frames": 1}
    for key, number in least.items():
        if getattr(args, key) < number:
            raise ConfigError(key.replace("_", "-"), getattr(args, key), "is too small", f"use at least {number}")
    if not 1 <= args.fps <= 240:
        raise ConfigError("fps", args.fps, "is out of range", "use 1 to 240")
    for name in args.formats:
        if name not in FORMATS:
            raise ConfigError("formats", name, "is unknown", choose_from(name, FORMATS))
    if not args.episodes and not args.dreams:
        raise ConfigError("dreams", 0, "leaves nothing to record with --episodes 0", "set one of them to at least 1")


def _record_episodes(args: argparse.Namespace, options: Options, agent: Any, out: Path, say: Callable) -> None:
    from dreamfleet.envs.rendering import WithFrame
    from dreamfleet.launch.trained import make_eval_env
    from dreamfleet.results.recording import record_episodes
    from dreamfleet.results.rollout import Rollout
    from dreamfleet.results.video import VideoWriter

    def make_video(index: int) -> VideoWriter:
        return VideoWriter(out / f"episode_{index:03d}", args.formats, args.fps)

    make = make_eval_env(options, render=True)
    mode = options.run.eval_policy
    with Rollout(agent, lambda index: WithFrame(make(index), options.task), 1, mode) as rollout:
        for recording in record_episodes(rollout, args.episodes, make_video, args.max_frames):
            shown = f" (first {recording.video.frames:,} recorded)" if recording.video.frames < recording.length else ""
            for file in recording.video.files:
                say(f"{file}: score {recording.score:,.1f}, {recording.length:,} frames{shown}")


def _record_dreams(args: argparse.Namespace, options: Options, agent: Any, out: Path, say: Callable) -> None:
    from dreamfleet.launch.trained import make_eval_env
    from dreamfleet.results.captions import caption, is_dream
    from dreamfleet.results.recording import report_videos
    from dreamfleet.results.rollout import Rollout
    from dreamfleet.results.video import VideoWriter

    with Rollout(agent, make_eval_env(options), args.dreams, options.run.eval_policy) as rollout:
        if not rollout.has_images:
            say(f"no open-loop predictions: {options.task} has no image observations")
            return
        videos = report_videos(agent, rollout, options.report_length + options.replay_context)
    if not videos:
        say(f"no open-loop predictions: the report of {options.agent} has no videos")
    for name, frames in videos.items():
        stem = re.sub(r"[^\w.-]+", "_", f"dream_{name.removeprefix('open_loop/')}")
        with VideoWriter(out / stem, args.formats, args.fps / DREAM_SLOWDOWN) as video:
            for frame in caption(frames) if is_dream(name, frames) else frames:
                video.add(frame)
        for file in video.files:
            say(f"{file}: {args.dreams} open-loop predictions, {len(frames)} frames")
