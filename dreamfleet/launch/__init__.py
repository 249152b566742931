"""Starting, watching, ending and joining runs."""

from dreamfleet.launch.run import run_config, run_role

__all__ = ["run_config", "run_role"]
