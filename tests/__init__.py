"""A package, so that child processes import these tests and not another `tests` among the installed packages."""
