"""A misspelt option is found by the type checker, which also reports here when an `ignore` has nothing to hide."""
# pyright: reportUnnecessaryTypeIgnoreComment=error

import pytest

from dreamfleet.options import Options, RoleOptions


def test_a_misspelt_option_is_a_type_error():
    with pytest.raises(AttributeError, match="prefech"):
        print(Options().run.prefech)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError, match="prefech"):
        print(RoleOptions().prefech)  # pyright: ignore[reportAttributeAccessIssue]
    assert Options().run.prefetch == RoleOptions().prefetch
