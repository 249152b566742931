"""The names in a checkpoint directory, and which checkpoints stay in it."""

import contextlib
import logging
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from dreamfleet.checkpoint.checkpoint import Checkpoint, part_path
from dreamfleet.errors import CheckpointError

log = logging.getLogger("dreamfleet.checkpoint")

DRAFT = ".draft-"
_TRASH = ".trash-"
_LINK = ".link-"
_NAME = re.compile(r"step-([0-9]{12,18})-([0-9]{4,9})")


def make_name(step: int, number: int) -> str:
    """`step-000000123456-0001`: the number grows with every checkpoint of a log directory, over restarts too."""
    return f"step-{step:012d}-{number:04d}"


def parse_name(name: str) -> tuple[int, int]:
    """Number and step in a name, which sort in the order of writing; refuses every other name."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if not match:
        raise CheckpointError(f"{name!r} is not the name of a checkpoint, such as {make_name(1000, 1)}")
    return int(match[2]), int(match[1])


def list_names(root: Path) -> list[str]:
    """Names of all checkpoints, the newest first."""
    if not root.is_dir():
        return []
    return sorted((path.name for path in root.iterdir() if _NAME.fullmatch(path.name)), key=parse_name, reverse=True)


def last_number(root: Path) -> int:
    """The highest number that a checkpoint, or anything left of one, has."""
    return max(map(_number, root.iterdir()), default=0)


def prune(root: Path, keep: int) -> None:
    """Removes what is older than the newest `keep` intact checkpoints, except the one of the best score."""
    intact = [checkpoint for name in list_names(root) if (checkpoint := open_intact(root / name))]
    if len(intact) <= keep:
        return
    best = find_best(intact)
    oldest = parse_name(intact[keep - 1].name)
    for name in list_names(root):
        if parse_name(name) < oldest and not (best and name == best.name):
            discard(root / name)


def find_best(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The one of the best score among checkpoints that are sorted the newest first; of equals the newest.

    Scores of evaluation count before those of training, with which they cannot be compared.
    """
    scored = [(checkpoint, score) for checkpoint in checkpoints if (score := checkpoint.score) is not None]
    best = max(scored, key=lambda pair: (pair[0].is_scored_by_eval, pair[1]), default=None)
    return best and best[0]


def link_part(checkpoint: Path, part: str) -> None:
    """Has `ckpt/PART` lead to a part of a checkpoint, as whoever comes from danijar/dreamerv3 expects for the agent.

    Nothing depends on it: where the file system has no links, or something else of that name is there, it is left out.
    """
    link = checkpoint.parent / part
    draft = link.with_name(f"{_LINK}{part}")
    with contextlib.suppress(OSError):
        draft.unlink(missing_ok=True)
        draft.symlink_to(part_path(Path(checkpoint.name), part))
        if link.is_symlink() or not link.exists():
            draft.replace(link)
        else:
            draft.unlink()


def sweep(root: Path, before: float = math.inf) -> None:
    """Removes what processes that died left below a number: drafts, and checkpoints whose removal was not finished."""
    for path in root.iterdir():
        if path.name.startswith((DRAFT, _TRASH)) and _number(path) < before:
            discard(path)


def discard(path: Path) -> None:
    """Removes a directory, out of sight first: no reader and no crash meets half of it."""
    trash = path.with_name(_TRASH + path.name.removeprefix(DRAFT).removeprefix(_TRASH))
    try:
        shutil.rmtree(path.rename(trash))
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("cannot remove %s: %s; it will be tried again at the next start", path, error)


def _number(path: Path) -> int:
    """The number in the name of a checkpoint, or of what is left of one; 0 for anything else."""
    name = path.name.removeprefix(DRAFT).removeprefix(_TRASH)
    return parse_name(name)[0] if _NAME.fullmatch(name) else 0


def open_intact(path: Path) -> Checkpoint | None:
    """A checkpoint whose parts are all there, as far as can be seen without reading them."""
    try:
        checkpoint = Checkpoint(path)
        checkpoint.verify(deep=False)
        return checkpoint
    except CheckpointError:
        return None
