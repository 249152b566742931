"""The help text and the page of all options cover every one of them."""

import dataclasses
from pathlib import Path

import pytest

from dreamfleet.errors import ConfigError
from dreamfleet.options import Options, RunOptions, change_options, format_options, option_help, save_options
from dreamfleet.options.fields import find_options, option, section
from dreamfleet.options.help import option_page, preset_help
from dreamfleet.options.load import load_presets
from dreamfleet.options.saved import check_resume

DECLARED = find_options(Options)
PAGE = Path(__file__).parents[2] / "docs" / "options.md"


@dataclasses.dataclass(frozen=True)
class MoreRunOptions(RunOptions):
    """The section with one more line, which is all that a new option takes."""

    zest: float = option(0.5, "how lively the agent acts", at_least=0, at_most=1)


@dataclasses.dataclass(frozen=True)
class MoreOptions(Options):
    run: MoreRunOptions = section(MoreRunOptions)


def test_a_new_option_takes_one_line(tmp_path):
    assert "--run.zest" in option_help(200, MoreOptions) and "how lively the agent acts" in option_help(
        200, MoreOptions
    )
    assert "| `run.zest` | `0.5` | how lively the agent acts, in [0, 1] |" in option_page(MoreOptions)
    options = change_options(MoreOptions(logdir=str(tmp_path)), ["--run.zest", "0.9"])
    assert options.run.zest == 0.9 and "zest: 0.9" in format_options(options)
    with pytest.raises(ConfigError, match=r"run.zest=2.0 must be in \[0, 1\]; the default is 0.5"):
        change_options(MoreOptions(), ["--run.zest", "2"])
    with pytest.raises(ConfigError, match=r"unknown option --run.zets; did you mean --run.zest\?"):
        change_options(MoreOptions(), ["--run.zets", "2"])
    save_options(options)
    assert check_resume(options)
    with pytest.raises(ConfigError, match=r"run.zest: 0.9 -> 0.1"):
        check_resume(change_options(options, {"run.zest": 0.1}))


def test_the_page_of_all_options_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == option_page(), "run `make docs`"


def test_every_option_and_preset_has_a_meaning():
    assert [key for key, field in DECLARED.items() if not field.rule.help] == []
    assert set(preset_help()) == set(load_presets())


def test_each_option_is_shown_with_default_and_meaning():
    lines = {line.split()[0]: line for line in option_help(250).splitlines() if line.startswith("  ")}
    for key, field in DECLARED.items():
        assert field.rule.help in lines[f"--{key}"]
        assert all(choice in lines[f"--{key}"] for choice in field.choices)
    assert "(short: --eval-envs)" in lines["--run.eval_envs"] and " 32.0 " in lines["--run.train_ratio"]
    assert set(load_presets()) <= set(lines)


def test_columns_are_aligned_within_a_section():
    block = next(block for block in option_help(250).split("\n\n") if block.startswith("run options"))
    rows = block.splitlines()[1:]
    assert len({row.index(DECLARED[row.split()[0][2:]].rule.help) for row in rows}) == 1


@pytest.mark.parametrize("width", [20, 80, 120])
def test_text_is_wrapped(width):
    lines = option_help(width).splitlines()
    assert max(map(len, lines)) <= max(width, 90)
    assert max(map(len, lines)) > 60
