"""The help text covers every option."""

import pytest

from dreamfleet.options import option_help
from dreamfleet.options.help import read_options
from dreamfleet.options.load import DEFAULTS, PRESETS, load_defaults, load_presets
from dreamfleet.options.values import ALIASES


def test_every_option_has_a_meaning():
    options = {option.key: option for option in read_options(DEFAULTS) if option.value}
    assert set(options) == set(load_defaults().flat)
    assert [key for key, option in options.items() if not option.meaning] == []


def test_every_preset_has_a_meaning():
    presets = {option.key: option.meaning for option in read_options(PRESETS) if "." not in option.key}
    assert set(presets) == set(load_presets())
    assert all(presets.values())


def test_every_alias_has_its_key():
    assert set(ALIASES.values()) <= set(load_defaults().flat)


def test_each_option_is_shown_with_default_and_meaning():
    lines = {line.split()[0]: line for line in option_help(200).splitlines() if line.startswith("  ")}
    for option in read_options(DEFAULTS):
        if option.value:
            assert option.value in lines[f"--{option.key}"]
            assert option.meaning in lines[f"--{option.key}"]
    assert "(short: --eval-envs)" in lines["--run.eval_envs"]
    assert set(load_presets()) <= set(lines)


def test_columns_are_aligned_within_a_section():
    block = next(block for block in option_help(200).split("\n\n") if block.startswith("run options"))
    meanings = {option.key: option.meaning for option in read_options(DEFAULTS)}
    rows = block.splitlines()[1:]
    assert len({row.index(meanings[row.split()[0][2:]]) for row in rows}) == 1


@pytest.mark.parametrize("width", [20, 80, 120])
def test_text_is_wrapped(width):
    lines = option_help(width).splitlines()
    assert max(map(len, lines)) <= max(width, 90)
    assert max(map(len, lines)) > 60
