"""What a log directory of the reference looks like, so that one is told from ours."""

import contextlib
from pathlib import Path

from dreamfleet.errors import ConfigError

CONFIG = "config.yaml"
REPLAY = "replay"
EVAL_REPLAYS = ("replay_eval", "eval_replay")  # of its parallel script, and of train_eval
CHECKPOINTS = ("ckpt/agent", "ckpt")  # of its parallel script, and of the others
OLD_CHECKPOINT = "checkpoint.ckpt"  # of versions before 2024: one pickled file, which is not read


def find_checkpoint(directory: Path) -> Path | None:
    """The newest complete checkpoint of the reference's agent in a log directory."""
    for folder in (directory / name for name in CHECKPOINTS):
        latest = folder / "latest"
        if folder.is_symlink() or not latest.is_file():  # ours has no file of this name
            continue
        found = sorted((path for path in folder.iterdir() if path.is_dir()), reverse=True)
        with contextlib.suppress(OSError, ValueError):  # it may be damaged
            found.insert(0, folder / latest.read_text(encoding="utf-8").strip())
        return next((path for path in found if (path / "done").exists() and list(path.glob("agent*.pkl"))), None)
    return None


def find_chunks(directory: Path, folder: str = REPLAY) -> list[Path]:
    """The files of its replay buffer, also of several replicas, oldest first: TIME-ID-NEXT-LENGTH.npz."""
    return sorted(filter(_is_chunk, (directory / folder).rglob("*.npz")), key=lambda path: path.name)


def refuse_reference(logdir: str | Path) -> None:
    """Refuses to start a run in a log directory of the reference, whose contents it would ignore."""
    directory = Path(logdir).expanduser()
    if find_checkpoint(directory) or find_chunks(directory) or (directory / OLD_CHECKPOINT).is_file():
        reason = "holds a run of danijar/dreamerv3, which cannot be resumed here"
        remedy = f"take over what can be: dreamfleet import-reference {logdir} NEW_LOGDIR; or name another logdir"
        raise ConfigError("logdir", str(logdir), reason, remedy)


def _is_chunk(path: Path) -> bool:
    words = path.stem.split("-")
    return len(words) == 4 and words[3].isdecimal()
