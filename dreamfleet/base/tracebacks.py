"""Exceptions as a user wants to read them: what went wrong, and where in the user's own code."""

import sysconfig
import traceback
from pathlib import Path

from dreamfleet.errors import DreamfleetError

MOST_FRAMES = 4  # the innermost ones
OURS = f"{Path(__file__).parents[1]}/"
INTERPRETER = (f"{sysconfig.get_path('stdlib')}/", "<frozen ")


def summarize(error: BaseException) -> str:
    """Type and message."""
    return f"{type(error).__name__}: {error}"


def own_frames(error: BaseException) -> str:
    """The frames of the user's code, as in a traceback; if there are none, the last one of an installed package.

    Our own errors have the frames of their cause; without one, they say all in their message. What only we and the
    interpreter are in is shown by the last frame.
    """
    if isinstance(error, DreamfleetError) and error.__cause__:
        return own_frames(error.__cause__)
    if isinstance(error, SyntaxError) and error.filename and error.text:  # no frame is of the file that has it
        return "".join(traceback.format_exception_only(error)[:-1]).rstrip()
    frames = list(traceback.extract_tb(error.__traceback__))
    packages = [frame for frame in frames if _is_package(frame) and not frame.filename.startswith(OURS)]
    own = [frame for frame in frames if not (_is_package(frame) or frame.filename.startswith((OURS, *INTERPRETER)))]
    if own:
        shown = own[-MOST_FRAMES:]
    else:
        shown = [] if isinstance(error, DreamfleetError) else (packages or frames)[-1:]
    return "".join(traceback.format_list(shown)).rstrip()


def _is_package(frame: traceback.FrameSummary) -> bool:
    return "/site-packages/" in frame.filename or "/dist-packages/" in frame.filename
