"""Files that are replaced as a whole: whoever reads one sees the old content or the new, never half of it."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def replace_file(path: Path, content: str | bytes) -> None:
    """Writes a file in place of the one that is there."""
    with replacing(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a path for a draft, a file or a directory, that takes the place of `path` unless the block raises."""
    # Two processes may write the same file, such as one that ends and its successor.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
        raise
