"""What a log directory of the reference looks like, so that one is told from ours."""

from pathlib import Path

from dreamfleet.errors import ConfigError

CONFIG = "config.yaml"
REPLAY = "replay"
CHECKPOINTS = ("ckpt/agent", "ckpt")  # of its parallel script, and of the others


def find_checkpoint(directory: Path) -> Path | None:
    """The newest complete checkpoint of the reference's agent in a log directory."""
    for folder in (directory / name for name in CHECKPOINTS):
        if folder.is_symlink() or not (folder / "latest").is_file():  # ours has no file of this name
            continue
        newest = folder / (folder / "latest").read_text(encoding="utf-8").strip()
        found = [newest, *sorted(folder.iterdir(), reverse=True)]
        return next((path for path in found if (path / "done").exists() and list(path.glob("agent*.pkl"))), None)
    return None


def find_chunks(directory: Path) -> list[Path]:
    """The files of its replay buffer: TIME-ID-NEXT-LENGTH.npz."""
    return sorted(path for path in (directory / REPLAY).glob("*.npz") if len(path.stem.split("-")) == 4)


def refuse_reference(logdir: str | Path) -> None:
    """Refuses to start a run in a log directory of the reference, whose contents it would ignore."""
    directory = Path(logdir).expanduser()
    if find_checkpoint(directory) or find_chunks(directory):
        reason = "holds a run of danijar/dreamerv3, which cannot be resumed here"
        remedy = f"take over what can be: dreamfleet import-reference {logdir} NEW_LOGDIR; or name another logdir"
        raise ConfigError("logdir", str(logdir), reason, remedy)
