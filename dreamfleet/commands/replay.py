"""`dreamfleet replay`: inspects a replay buffer, and exports or imports episodes."""

import argparse
from pathlib import Path

from dreamfleet.base.logdir import TRAIN_REPLAY
from dreamfleet.commands import refuse_words
from dreamfleet.errors import ConfigError

FLAGS = ("capacity",)

EXAMPLES = """\
examples:
  dreamfleet replay info ~/logdir/cartpole
  dreamfleet replay export ~/logdir/cartpole episodes/
  dreamfleet replay import episodes/ ~/logdir/offline
  dreamfleet train --logdir ~/logdir/offline --task gym_CartPole-v1 --run.envs 0 --run.train_ratio 0 --duration 600

DIR is a log directory or a replay directory. `info` and `export` also work during training.
Episodes are NPZ files with one array per key and one row per step."""

BINS = 10
BAR = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the action and its paths."""
    parser.usage = "dreamfleet replay info DIR | export DIR EPISODES | import EPISODES DIR [--capacity STEPS]"
    parser.epilog = EXAMPLES
    parser.add_argument("action", choices=("info", "export", "import"), metavar="ACTION", help="info, export or import")
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="replay directory, and directory of episodes"
    )
    parser.add_argument(
        "--capacity",
        type=int,
        default=0,
        metavar="STEPS",
        help="capacity of the replay buffer in steps (default: large enough for all episodes)",
    )


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Runs the action and prints its result."""
    refuse_words(words, "replay", FLAGS)
    if args.capacity < 0:
        raise ConfigError("capacity", args.capacity, "is negative", "use a number of steps, or 0 for all")
    counts = {"info": (1, 1), "export": (2, 2), "import": (2, None)}
    least, most = counts[args.action]
    if not least <= len(args.paths) <= (most or len(args.paths)):
        reason = f"got {len(args.paths)} paths"
        raise ConfigError("replay", args.action, reason, f"expected {least}; see dreamfleet replay --help")
    return {"info": _info, "export": _export, "import": _import}[args.action](args)


def _info(args: argparse.Namespace) -> int:
    from dreamfleet.replay.archive import Archive
    from dreamfleet.replay.space import format_bytes

    archive = Archive(args.paths[0])
    scores, episodes = _scores(archive)
    print(f"replay    {archive.directory}")
    print(f"steps     {archive.steps:,} of {archive.capacity:,} ({archive.committed:,} added in total)")
    trajectories = sum(1 for _ in archive.trajectories())
    print(f"episodes  {episodes:,} ({len(scores):,} complete) in {trajectories:,} trajectories")
    print(f"size      {format_bytes(archive.bytes)}, {archive.schema.row_bytes:,} bytes per step")
    for column in archive.schema.columns.values():
        print(f"          {column.name} {column}")
    for line in _histogram(scores):
        print(line)
    return 0


def _export(args: argparse.Namespace) -> int:
    from dreamfleet.replay.archive import Archive
    from dreamfleet.replay.episodes import export_episodes

    archive = Archive(args.paths[0])
    count = export_episodes(archive, args.paths[1].expanduser())
    print(f"exported {count:,} episodes ({archive.steps:,} steps) to {args.paths[1]}")
    return 0


def _import(args: argparse.Namespace) -> int:
    from dreamfleet.replay import Store
    from dreamfleet.replay.archive import Archive
    from dreamfleet.replay.episodes import count_steps, find_episodes, import_episodes

    *sources, target = (path.expanduser() for path in args.paths)
    files = list(find_episodes(sources))
    directory = target if (target / "state").is_file() else target / TRAIN_REPLAY
    present = Archive(directory).steps if (directory / "state").is_file() else 0
    with Store(1, args.capacity, directory=directory, least=present + count_steps(files)) as store:
        episodes, steps = import_episodes(files, store)
        total = store.stats()["steps"]
    print(f"imported {episodes:,} episodes ({steps:,} steps) to {directory}, {total:,} steps in total")
    return 0


def _scores(archive) -> tuple[list[float], int]:
    """Scores of complete episodes, and the number of all episodes."""
    scores, count = [], 0
    has_reward = "reward" in archive.schema.columns
    for _, segments, rows in archive.episodes():
        count += 1
        is_first, is_last = (archive.column(name, segments, rows) for name in ("is_first", "is_last"))
        if has_reward and is_first[0] and is_last[-1]:
            scores.append(float(archive.column("reward", segments, rows).sum()))
    return scores, count


def _histogram(scores: list[float]) -> list[str]:
    if not scores:
        return ["scores    no complete episode with rewards"]
    import numpy as np

    counts, edges = np.histogram(scores, BINS)
    lines = [f"scores    mean {np.mean(scores):.1f}, min {min(scores):.1f}, max {max(scores):.1f}"]
    for count, low, high in zip(counts.tolist(), edges, edges[1:], strict=False):
        lines.append(f"{low:12.1f} to {high:10.1f} {count:8,} {'#' * round(BAR * count / counts.max())}")
    return lines
