"""`dreamfleet import-reference`: takes over what can be of a run of the reference implementation."""

import argparse
import shlex
from pathlib import Path
from typing import Any

from dreamfleet.base.logdir import TRAIN_REPLAY
from dreamfleet.commands import refuse_words
from dreamfleet.errors import ConfigError

FLAGS = ()
IMPORTED = "imported"  # holds the weights, in the new log directory
SHOWN = 12  # names in a list

EXAMPLES = """\
example:
  dreamfleet import-reference ~/logdir/dreamerv3/pong ~/logdir/pong

DIR is a log directory of danijar/dreamerv3, which is only read. Its config becomes a `dreamfleet train` command, its
replay chunks go to the replay buffer of NEW_LOGDIR, and its agent's weights to NEW_LOGDIR/imported. No code in its
pickled files is run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the two directories."""
    parser.usage = "dreamfleet import-reference DIR NEW_LOGDIR"
    parser.epilog = EXAMPLES
    parser.add_argument("source", type=Path, metavar="DIR", help="log directory of danijar/dreamerv3")
    parser.add_argument("logdir", type=Path, metavar="NEW_LOGDIR", help="new log directory")


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Imports, and prints what was taken, what was not, and how to go on."""
    from dreamfleet.migration.logdirs import CONFIG, EVAL_REPLAYS, OLD_CHECKPOINT, find_checkpoint, find_chunks

    refuse_words(words, "import-reference", FLAGS)
    source, logdir = args.source.expanduser(), args.logdir.expanduser()
    checkpoint, chunks = find_checkpoint(source), find_chunks(source)
    if not checkpoint and not chunks:
        reason = "holds neither a checkpoint (ckpt/.../agent.pkl) nor a replay (replay/*.npz) of danijar/dreamerv3"
        raise ConfigError("DIR", str(args.source), reason, "name one of its log directories")
    if logdir.exists() and any(logdir.iterdir()):
        raise ConfigError("NEW_LOGDIR", str(args.logdir), "is not empty", "name a new directory")
    options = _import_options(source / CONFIG)
    if checkpoint:
        options |= _import_weights(checkpoint, logdir)
    if chunks:
        _import_replay(chunks, logdir)
    _tell_rest([OLD_CHECKPOINT] if (source / OLD_CHECKPOINT).is_file() else [], "an older version's, which is not read")
    _tell_rest([name for name in EVAL_REPLAYS if find_chunks(source, name)], "evaluation collects its own steps")
    print("\nnot taken: optimiser, normalisers, step counter, metrics; training starts at step 0 with what was taken")
    command = [f"--{key} {shlex.quote(_word(value))}" for key, value in {"logdir": str(logdir), **options}.items()]
    print("\ngo on with:\n  dreamfleet train " + " \\\n    ".join(command))
    return 0


def _import_options(path: Path) -> dict[str, Any]:
    from dreamfleet.migration.settings import read_config, translate_options

    if not path.is_file():
        print(f"options   there is no {path.name}: give the task and the model's sizes yourself")
        return {}
    taken, left = translate_options(read_config(path))
    print(f"options   {len(taken)} differ from our defaults; {len(left)} have no counterpart or were refused:")
    for key, reason in left.items():
        print(f"            {key} = {reason}")
    return taken


def _import_weights(checkpoint: Path, logdir: Path) -> dict[str, Any]:
    from dreamfleet.checkpoint import Checkpoints
    from dreamfleet.migration.weights import read_weights, translate_weights

    params, updates = read_weights(checkpoint)
    taken, left = translate_weights(params)
    target = logdir / IMPORTED
    draft = Checkpoints(target).draft(0)
    draft.write("agent", taken)
    draft.commit({"updates": updates, "elapsed_s": 0.0})
    print(f"weights   {len(taken)} of {len(params)} arrays after {updates:,} updates, to {target}")
    if left:
        print(f"            not taken: {_few(left, ', ')}")
    return {"run.from_checkpoint": str(target), "run.from_checkpoint_regex": "^(model|learning/slow_critic)/"}


def _import_replay(chunks: list[Path], logdir: Path) -> None:
    from dreamfleet.migration.chunks import count_rows, import_chunks
    from dreamfleet.replay import Store

    with Store(1, 0, directory=logdir / TRAIN_REPLAY, least=count_rows(chunks)) as store:
        rows, left = import_chunks(chunks, store)
    print(f"replay    {rows:,} steps of {len(chunks) - len(left):,} chunks, to {logdir / TRAIN_REPLAY}")
    if left:
        print(f"            not taken: {_few([f'{path.name}: {why}' for path, why in left.items()])}")


def _tell_rest(names: list[str], why: str) -> None:
    for name in names:
        print(f"{name:<9} not taken: {why}")


def _few(words: list[str], between: str = "\n                       ") -> str:
    more = [f"and {len(words) - SHOWN} more"] if len(words) > SHOWN else []
    return between.join(words[:SHOWN] + more)


def _word(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
