"""One checkpoint on disk, for reading: a directory of parts that its manifest vouches for."""

import json
import re
import zlib
from pathlib import Path
from typing import Any

from dreamfleet.checkpoint import container
from dreamfleet.checkpoint.files import reading
from dreamfleet.errors import CheckpointError

FORMAT = 1
MANIFEST = "manifest.json"

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


class Checkpoint:
    """A finished checkpoint; `manifest` is what it was committed with, and `format, step, time, parts, score`."""

    def __init__(self, path: Path):
        self.path = path
        self.name = path.name
        self.manifest = _read_manifest(path / MANIFEST)

    @property
    def step(self) -> int:
        return self.manifest["step"]

    @property
    def score(self) -> float | None:
        return self.manifest["score"]

    @property
    def is_scored_by_eval(self) -> bool:
        """Whether its score is of evaluation episodes, rather than of training."""
        return self.manifest.get("score_of") == "eval"

    @property
    def parts(self) -> list[str]:
        return sorted(self.manifest["parts"])

    @property
    def missing(self) -> list[str]:
        """Parts of roles that were away when it was saved."""
        return self.manifest.get("missing", [])

    def read(self, part: str) -> Any:
        """The tree that was written as this part, checked."""
        if part not in self.manifest["parts"]:
            raise CheckpointError(f"checkpoint {self.path} has no part {part!r}; it has {', '.join(self.parts)}")
        entry, path = self.manifest["parts"][part], part_path(self.path, part)
        with reading(path):
            return container.read_tree(path, entry["size"], entry["crc32"])

    def verify(self, deep: bool = True) -> None:
        """Raises a CheckpointError if a part is missing or has another size, or, if `deep`, another checksum."""
        for part, entry in self.manifest["parts"].items():
            path = part_path(self.path, part)
            with reading(path):
                size, crc = container.checksum(path) if deep else (path.stat().st_size, entry["crc32"])
            if size != entry["size"]:
                raise CheckpointError(f"{path} is damaged: it has {size} bytes instead of {entry['size']}")
            if crc != entry["crc32"]:
                raise CheckpointError(f"{path} is damaged: its checksum does not match")


def part_path(directory: Path, part: str) -> Path:
    """Where a part lies; refuses names that could lead anywhere else."""
    if not isinstance(part, str) or not _PART.fullmatch(part):
        raise CheckpointError(f"{part!r} cannot name a checkpoint part; use letters, digits, _ and -")
    return directory / f"{part}.bin"


def seal(document: dict) -> bytes:
    """A manifest as the bytes of its file, with the checksum that shows damage to it."""
    return json.dumps({**document, "crc32": _document_crc(document)}, indent=2).encode()


def _document_crc(document: dict) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True).encode())


def _read_manifest(path: Path) -> dict:
    with reading(path):
        text = path.read_bytes()
    try:
        document = json.loads(text)
        if document.pop("crc32") != _document_crc(document):
            raise ValueError("its checksum does not match")
        version = document["format"]
        if version == FORMAT:
            _check_manifest(document)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    if version != FORMAT:
        raise CheckpointError(f"{path} has format {version!r}, but only {FORMAT} is known here; update dreamfleet")
    return document


def _check_manifest(document: dict) -> None:
    numbers = [document["step"], *(entry[key] for entry in document["parts"].values() for key in ("size", "crc32"))]
    if not all(isinstance(number, int) for number in numbers):
        raise ValueError("a size, checksum or step in it is not a whole number")
    if not isinstance(document["score"], float | None):
        raise ValueError("the score in it is not a number")
