"""The import path of the reference, for scripts that were written for it: `embodied.run.parallel`.

Where the reference itself is installed too, this module steps aside, and `import embodied` is theirs. In the same
folder Python prefers their package to this single file; in another one, or behind the import hook of an editable
installation, it is found here.
"""

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path


def _specs() -> Iterator[ModuleSpec | None]:
    for entry in sys.path:
        yield PathFinder.find_spec(__name__, [entry])
    for finder in sys.meta_path:
        if finder is not PathFinder:
            yield finder.find_spec(__name__, None)


def _find_reference() -> ModuleSpec | None:
    """The first package of this name: not this file, then, nor a copy of it."""
    return next((spec for spec in _specs() if spec and spec.loader and spec.submodule_search_locations), None)


if _reference := _find_reference():
    sys.modules[__name__] = module_from_spec(_reference)
    assert _reference.loader
    _reference.loader.exec_module(sys.modules[__name__])
else:
    __path__ = [str(Path(__file__).resolve().parent / "dreamfleet" / "embodied")]
    from dreamfleet.embodied.core import Agent as Agent
    from dreamfleet.embodied.core import Env as Env
    from embodied import run as run

    def __getattr__(name: str) -> object:
        offered = "dreamfleet offers embodied.run.parallel, embodied.Env and embodied.Agent"
        raise AttributeError(f"embodied.{name} is a part of danijar/dreamerv3, which is not installed ({offered})")
