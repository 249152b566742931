"""The config in a log directory, and what may differ when its run is resumed."""

import logging
import resource

import elements
import pytest

from dreamfleet.errors import ConfigError
from dreamfleet.options import check_resume, format_config, load_config, save_config
from dreamfleet.options.load import load_defaults


@pytest.fixture
def config(tmp_path):
    return load_config({"logdir": str(tmp_path / "run"), "batch_size": 4})


def test_save_round_trip(config):
    path = save_config(config, config.logdir)
    assert elements.Config.load(path) == config
    save_config(config.update(seed=3), config.logdir)
    assert elements.Config.load(path).seed == 3
    assert [entry.name for entry in path.parent.iterdir()] == ["config.yaml"]


def test_failed_save_keeps_the_old_file(config):
    path = save_config(config, config.logdir)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        with pytest.raises(ConfigError, match=r"logdir=.*cannot be written to \(File too large"):
            save_config(config.update(seed=3), config.logdir)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert elements.Config.load(path) == config
    assert [entry.name for entry in path.parent.iterdir()] == ["config.yaml"]


def test_save_below_a_file(config, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"logdir=.*cannot be written to \(.*\); choose"):
        save_config(config, tmp_path / "file" / "run")


def test_format_keeps_the_order_of_the_defaults(config):
    assert format_config(config).splitlines()[:2] == ["task: dummy_vector", f"logdir: {config.logdir}"]


def test_same_config_resumes(config, caplog):
    assert check_resume(config, config.logdir) is False
    save_config(config, config.logdir)
    assert check_resume(config, config.logdir) is True
    assert not caplog.records


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
FIXED_SECTIONS = ("env.", "replay.", "dreamer.")
FREE = {"replay.sync_every", "dreamer.grad_norms"}


@pytest.mark.parametrize("key", load_defaults().flat)
def test_which_keys_may_change(key, config):
    save_config(config, config.logdir)
    old = config.flat[key]
    new = not old if isinstance(old, bool) else old + 1 if isinstance(old, (int, float)) else (old + old or "x")
    changed = elements.Config({**config.flat, key: new})
    is_fixed = (key in FIXED or key.startswith(FIXED_SECTIONS)) and key not in FREE
    if not is_fixed:
        assert check_resume(changed, config.logdir)
    else:
        with pytest.raises(ConfigError) as caught:
            check_resume(changed, config.logdir)
        assert f"{key}: {old!r} -> {new!r}" in str(caught.value)


def test_all_differences_are_listed_in_one_line(config):
    save_config(config, config.logdir)
    with pytest.raises(ConfigError) as caught:
        check_resume(config.update({"seed": 1, "task": "other", "run.steps": 5}), config.logdir)
    assert caught.value.key == "logdir"
    assert str(caught.value) == (
        f"logdir={config.logdir!r} holds a run with other settings (task: 'dummy_vector' -> 'other', seed: 0 -> 1); "
        "set these back to resume it, or use another logdir"
    )


def test_keys_of_another_version(config, caplog):
    older = {key: value for key, value in config.flat.items() if key not in ("replay_context", "run.keep")}
    save_config(elements.Config({**older, "run.forgotten": 1}), config.logdir)
    with caplog.at_level(logging.WARNING, logger="dreamfleet"):
        assert check_resume(config, config.logdir)
    warned = "\n".join(record.getMessage() for record in caplog.records)
    assert "run.forgotten=1 is unknown to this version and ignored" in warned
    assert "has no option replay_context, so its default 1 is taken" in warned
    with pytest.raises(ConfigError, match="replay_context: 1 -> 2"):
        check_resume(config.update(replay_context=2), config.logdir)


@pytest.mark.parametrize("content", [b"", b"- a list", b"run: [1, {", b"\xff\xfe\x00", b"a: []", b"x y: 1"])
def test_unreadable_file(content, config):
    path = save_config(config, config.logdir)
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        check_resume(config, config.logdir)
    message = str(caught.value)
    assert "cannot be read" in message and f"repair or delete {path}" in message and "\n" not in message
