"""A checkpoint that is being written: several processes may add parts, one of them commits it."""

import contextlib
import json
import math
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from dreamfleet.checkpoint import container, files, retention
from dreamfleet.checkpoint.checkpoint import FORMAT, MANIFEST, Checkpoint, part_path, seal
from dreamfleet.errors import CheckpointError


class Draft:
    """Parts in a hidden directory that gets its name at the commit: a checkpoint is there as a whole or not at all.

    If anything fails for the process that started it, the draft is removed; one that joined only takes its part back.
    Older checkpoints stay as they are.
    """

    def __init__(self, root: Path, name: str, keep: int, is_joined: bool = False):
        self.name = name
        self.path = root / f"{retention.DRAFT}{name}"
        self._root = root
        self._keep = keep
        self._is_joined = is_joined

    def write(self, part: str, tree: object) -> None:
        """Adds a part: a tree of arrays, numbers, str, bytes, None in dicts, lists and tuples."""
        with self._abort_on_error(part):
            path = part_path(self.path, part)
            if path.stem == Path(MANIFEST).stem:
                raise CheckpointError(f"{part!r} cannot name a checkpoint part: the manifest has that name")
            with files.writing(path):
                _note(path).unlink(missing_ok=True)
                size, crc = container.write_tree(path, tree)
                # What the committing process needs to know of this file without reading it.
                with files.create(_note(path)) as file:
                    file.write(json.dumps({"size": size, "crc32": crc}).encode())

    def rename(self, step: int) -> None:
        """Makes it the checkpoint of another step: the one that the replay says its part is of."""
        name = retention.make_name(step, retention.parse_name(self.name)[0])
        with self._abort_on_error(), files.writing(self.path):
            path = self._root / f"{retention.DRAFT}{name}"
            self.path.rename(path)
            self.name, self.path = name, path

    def commit(
        self,
        manifest: dict,
        best_score: float | None = None,
        parts: Collection[str] | None = None,
        link: str | None = None,
    ) -> Checkpoint:
        """Makes the draft a checkpoint, and removes old ones: the newest `keep` and the one of the best score stay.

        `manifest` may hold anything that JSON can; `format, step, time, parts, score` in it are replaced. With `parts`
        it is made of these, whatever else is being written to it by somebody who is late. `link` names the part that
        `ckpt/PART` leads to from then on.
        """
        final = self._root / self.name
        with self._abort_on_error(), files.writing(self.path):
            if parts is not None:
                self._drop_others(parts)
            document = {
                **json.loads(json.dumps(manifest, default=_to_python)),
                "format": FORMAT,
                "step": retention.parse_name(self.name)[1],
                "time": time.time(),
                "score": float(best_score) if best_score is not None and math.isfinite(best_score) else None,
                "parts": self._collect_parts(),
            }
            with files.create(self.path / MANIFEST) as file:
                file.write(seal(document))
            for note in self.path.glob("*.bin.json"):
                note.unlink()
            files.sync_directory(self.path)
            self.path.rename(final)
            files.sync_directory(self._root)
        checkpoint = Checkpoint(final)
        if link:
            retention.link_part(final, link)
        retention.prune(self._root, self._keep)
        return checkpoint

    def abort(self) -> None:
        """Removes the draft; does nothing if it is gone or committed."""
        retention.discard(self.path)

    def _drop_others(self, parts: Collection[str]) -> None:
        for path in self.path.glob("*.bin"):
            if path.stem not in parts:
                _remove_part(path)

    def _collect_parts(self) -> dict[str, dict]:
        parts = {}
        for path in sorted(self.path.glob("*.bin")):
            try:
                parts[path.stem] = json.loads(_note(path).read_bytes())
            except (FileNotFoundError, ValueError):
                raise CheckpointError(f"{path} was not finished by the process that wrote it; save again") from None
        return parts

    @contextlib.contextmanager
    def _abort_on_error(self, part: str = "") -> Iterator[None]:
        try:
            yield
        except BaseException:
            if not self._is_joined:
                self.abort()
            elif part:
                with contextlib.suppress(OSError, CheckpointError):
                    _remove_part(part_path(self.path, part))
            raise


def _remove_part(path: Path) -> None:
    path.unlink(missing_ok=True)
    _note(path).unlink(missing_ok=True)


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _to_python(value: object) -> object:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a manifest cannot hold {type(value).__name__}")
