"""Builds and checks a release: sdist and wheels in dist/, each wheel installed into an empty environment and tried.

Run by `make release`. Nothing is uploaded; the last line has the command for that.
"""

import argparse
import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHIPPED = ("LICENSE", "README.md", "dreamfleet", "embodied.py")
DEADLINE_S = 300.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where the files go (default: dist)")
    parser.add_argument(
        "--draft", action="store_true", help="build also where CHANGELOG.md calls the version unreleased"
    )
    args = parser.parse_args()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if not args.draft:
        check_changelog(version)
    shutil.rmtree(args.dist, ignore_errors=True)
    wheel = build(ROOT, args.dist)
    with environments_only(version) as folder:
        thin = build(folder, args.dist, "--wheel")
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, sorted(args.dist.iterdir())))
    check_content(wheel)
    with tempfile.TemporaryDirectory() as folder:
        full, env = install(Path(folder) / "full", wheel), install(Path(folder) / "env", thin)
        assert run(full / "dreamfleet", "--version").split() == ["dreamfleet", version]
        print(run(full / "dreamfleet", "doctor", "--logdir", folder), end="")
        assert run(env / "python", "-c", "import importlib.util as u; print(u.find_spec('jax'))").strip() == "None"
        check_joining(full, env, Path(folder))
    print(f"checked: {', '.join(path.name for path in sorted(args.dist.iterdir()))}")
    print(f"upload with: {Path(sys.executable).name} -m twine upload {args.dist}/*")
    return 0


def check_changelog(version: str) -> None:
    """Refuses a version that the changelog does not have, or calls unreleased."""
    heading = re.search(rf"^## {re.escape(version)}\b.*$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if heading is None or "unreleased" in heading[0]:
        raise SystemExit(f"error: CHANGELOG.md has no released section {version}; date it, or use --draft")


def build(project: Path, dist: Path, *kinds: str) -> Path:
    """Builds into `dist` and returns the wheel; a wheel that is built beside an sdist is made from it."""
    before = set(dist.glob("*.whl"))
    run(sys.executable, "-m", "build", "--outdir", str(dist), *kinds, str(project))
    (wheel,) = set(dist.glob("*.whl")) - before
    return wheel


@contextlib.contextmanager
def environments_only(version: str) -> Iterator[Path]:
    """A project with the same files and the dependencies of environments."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for item in SHIPPED[:-1]:
            copy = shutil.copytree if (ROOT / item).is_dir() else shutil.copy
            copy(ROOT / item, folder / item)
        text = (ROOT / "packaging" / "env.toml").read_text()
        (folder / "pyproject.toml").write_text(text.replace("VERSION", version))
        yield folder


def check_content(wheel: Path) -> None:
    """Everything of the package that git knows is in the wheel, and the licence with it."""
    import zipfile

    names = set(zipfile.ZipFile(wheel).namelist())
    known = subprocess.run(["git", "ls-files", *SHIPPED[2:]], cwd=ROOT, capture_output=True, text=True, check=True)
    missing = set(known.stdout.split()) - names
    assert not missing, f"the wheel lacks {sorted(missing)}"
    assert any(name.endswith("licenses/LICENSE") for name in names), "the wheel has no licence"


def install(folder: Path, wheel: Path) -> Path:
    """An empty environment with a wheel and what it needs; returns its folder of commands."""
    venv.create(folder, with_pip=True)
    start, commands = time.monotonic(), folder / "bin"
    run(commands / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    seconds, pip = time.monotonic() - start, ("pip", "pip-")
    files = [path for path in (folder / "lib").rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files if not path.relative_to(folder).parts[3].startswith(pip))
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {size / 1e6:.0f} MB installed in {seconds:.0f} s")
    return commands


def check_joining(full: Path, env: Path, folder: Path) -> None:
    """Environments of the thin installation step a run of the full one."""
    actor, logger = (f"127.0.0.1:{port}" for port in free_ports(2))
    trained = ["train", "--preset", "debug", "random", "--task", "gym_CartPole-v1", "--steps", "500"]
    trained += ["--run.remote_envs", "True", "--run.actor_addr", actor, "--run.logger_addr", logger]
    command = [str(full / "dreamfleet"), *trained, "--logdir", str(folder / "run")]
    trainer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert trainer.stdout
        for line in trainer.stdout:
            if "key of the run" in line:
                break
        words = ["role", "envs", "--task", "gym_CartPole-v1", "--envs", "2", "--key", str(folder / "run" / "run.key")]
        words += ["--addr-actor", actor, "--addr-logger", logger, "--logdir", str(folder / "worker")]
        run(env / "dreamfleet", *words)
        output, _ = trainer.communicate(timeout=DEADLINE_S)
        assert trainer.returncode == 0 and "complete: step" in output, output
    finally:
        if trainer.poll() is None:
            trainer.send_signal(signal.SIGINT)
            trainer.wait(DEADLINE_S)
    print("environments without JAX have joined a run")


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def run(*command: object) -> str:
    """The output of a command; its whole output is shown if it fails."""
    result = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tempfile.gettempdir(),
    )
    if result.returncode:
        raise SystemExit(f"error: {' '.join(map(str, command))} failed\n{result.stdout}")
    return result.stdout


if __name__ == "__main__":
    sys.exit(main())
