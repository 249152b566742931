"""The checkpoints of a log directory. The learner starts and commits them; the other roles add parts and resume."""

import logging
from pathlib import Path

from dreamfleet.checkpoint import files, retention
from dreamfleet.checkpoint.checkpoint import MANIFEST, Checkpoint
from dreamfleet.checkpoint.draft import Draft
from dreamfleet.errors import CheckpointError

log = logging.getLogger("dreamfleet.checkpoint")


class Checkpoints:
    """Writes and finds checkpoints in `logdir/ckpt`; one process at a time may start drafts there."""

    def __init__(self, logdir: str | Path, keep: int = 3):
        assert keep >= 1, keep
        self._root = Path(logdir).expanduser() / "ckpt"
        self._keep = keep
        self._has_swept = False

    def draft(self, step: int) -> Draft:
        """Starts a checkpoint; the first call removes what a run before this one left unfinished."""
        with files.writing(self._root):
            self._root.mkdir(0o755, parents=True, exist_ok=True)
            if not self._has_swept:
                retention.sweep(self._root)
                self._has_swept = True
            name = retention.make_name(step, retention.last_number(self._root) + 1)
            draft = Draft(self._root, name, self._keep)
            draft.path.mkdir(0o755)
        return draft

    def open_draft(self, name: str) -> Draft:
        """Joins a draft that another process started, to add a part."""
        retention.parse_name(name)
        draft = Draft(self._root, name, self._keep, is_joined=True)
        if not draft.path.is_dir():
            raise CheckpointError(f"there is no draft {draft.path}; it was committed or removed, save again")
        return draft

    def add_part(self, name: str, part: str, tree: object, is_elsewhere: bool = False, step: int | None = None) -> None:
        """Adds a part to a draft that another process started.

        A role that runs elsewhere cannot reach the draft: it keeps its part in a checkpoint of its own, of that name,
        or of the step that the whole checkpoint is going to be named after if this is the part that says it.
        """
        number, _ = retention.parse_name(name)
        if is_elsewhere and not Draft(self._root, name, self._keep).path.is_dir():
            draft = Draft(self._root, name if step is None else retention.make_name(step, number), self._keep)
            with files.writing(self._root):
                self._root.mkdir(0o755, parents=True, exist_ok=True)
                retention.sweep(self._root, number)  # one checkpoint is saved at a time: those before are over
                draft.path.mkdir(0o755)
            draft.write(part, tree)
            draft.commit({})
        else:
            self.open_draft(name).write(part, tree)

    def latest(self, part: str = "", is_deep: bool = True) -> Checkpoint | None:
        """The newest checkpoint that is whole; a damaged one is passed over with a warning.

        With a `part`, the newest that has it: one may lack the part of a role that was away when it was saved. Without
        `is_deep` the checksums, which take long, are not looked at.
        """
        with files.reading(self._root):
            names = retention.list_names(self._root)
        for name in names:
            try:
                checkpoint = _open(self._root / name, is_deep)
            except CheckpointError as error:
                log.warning("checkpoint %s is skipped for the one before it: %s", name, error)
                continue
            if not part or part in checkpoint.parts:
                return checkpoint
            if part in checkpoint.missing:
                log.warning("checkpoint %s has no part of the %s, which was away when it was saved", name, part)
        return None

    def best(self) -> Checkpoint | None:
        """The whole checkpoint of the best score, if any has one; a damaged one is passed over with a warning."""
        with files.reading(self._root):
            names = retention.list_names(self._root)
        found = [checkpoint for name in names if (checkpoint := retention.open_intact(self._root / name))]
        while best := retention.find_best(found):
            try:
                best.verify()
                return best
            except CheckpointError as error:
                log.warning("checkpoint %s is skipped for the one of the next best score: %s", best.name, error)
                found.remove(best)
        return None

    def newest_manifest(self) -> dict:
        """What the newest checkpoint was committed with, whether or not its parts are whole; empty without one."""
        with files.reading(self._root):
            names = retention.list_names(self._root)
        return Checkpoint(self._root / names[0]).manifest if names else {}

    @staticmethod
    def load(path: str | Path) -> Checkpoint:
        """The checkpoint at a path, or the newest one of the log directory or `ckpt` directory at it."""
        path = Path(path).expanduser()
        if path.is_symlink() and path.is_file():  # `ckpt/agent`, which leads into the newest checkpoint
            path = path.resolve().parent
        if (path / MANIFEST).exists():
            return _open(path)
        logdir = path.parent if path.name == "ckpt" else path
        checkpoint = Checkpoints(logdir).latest()
        if checkpoint is None:
            raise CheckpointError(
                f"{path} holds no usable checkpoint; give a log directory or a directory in its ckpt/"
            )
        return checkpoint


def _open(path: Path, is_deep: bool = True) -> Checkpoint:
    checkpoint = Checkpoint(path)
    checkpoint.verify(is_deep)
    return checkpoint
