"""Who may import whom, read from the source of every module, and what light processes must not load."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dreamfleet
from tests.fleet import DEADLINE_S

ROOT = Path(dreamfleet.__file__).parent
LEAVES = ("envs", "replay", "metrics", "rpc", "checkpoint")
SHARED = ("base", "options", "errors", "lifecycle")  # what every part may import
HEAVY = ("jax", "gymnasium", "portal", "tensorboardX", "torch")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(path: Path) -> Iterator[str]:
    """Full names of what a module imports anywhere in it, functions included."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def part(name: str) -> str:
    """The package or module right under `dreamfleet`, or the foreign package."""
    top, *rest = name.split(".")
    return rest[0] if top == "dreamfleet" and rest else top


IMPORTS = sorted({(module_name(path), name) for path in ROOT.rglob("*.py") for name in imported_by(path)})


def violations(is_forbidden) -> list[str]:
    """The imports of one part by another that a rule forbids, as text."""
    inside = [(module, name) for module, name in IMPORTS if name.split(".")[0] in ("dreamfleet", "embodied")]
    crossing = [(module, name) for module, name in inside if part(module) != part(name)]
    return [f"{module} imports {name}" for module, name in crossing if is_forbidden(module, part(module), part(name))]


def test_the_source_is_read():
    assert ("dreamfleet.roles.env", "dreamfleet.envs.EnvGroup") in IMPORTS
    assert ("dreamfleet.envs.registry", "dreamfleet.envs.dummy.Dummy") in IMPORTS


@pytest.mark.parametrize("leaf", LEAVES)
def test_leaf_packages_import_neither_each_other_nor_what_is_above(leaf):
    assert not violations(lambda _, source, target: source == leaf and target not in SHARED)


def test_agents_do_not_know_who_runs_them():
    assert not violations(lambda _, source, target: source == "agent" and target not in SHARED)


def test_roles_do_not_know_how_they_are_started():
    assert not violations(lambda _, source, target: source == "roles" and target in ("launch", "commands", "parallel"))


def test_only_what_a_user_calls_imports_commands():
    assert not violations(lambda _, source, target: target == "commands" and source not in ("cli", "__main__"))


def test_what_keeps_a_run_alive_does_not_know_what_runs():
    above = ("roles", "agent", "replay", "envs", "options")
    assert not violations(lambda module, _, target: ".supervise." in module and target in above)


def test_base_imports_nothing_of_ours_but_errors():
    assert not violations(lambda _, source, target: source == "base" and target != "errors")


def test_errors_and_lifecycle_import_nothing_of_ours():
    assert not violations(lambda _, source, target: source in ("errors", "lifecycle"))


def test_nothing_that_runs_imports_what_is_for_tests():
    # The package itself names it for type checkers, and loads it only when a user asks for it.
    assert not violations(lambda _, source, target: target == "testing" and source != "dreamfleet")


def test_the_documented_paths_are_never_imported_from_inside():
    assert not violations(lambda _, source, target: target == "embodied")


def test_jax_is_imported_by_the_agent_only():
    shipped = "dreamfleet.results.load_policy"  # a file for users, which nothing of ours imports
    outside = [m for m, name in IMPORTS if part(name) == "jax" and not m.startswith("dreamfleet.agent.dreamer")]
    assert set(outside) <= {shipped} and not [m for m, name in IMPORTS if name.startswith(shipped)]


@pytest.mark.distributed
@pytest.mark.parametrize("role", ["env", "replay.role", "logger"])
def test_light_roles_load_nothing_heavy(role):
    code = f"import sys, dreamfleet.roles.{role}; print(*(name for name in {HEAVY} if name in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []
