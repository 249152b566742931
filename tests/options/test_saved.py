"""The options in a log directory, and what may differ when its run is resumed."""

import logging
import math
import resource
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dreamfleet.errors import ConfigError
from dreamfleet.options import (
    Options,
    change_options,
    check_resume,
    flatten,
    format_options,
    load_options,
    save_options,
)
from dreamfleet.options.fields import build, find_options
from dreamfleet.options.saved import load_saved_options, read_saved


@pytest.fixture
def options(tmp_path):
    return load_options({"task": "dummy_vector", "logdir": str(tmp_path / "run"), "batch_size": 4})


def test_save_round_trip(options):
    path = save_options(options)
    assert build(Options, read_saved(path)) == options
    save_options(change_options(options, {"seed": 3}))
    assert read_saved(path)["seed"] == 3
    assert [entry.name for entry in path.parent.iterdir()] == ["config.yaml"]


def test_failed_save_keeps_the_old_file(options):
    path = save_options(options)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        with pytest.raises(ConfigError, match=r"logdir=.*cannot be written to \(File too large"):
            save_options(change_options(options, {"seed": 3}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert build(Options, read_saved(path)) == options
    assert [entry.name for entry in path.parent.iterdir()] == ["config.yaml"]


def test_save_below_a_file(options, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"logdir=.*cannot be written to \(.*\); choose"):
        save_options(change_options(options, {"logdir": str(tmp_path / "file" / "run")}))


def test_format_keeps_the_order_of_the_declarations(options):
    assert format_options(options).splitlines()[:2] == ["task: dummy_vector", f"logdir: {options.logdir}"]


def test_same_options_resume(options, caplog):
    assert check_resume(options) is False
    save_options(options)
    assert check_resume(options) is True
    assert not caplog.records


FIRST_VERSION = Path(__file__).parents[1] / "data" / "config_0.1.yaml"
FIXED = {
    "task",
    "seed",
    "agent",
    "batch_size",
    "batch_length",
    "report_length",
    "consec_train",
    "consec_report",
    "replay_context",
    "run.mode",
    "run.train_ratio",
    "run.from_checkpoint",
    "run.from_checkpoint_regex",
}
FIXED_SECTIONS = ("env.dummy.", "replay.", "dreamer.")
FREE = {"replay.sync_every", "replay.mix_share", "dreamer.grad_norms"}  # nothing is mixed
FREE |= {key for key in find_options(Options) if key.startswith("replay.priority_")}  # none are used


@pytest.mark.parametrize("key", [key for key in find_options(Options) if key != "logdir"])
def test_which_options_may_change(key, options):
    save_options(options)
    old = flatten(options)[key]
    new = not old if isinstance(old, bool) else old + 1 if isinstance(old, (int, float)) else (old + old or "x")
    changed = build(Options, {**flatten(options), key: new})
    is_fixed = (key in FIXED or key.startswith(FIXED_SECTIONS)) and key not in FREE
    if not is_fixed:
        assert check_resume(changed)
    else:
        with pytest.raises(ConfigError) as caught:
            check_resume(changed)
        assert f"{key}: {old!r} -> {new!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("run", "key", "old", "new"),
    [
        ({"replay.priority": 1.0}, "replay.priority_initial", math.inf, 1.0),
        ({"replay.mix": "/other"}, "replay.mix_share", 0.5, 0.25),
        ({"task": "procgen_coinrun"}, "env.procgen.size", 96, 64),
        ({"task": "module_x:make"}, "env.gym.size", 64, 96),
        ({"task": "gym_mine:Env-v0"}, "env.gym.size", 64, 96),
    ],
)
def test_options_that_concern_some_runs_only(run, key, old, new, options):
    options = change_options(options, run)
    save_options(options)
    with pytest.raises(ConfigError, match=f"{key}: {old!r} -> {new!r}.*--{key} {old}"):
        check_resume(change_options(options, {key: new}))


def test_all_differences_are_listed_in_one_line(options):
    save_options(options)
    with pytest.raises(ConfigError) as caught:
        check_resume(change_options(options, {"seed": 1, "task": "other", "run.steps": 5}))
    assert caught.value.key == "logdir"
    assert str(caught.value) == (
        f"logdir={options.logdir!r} holds a run with other options (task: 'dummy_vector' -> 'other', seed: 0 -> 1); "
        "set these back to resume it (--task dummy_vector --seed 0), or use another logdir"
    )


@pytest.mark.parametrize(
    "use", [check_resume, lambda options: load_saved_options(options.logdir)], ids=["resume", "eval"]
)
def test_options_of_another_version_are_named_once_and_refused_by_nobody(use, options, caplog):
    path = save_options(options)
    saved = YAML(typ="safe").load(path)
    del saved["replay_context"], saved["run"]["keep"]
    saved["run"]["forgotten"] = saved["run"]["train_rato"] = 1
    YAML().dump(saved, path)
    with caplog.at_level(logging.WARNING, logger="dreamfleet"):
        assert use(options) and use(options)
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: this version does not know the option run.forgotten=1 and ignores it; "
        "the run may have been trained differently",
        f"{path}: this version does not know the option run.train_rato=1 and ignores it; did you mean run.train_ratio?",
        f"{path}: saved by a version without replay_context, run.keep; using the defaults",
    ]
    with pytest.raises(ConfigError, match="replay_context: 1 -> 2"):
        check_resume(change_options(options, {"replay_context": 2}))


def test_a_log_directory_of_the_first_version(options, tmp_path):
    """Its transport was called zmq, it knew fewer figures of resource use, and had no online queue by default."""
    first = FIRST_VERSION.read_text().replace("LOGDIR", options.logdir)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(first)
    with pytest.raises(ConfigError, match=r"\(replay.online: False -> True\); set .* \(--replay.online False\), or"):
        check_resume(options)
    options = change_options(options, {"replay.online": False})
    assert check_resume(options)
    assert load_saved_options(options.logdir).batch_size == 4
    with pytest.raises(ConfigError, match="batch_size: 4 -> 5"):
        check_resume(change_options(options, {"batch_size": 5}))


def test_what_versions_without_an_option_did_is_kept(options, tmp_path):
    """Games were resized by area before there was a choice."""
    (tmp_path / "run").mkdir()
    saved = FIRST_VERSION.read_text().replace("LOGDIR", options.logdir).replace("dummy_vector", "atari_pong")
    (tmp_path / "run" / "config.yaml").write_text(saved)
    assert load_saved_options(options.logdir).env.atari.resize == "area"
    options = change_options(options, {"task": "atari_pong", "replay.online": False})
    with pytest.raises(
        ConfigError, match=r"\(env.atari.resize: 'area' -> 'bilinear'\); .* \(--env.atari.resize area\)"
    ):
        check_resume(options)
    assert check_resume(change_options(options, {"env.atari.resize": "area"}))


@pytest.mark.parametrize("content", [b"", b"- a list", b"run: [1, {", b"\xff\xfe\x00", b"a: []", b"x y:"])
def test_unreadable_file(content, options):
    path = save_options(options)
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        check_resume(options)
    message = str(caught.value)
    assert "cannot be read" in message and f"repair or delete {path}" in message and "\n" not in message
