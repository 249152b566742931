"""Writes an exported policy: JSON, arrays, a serialised program and the file that loads them; nothing is pickled.

policy.json      spaces and what the policy is of          arrays.npz      weights and the state to begin with
program.bin      the function, as jax.export writes it     load_policy.py  `load(path)`, for which this is all it needs
vendor/          the package flatbuffers, with which JAX reads program.bin and which it does not bring itself
"""

import importlib.metadata
import io
import json
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import elements
import numpy as np

from dreamfleet.agent.contract import POLICY_FORMAT, PolicyProgram
from dreamfleet.base.files import replacing
from dreamfleet.errors import ConfigError
from dreamfleet.results.extras import load_extra

NAMES = ("policy.json", "arrays.npz", "program.bin", "load_policy.py")
VENDORED = "flatbuffers"


def write_artefact(
    out: Path, program: PolicyProgram, obs_space: Mapping, act_space: Mapping, details: Mapping[str, Any]
) -> int:
    """Writes a directory, or one file if `out` ends in .zip, in one piece; returns its size in bytes.

    `details` are added to policy.json. Something else at `out` is refused, an earlier export is replaced.
    """
    check_target(out)
    files = dict(_files(program, obs_space, act_space, details))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as draft:
            if out.suffix == ".zip":
                with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
                    for name, data in files.items():
                        archive.writestr(name, data)
            else:
                for name, data in files.items():
                    (draft / name).parent.mkdir(parents=True, exist_ok=True)
                    (draft / name).write_bytes(data)
                shutil.rmtree(out, ignore_errors=True)
    except OSError as error:
        reason = f"cannot be written ({error.strerror}: {error.filename})"
        raise ConfigError("out", str(out), reason, "choose a writable path") from None
    return sum(map(len, files.values()))


def check_target(out: Path) -> None:
    """Refuses to write where something else is."""
    is_empty = out.is_dir() and not any(out.iterdir())
    is_export = out.is_dir() and all((out / name).is_file() for name in NAMES)
    if out.suffix == ".zip" and not out.is_dir():
        return
    if out.exists() and not is_empty and not is_export:
        raise ConfigError("out", str(out), "exists and is not an export", "choose another name")


def _files(
    program: PolicyProgram, obs_space: Mapping, act_space: Mapping, details: Mapping[str, Any]
) -> Iterator[tuple[str, bytes]]:
    arrays = {f"weights/{name}": array for name, array in program.weights.items()}
    arrays |= {f"carry/{name}": array for name, array in program.carry.items()}
    spec = {
        "format": POLICY_FORMAT,
        **details,
        "dreamfleet": importlib.metadata.version("dreamfleet"),
        "jax": importlib.metadata.version("jax"),
        "platforms": program.platforms,
        "seed": program.seed,
        "inputs": program.obs_keys,
        "obs_space": {name: _describe(space) for name, space in obs_space.items()},
        "act_space": {name: _describe(space) for name, space in act_space.items()},
        "arrays": {name: array.dtype.name for name, array in arrays.items()},
    }
    yield "policy.json", json.dumps(spec, indent=2).encode()
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{name: _plain(array) for name, array in arrays.items()})
    yield "arrays.npz", buffer.getvalue()
    yield "program.bin", program.serialized
    yield "load_policy.py", Path(__file__).with_name("load_policy.py").read_bytes()
    yield from _vendored()


def _plain(array: np.ndarray) -> Any:
    """Types that NumPy's files do not know, such as bfloat16, as unsigned integers of their size."""
    return array if array.dtype.isbuiltin else array.view(f"uint{8 * array.dtype.itemsize}")


def _describe(space: elements.Space) -> dict[str, Any]:
    return {"dtype": space.dtype.name, "shape": list(space.shape), "low": _bound(space.low), "high": _bound(space.high)}


def _bound(values: Any) -> Any:
    """One number where all are the same, and None for no bound."""
    flat = np.asarray(values).ravel().tolist()
    limits = [value if np.isfinite(value) else None for value in flat]
    return limits[0] if len(set(limits)) == 1 else np.asarray(limits, object).reshape(np.shape(values)).tolist()


def _vendored() -> Iterator[tuple[str, bytes]]:
    """The sources of the package that is brought along, with its metadata, which have its licence."""
    load_extra(VENDORED, "export", "export")
    for file in importlib.metadata.files(VENDORED) or ():
        if file.suffix == ".py" or file.name == "METADATA" or "LICENSE" in file.name.upper():
            yield f"vendor/{file.as_posix()}", file.read_binary()
