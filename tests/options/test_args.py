"""The edge where scripts pass `args`: any mapping becomes typed options, or is refused by name."""

import dataclasses
import logging

import elements
import pytest

from dreamfleet.errors import ConfigError
from dreamfleet.options import RoleOptions, RunOptions, read_args
from dreamfleet.options.args import read_env_options


@pytest.mark.parametrize("kind", [dict, elements.Config])
def test_any_mapping_is_understood(kind):
    options = read_args(kind({"logdir": "/x", "envs": 3, "train_ratio": 8, "usage": {"nvsmi": True}, "steps": 1e4}))
    assert (options.logdir, options.envs, options.train_ratio, options.steps) == ("/x", 3, 8.0, 10000)
    assert options.usage.nvsmi and options.usage.psutil


def test_what_is_missing_has_the_defaults_of_the_options():
    options = read_args({"logdir": "/x"})
    assert options == RoleOptions(logdir="/x")
    assert all(
        getattr(options, field.name) == getattr(RunOptions(), field.name) for field in dataclasses.fields(RunOptions)
    )
    assert read_args(options) is options


def test_keys_of_the_script_itself_are_left_alone(caplog):
    with caplog.at_level(logging.WARNING, logger="dreamfleet"):
        read_args({"logdir": "/x", "replica": 0, "debug": True, "batch_sise": 3})
    assert [record.getMessage() for record in caplog.records] == [
        "args.batch_sise is not an option and ignored; did you mean batch_size?"
    ]


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"envs": "many"}, "envs='many' is not a whole number"),
        ({"transport": "smoke"}, "transport='smoke' is unknown; choose from auto, zmq, portal"),
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"batch_length": 8, "report_length": 9}, "report_length=9 needs 10 steps, but a sampled sequence has 9"),
    ],
)
def test_what_cannot_work_is_refused(args, reason):
    with pytest.raises(ConfigError, match=reason):
        read_args({"logdir": "/x", **args})


def test_options_of_environments_from_a_dict():
    options = read_env_options({"atari": {"size": 64, "sticky": False}})
    assert (options.atari.size, options.atari.sticky, options.atari.gray) == (64, False, True)
    with pytest.raises(ConfigError, match=r"unknown option env.atari.stiky; did you mean env.atari.sticky"):
        read_env_options({"atari": {"stiky": False}})
    with pytest.raises(ConfigError, match=r"env.atari.size=50 must be a multiple of 16 in \[48, 256\]"):
        read_env_options({"atari": {"size": 50}})
