"""What the name of a task says: whether it names code of the user's, and which section of `env` holds for it."""

from collections.abc import Callable


def is_attribute(task: str) -> bool:
    """Whether a task has the form module:attr; gym_MODULE:ID names an id that a module registers instead."""
    module, has_attribute, attribute = task.partition(":")
    is_id = module.startswith("gym_") and not attribute.isidentifier()
    return bool(has_attribute) and not is_id


def task_section(task: str | Callable) -> str:
    """The section of `env` whose options hold for a task: its suite, or `gym` for what a user brings."""
    return "gym" if callable(task) or is_attribute(task) else task.partition("_")[0]
