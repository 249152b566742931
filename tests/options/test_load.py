"""Layers, names and values of options."""

import re
from pathlib import Path

import pytest

from dreamfleet.errors import ConfigError
from dreamfleet.options import Options, change_options, check_options, flatten, load_options, role_options
from dreamfleet.options.load import load_presets


def refusal(*args, **kwargs) -> str:
    with pytest.raises(ConfigError) as caught:
        load_options(*args, **kwargs)
    return str(caught.value)


def test_defaults_are_untouched_without_overrides():
    assert {**flatten(load_options()), "logdir": ""} == {**flatten(Options()), "logdir": ""}


def test_later_layers_win():
    assert load_options([], ["cartpole"]).run.envs == 4
    assert load_options([], ["cartpole", "debug"]).run.envs == 2
    assert load_options([], ["debug", "cartpole"]).run.envs == 4
    config = load_options(["--run.envs", "9"], ["cartpole", "debug"])
    assert (config.run.envs, config.task, config.batch_size) == (9, "gym_CartPole-v1", 2)


def test_base_replaces_the_defaults():
    base = load_options({"batch_size": 7, "seed": 3})
    changed = change_options(base, ["--seed", "4"])
    assert (changed.batch_size, changed.seed) == (7, 4)
    assert base.seed == 3


def test_mapping_may_be_dotted_or_nested():
    config = load_options({"run": {"envs": 3, "usage": {"nvsmi": True}}, "run.steps": 1e3})
    assert (config.run.envs, config.run.usage.nvsmi, config.run.steps) == (3, True, 1000)


@pytest.mark.parametrize(
    ("words", "key", "expected"),
    [
        (["--run.envs", "8"], "run.envs", 8),
        (["--run.envs=8"], "run.envs", 8),
        (["--run.envs", "3", "--run.envs", "5"], "run.envs", 5),
        (["--run.steps", "1e4"], "run.steps", 10000),
        (["--run.steps", "2.0"], "run.steps", 2),
        (["--run.steps", "9007199254740993"], "run.steps", 9007199254740993),
        (["--run.actor_batch", "-1"], "run.actor_batch", -1),
        (["--run.train_ratio", "64"], "run.train_ratio", 64.0),
        (["--run.train_ratio", "-1e0"], "run.train_ratio", -1.0),
        (["--replay.priority_initial", "inf"], "replay.priority_initial", float("inf")),
        (["--replay.priority_initial", "2"], "replay.priority_initial", 2.0),
        (["--run.agent_process", "False"], "run.agent_process", False),
        (["--run.agent_process", "false"], "run.agent_process", False),
        (["--run.agent_process", "0"], "run.agent_process", False),
        (["--run.log_full", "True"], "run.log_full", True),
        (["--run.log_full", "1"], "run.log_full", True),
        (["--logger.outputs", "jsonl"], "logger.outputs", ("jsonl",)),
        (["--logger.outputs", "jsonl", "tensorboard"], "logger.outputs", ("jsonl", "tensorboard")),
        (["--logger.outputs", "jsonl,tensorboard"], "logger.outputs", ("jsonl", "tensorboard")),
        (["--logger.outputs=tensorboard, jsonl"], "logger.outputs", ("tensorboard", "jsonl")),
        (["--task", "a=b"], "task", "a=b"),
        (["--task=a=b"], "task", "a=b"),
        (["--run.from_checkpoint="], "run.from_checkpoint", ""),
        (["--run.actor_addr", "5000"], "run.actor_addr", "5000"),
        (["--steps", "7"], "run.steps", 7),
        (["--duration", "7"], "run.duration", 7.0),
        (["--envs", "7"], "run.envs", 7),
        (["--eval-envs", "7"], "run.eval_envs", 7),
        (["--eval_envs", "7"], "run.eval_envs", 7),
        (["--batch-size", "7"], "batch_size", 7),
        (["--run.envs-per-worker", "7"], "run.envs_per_worker", 7),
    ],
)
def test_words(words, key, expected):
    value = flatten(load_options(words))[key]
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--run.envs", "many"], ["run.envs='many'", "not a whole number", "1e4"]),
        (["--run.envs", "1.5"], ["run.envs='1.5'", "not a whole number"]),
        (["--run.envs", "inf"], ["run.envs='inf'", "not a whole number"]),
        (["--run.envs", ""], ["run.envs=''", "not a whole number"]),
        (["--run.envs", "True"], ["run.envs='True'", "not a whole number"]),
        (["--run.train_ratio", "x"], ["run.train_ratio='x'", "not a finite number", "default is 32.0"]),
        (["--run.train_ratio", "nan"], ["run.train_ratio='nan'", "not a finite number"]),
        (["--replay.priority_initial", "nan"], ["replay.priority_initial='nan'", "not a finite number"]),
        (["--replay.priority_initial", "-inf"], ["replay.priority_initial='-inf'", "not a finite number"]),
        (["--run.restart", "yes"], ["run.restart='yes'", "neither True nor False", "give True or False"]),
        (["--run.restart"], ["run.restart=''", "has no value", "--run.restart True"]),
        (["--run.envs", "1", "2"], ["run.envs='1 2'", "2 values but takes one"]),
        (["--logger.outputs"], ["logger.outputs", "empty list", "jsonl"]),
        (["--logger.outputs", ","], ["logger.outputs", "empty list", "jsonl"]),
        (["gym_CartPole-v1"], ["gym_CartPole-v1", "no option in front", "--task gym_CartPole-v1"]),
        (["--logdir", ""], ["logdir=''", "empty", "name a directory"]),
        (["--logdir", "gs://bucket/run"], ["logdir='gs://bucket/run'", "local directory"]),
    ],
)
def test_wrong_values_name_key_value_reason_remedy(words, parts):
    message = refusal(words)
    assert all(part in message for part in parts), message
    assert "; " in message and "\n" not in message


@pytest.mark.parametrize(
    "override",
    [{"run.envs": True}, {"run.envs": 1.5}, {"run.envs": None}, {"task": None}, {"task": True}, {"seed": [1, 2]}],
)
def test_wrong_values_in_a_mapping(override):
    assert next(iter(override)) in refusal(override)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("run.env", "did you mean --run.envs?"),
        ("run.stpes", "did you mean --run.steps?"),
        ("train_ratio", "did you mean --run.train_ratio?"),
        ("run.batch_size", "did you mean --batch_size?"),
        ("batchsize", "did you mean --batch_size?"),
        ("step", "did you mean --run.steps?"),
        ("env", "did you mean --run.envs?"),
        ("run", "such as --run.mode"),
        ("zzz", "dreamfleet train --help"),
    ],
)
def test_unknown_key_suggests_the_nearest(name, suggestion):
    message = refusal([f"--{name}", "8"])
    assert message.startswith((f"unknown option --{name}; ", f"--{name}='8' is a section, not an option; "))
    assert suggestion in message
    assert suggestion.replace("--", "").removeprefix("dreamfleet train ") in refusal({name: 8})


def test_unknown_key_may_be_a_flag_of_the_command():
    assert "did you mean --preset?" in refusal(["--presets", "debug"], flags=("preset",))


def test_unknown_preset_lists_all():
    message = refusal([], ["cartpol"])
    assert "preset='cartpol' is unknown" in message
    assert "did you mean cartpole?" in message
    assert all(name in message for name in load_presets())


@pytest.mark.parametrize("name", load_presets())
def test_every_preset_can_run(name, tmp_path):
    config = load_options({"logdir": str(tmp_path)}, [name])
    assert config != load_options({"logdir": str(tmp_path)})
    check_options(config)


@pytest.mark.parametrize(
    ("presets", "words", "task"),
    [
        (["debug"], [], "dummy_vector"),
        (["debug", "cartpole"], [], "gym_CartPole-v1"),
        (["cartpole", "debug"], [], "gym_CartPole-v1"),
        (["atari", "debug"], [], "atari_pong"),
        (["atari", "debug"], ["--task", "atari_boxing"], "atari_boxing"),
    ],
)
def test_the_task_of_debug_gives_way_to_any_other(presets, words, task):
    assert load_options(words, presets).task == task


def test_logdir_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/some/home")
    logdir = load_options(["--logdir", "~/runs/{timestamp}-x"]).logdir
    assert re.fullmatch(r"/some/home/runs/\d{8}T\d{6}-x", logdir)
    assert load_options(["--logdir", "runs"]).logdir == str(Path.cwd() / "runs")
    assert load_options(["--run.from_checkpoint=~/ckpt"]).run.from_checkpoint == "/some/home/ckpt"
    assert load_options([]).run.from_checkpoint == ""


def test_roles_are_given_the_run_section_and_the_options_at_the_top():
    options = load_options(["--logdir", "/x", "--batch_size", "3", "--run.envs", "5"])
    given = role_options(options, run_id="x")
    assert (given.logdir, given.batch_size, given.envs, given.seed, given.run_id) == ("/x", 3, 5, 0, "x")
    assert given.usage is options.run.usage and given.sequence_length == 65
