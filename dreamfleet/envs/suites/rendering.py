"""How MuJoCo draws on a machine without a display; called before dm_control is imported."""

import ctypes.util
import os

from dreamfleet.errors import ConfigError

# The library that each of MuJoCo's ways to draw needs; the first can use a GPU.
LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}


def choose_renderer(task: str, is_needed: bool = True) -> None:
    """Sets MUJOCO_GL to a renderer that is installed, unless the user has chosen one or there is a display."""
    if os.environ.get("MUJOCO_GL") or os.environ.get("DISPLAY"):
        return
    found = [renderer for renderer, library in LIBRARIES.items() if ctypes.util.find_library(library)]
    if found:
        os.environ["MUJOCO_GL"] = found[0]
    elif is_needed:
        remedy = "install Debian's libegl1 or libosmesa6 (a control task also works with --env.dmc.image False)"
        raise ConfigError("task", task, "renders images, but there is no OpenGL library", remedy)
