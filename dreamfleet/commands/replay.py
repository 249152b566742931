"""`dreamfleet replay`: inspects a replay buffer, and exports or imports episodes."""

import argparse
from pathlib import Path

from dreamfleet.base.logdir import HELD_OUT, TRAIN_REPLAY
from dreamfleet.commands import refuse_words
from dreamfleet.errors import ConfigError

FLAGS = ("capacity", "held-out", "seed")

EXAMPLES = """\
examples:
  dreamfleet replay info ~/logdir/cartpole
  dreamfleet replay export ~/logdir/cartpole episodes/
  dreamfleet replay import episodes/ ~/logdir/offline --held-out 0.1
  dreamfleet train --logdir ~/logdir/offline --task gym_CartPole-v1 --envs 0 --updates 1e5

DIR is a log directory or a replay directory. `info` and `export` also work during training.
Episodes are NPZ files with one array per key and one row per step."""

BINS = 10
BAR = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the action and its paths."""
    parser.usage = "dreamfleet replay info DIR | export DIR EPISODES | import EPISODES DIR [--KEY VALUE ...]"
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
    parser.add_argument(
        "--held-out",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of the episodes to hold out of training, for losses on unseen data (default: 0)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="chooses the held-out episodes (default: 0)")


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Runs the action and prints its result."""
    refuse_words(words, "replay", FLAGS)
    if args.capacity < 0:
        raise ConfigError("capacity", args.capacity, "is negative", "use a number of steps, or 0 for all")
    if not 0 <= args.held_out < 1:
        raise ConfigError("held-out", args.held_out, "must be in [0, 1)", "use a share of the episodes, such as 0.1")
    if args.seed < 0:
        raise ConfigError("seed", args.seed, "is negative", "use a number from 0")
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
    from dreamfleet.replay.episodes import find_episodes, split_episodes

    *sources, target = (path.expanduser() for path in args.paths)
    files, held_out = split_episodes(list(find_episodes(sources)), args.held_out, args.seed)
    directory = target if (target / "state").is_file() else target / TRAIN_REPLAY
    if held_out and directory == target:
        reason = "is a store, beside which held-out episodes have no place"
        raise ConfigError("DIR", str(target), reason, "name the log directory that it is in, or a new one")
    print(f"imported {_add_episodes(files, directory, args.capacity)}")
    if held_out:
        print(f"held out {_add_episodes(held_out, directory.parent / HELD_OUT)}")
    return 0


def _add_episodes(files: list[Path], directory: Path, capacity: int = 0) -> str:
    """Adds episodes to the store in a directory, which may have some already; returns what was done."""
    from dreamfleet.replay import Store
    from dreamfleet.replay.archive import Archive
    from dreamfleet.replay.episodes import count_steps, import_episodes

    present = Archive(directory).steps if (directory / "state").is_file() else 0
    with Store(1, capacity, directory=directory, least=present + count_steps(files)) as store:
        episodes, steps = import_episodes(files, store)
        total = store.stats()["steps"]
    return f"{episodes:,} episodes ({steps:,} steps) to {directory}, {total:,} steps in total"


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
