"""Findings about an installation and its machine, one by one, for `dreamfleet doctor`. Nothing here raises."""

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import dreamfleet
from dreamfleet.base.accelerators import find_accelerator
from dreamfleet.base.extras import find_missing, install_command, list_extras
from dreamfleet.base.platforms import find_lacking
from dreamfleet.errors import ConfigError

DEVICES_S, TEST_S = 120.0, 120.0
TEST_STEPS = 1000
# What a run cannot do without, and what is worth knowing about.
NEEDED = ("numpy", "pyzmq", "msgpack", "elements", "gymnasium")
AGENT = ("jax", "jaxlib", "equinox", "optax")
DEVICE_CODE = """
import json, jax
devices = jax.local_devices()
stats = [device.memory_stats() or {} for device in devices]
print(json.dumps([[d.platform, d.device_kind, s.get("bytes_limit", 0)] for d, s in zip(devices, stats)]))
"""


class Finding(NamedTuple):
    """One line: its level is ok, warning, error, or missing for what nobody needs."""

    level: str
    what: str
    text: str
    remedy: str = ""


def check_versions() -> Iterator[Finding]:
    """This package, Python, and the packages that a run needs."""
    yield Finding("ok", "dreamfleet", f"{dreamfleet.__version__}, {_origin()}")
    yield Finding("ok", "python", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    for names, level, remedy in (
        (NEEDED, "error", "install dreamfleet again"),
        (AGENT, "missing", "an installation for environments only; training needs pip install dreamfleet"),
    ):
        versions = {name: _version(name) for name in names}
        if found := {name: version for name, version in versions.items() if version}:
            yield Finding("ok", "packages", ", ".join(f"{name} {version}" for name, version in found.items()))
        if lacking := [name for name, version in versions.items() if not version]:
            yield Finding(level, "packages", f"{', '.join(lacking)} not installed", remedy)


def check_devices() -> Iterator[Finding]:
    """What JAX computes on, asked in a process of its own, and what it leaves unused."""
    if not _version("jax"):
        yield Finding("missing", "jax", "not installed")
        return
    try:
        command = [sys.executable, "-c", DEVICE_CODE]
        result = subprocess.run(command, capture_output=True, text=True, timeout=DEVICES_S, check=True)
        devices = json.loads(result.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        last = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        yield Finding("error", "jax", f"does not start ({''.join(last)})", "install dreamfleet again")
        return
    for index, (kind, name, limit) in enumerate(devices):
        yield Finding("ok", f"device {index}", f"{kind}, {name}" + (f", {_gb(limit)}" if limit else ""))
    kind, extra = find_accelerator()
    if kind and all(platform == "cpu" for platform, *_ in devices):
        remedy = f"run {install_command(extra)}" if extra else "install JAX for it"
        yield Finding("warning", "accelerator", f"{kind} is there, but JAX cannot use it", remedy)


def check_machine() -> Iterator[Finding]:
    """Processors and memory, and what of the operating system is not there."""
    import psutil

    cores, memory = len(_allowed_cores()), psutil.virtual_memory()
    yield Finding("ok", "processors", f"{cores} of {os.cpu_count()}, load {psutil.getloadavg()[0]:.1f}")
    level = "ok" if memory.available > 2 << 30 else "warning"
    yield Finding(level, "memory", f"{_gb(memory.available)} free of {_gb(memory.total)}")
    for name, purpose in find_lacking():
        yield Finding("error", name, f"not on this system: {purpose}", "train on Linux; environments run anywhere")


def check_files(logdir: Path) -> Iterator[Finding]:
    """Where runs go: space, kind of file system, and whether it can be written to."""
    from dreamfleet.replay.space import refuse_network

    existing = next(path for path in (logdir, *logdir.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    yield Finding("ok" if free > 5 << 30 else "warning", "disk", f"{_gb(free)} free")
    try:
        refuse_network(existing)
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"probe")
        yield Finding("ok", "log directory", "can be written to")
    except ConfigError as error:
        yield Finding("error", "log directory", error.reason, error.remedy)
    except OSError as error:
        yield Finding("error", "log directory", f"{error.strerror}".lower(), "choose another one with --logdir")


def check_connections() -> Iterator[Finding]:
    """Unix sockets, for roles on one machine, and TCP, for those on several."""
    for name, family, make_address in (
        ("unix sockets", getattr(socket, "AF_UNIX", None), lambda folder: f"{folder}/s"),
        ("TCP", socket.AF_INET, lambda folder: ("127.0.0.1", 0)),
    ):
        try:
            assert family is not None, "not on this system"
            with tempfile.TemporaryDirectory() as folder, socket.socket(family) as listener:
                listener.bind(make_address(folder))
                listener.listen()
                with socket.socket(family) as client:
                    client.connect(listener.getsockname())
            yield Finding("ok", name, "work")
        except (OSError, AssertionError) as error:
            yield Finding("error", name, f"do not work ({error})", "allow them, or set TMPDIR to a short path")


def check_extras() -> Iterator[Finding]:
    """Optional parts, and how to get those that are not there."""
    missing = {extra: find_missing(packages) for extra, packages in list_extras().items()}
    for extra, packages in missing.items():
        text = f"lacks {', '.join(packages)}" if packages else "installed"
        yield Finding("missing" if packages else "ok", extra, text)
    if any(missing.values()):
        yield Finding("missing", "to add one", install_command("EXTRA"))


def check_fleet() -> Iterator[Finding]:
    """A small run with all its processes, a random agent and nothing optional."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "dreamfleet", "train", "--preset", "debug", "random"]
        command += ["--steps", str(TEST_STEPS), "--logdir", f"{folder}/run"]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=TEST_S, cwd=folder)
        except (OSError, subprocess.SubprocessError) as error:
            yield Finding("error", "fleet", f"did not end: {error}", "see the findings above")
            return
    lines = (result.stdout + result.stderr).strip().splitlines()
    if result.returncode:
        yield Finding("error", "fleet", f"exit code {result.returncode}: {_anonymous(' | '.join(lines[-3:]))}")
        return
    seconds = time.monotonic() - start
    yield Finding("ok", "fleet", f"{TEST_STEPS:,} steps, updates and a checkpoint in {seconds:.0f} s")


def _version(name: str) -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return ""


def _origin() -> str:
    command = install_command("EXTRA")
    kind = "a clone" if "--editable" in command else "a file or repository" if "@" in command else "a package"
    return f"installed from {kind}, {'in' if sys.prefix != sys.base_prefix else 'without'} a virtual environment"


def _allowed_cores() -> list[int]:
    affinity = getattr(os, "sched_getaffinity", None)
    return list(affinity(0)) if affinity else list(range(os.cpu_count() or 1))


def _gb(count: float) -> str:
    return f"{count / (1 << 30):.1f} GB"


def _anonymous(text: str) -> str:
    """Without the names of the user and the machine."""
    text = text.replace(str(Path.home()), "~").replace(socket.gethostname(), "HOST")
    return re.sub(r"/home/[^/\s]+", "~", text)
