"""DeepMind Lab and Minecraft, on stand-ins for their packages, and what is said without these."""

import importlib.util

import numpy as np
import pytest

from dreamfleet.envs import check_task, make_env, reset_action
from dreamfleet.envs.checker import check_env
from dreamfleet.envs.registry import EXTRAS
from dreamfleet.errors import ConfigError
from tests.envs.stand_ins import install_lab, install_minerl


def act(number: int) -> dict:
    return {"action": np.int32(number), "reset": np.bool_(False)}


@pytest.mark.parametrize(
    ("task", "package", "parts"),
    [
        (
            "dmlab_explore_goal_locations_small",
            "deepmind_lab",
            ["not on PyPI", "Bazel", "build its wheel"],
        ),
        ("minecraft_diamond", "minerl", ["Java", "gym", "patched wheel", "OpenJDK 8", "minerl==0.4.4"]),
    ],
)
def test_without_its_package_a_task_is_refused_with_the_reason_and_what_to_do(task, package, parts, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    for use in (check_task, lambda task: make_env(task, 0)):
        with pytest.raises(ConfigError, match=f"task='{task}' needs the package {package}, which is not inst") as info:
            use(task)
        assert all(part in str(info.value) for part in parts) and "crafter" not in str(info.value)
        assert f"run {EXTRAS[task.partition('_')[0]].install}" in str(info.value)


@pytest.mark.parametrize(("task", "hint"), [("minecarft_diamond", "minecraft_diamond"), ("dmlb_x", "dmlab_x")])
def test_a_misspelt_suite_finds_the_right_one(task, hint):
    with pytest.raises(ConfigError, match=rf"did you mean {hint}"):
        check_task(task)


def test_lab_levels_are_seen_as_images_and_repeat_actions(monkeypatch):
    (made := install_lab(monkeypatch)).clear()
    env = make_env("dmlab_explore_goal_locations_small", 5)
    assert made[0].level == "contributed/dmlab30/explore_goal_locations_small"
    assert (made[0].config["width"], made[0].names) == ("64", ["RGB_INTERLEAVED"])
    assert env.act_space["action"].high == 15
    first = env.step(reset_action(env))
    seen = [env.step(act(6)) for _ in range(3)]
    assert first["is_first"] and [obs["reward"] for obs in seen] == [4, 4, 4], "an action is repeated four times"
    assert [int(obs["image"][0, 0, 1]) for obs in (first, *seen)] == [0, 4, 8, 8], "the last image is that before"
    assert seen[0]["image"][0, 0, 2] == -60 % 256
    assert seen[-1]["is_last"] and seen[-1]["is_terminal"]
    assert env.step(act(0))["is_first"]
    assert env.step(reset_action(env))["is_first"]


def test_lab_seeds_levels_and_options(monkeypatch):
    made = install_lab(monkeypatch)
    envs = [make_env("dmlab_rooms_watermaze", seed) for seed in (1, 1, 2)]
    images = [np.stack([env.step(reset_action(env))["image"] for _ in range(4)]) for env in envs]
    assert (images[0] == images[1]).all() and (images[0] != images[2]).any()
    assert len(np.unique(images[0][:, 0, 0, 0])) > 1, "every episode has a seed of its own"
    options = {"dmlab": {"actions": "impala", "episodic": False, "size": 96, "repeat": 20}}
    env = make_env("dmlab_rooms_collect_good_objects_test", 0, options)
    assert made[-1].level.endswith("good_objects_train") and "mixerSeed" not in made[-1].config
    assert env.act_space["action"].high == 9
    obs = env.step(reset_action(env))
    assert obs["image"].shape == (96, 96, 3)
    obs = env.step(act(8))
    assert obs["is_last"] and not obs["is_terminal"] and made[-1].action.tolist() == [0, 0, 0, 0, 1, 0, 0]
    make_env("dmlab_rooms_collect_good_objects_test", 0, {"dmlab": {"holdout": True}})
    assert made[-1].level.endswith("good_objects_test")
    assert made[-1].config["mixerSeed"] == str(0x600D5EED) and made[-1].config["allowHoldOutLevels"] == "true"
    with pytest.raises(ConfigError, match=r"dmlab_rooms_watermaz.* try dmlab_rooms_watermaze"):
        make_env("dmlab_rooms_watermaz", 0)


def test_lab_instructions_are_features_of_their_words(monkeypatch):
    install_lab(monkeypatch)
    env = make_env("dmlab_language_execute_random_task", 0)
    text = env.step(reset_action(env))["instruction"].reshape(32, 32)
    assert text.dtype == np.float32 and (text[:4].std(1) > 0.5).all() and not text[4:].any()
    from dreamfleet.envs.suites.dmlab import embed

    one, other = embed("the red hat").reshape(32, 32), embed("a RED ball").reshape(32, 32)
    assert (one[1] == other[1]).all() and (one[2] != other[2]).any()


@pytest.mark.parametrize("task", ["dmlab_language_execute_random_task", "minecraft_diamond"])
def test_the_adapters_keep_the_contract(task, monkeypatch):
    install_lab(monkeypatch)
    install_minerl(monkeypatch)
    report = check_env(lambda seed: make_env(task, seed, {"minecraft": {"length": 20}}), 100)
    assert not [finding for finding in report.findings if finding.level == "error"], report.findings


@pytest.fixture
def play(monkeypatch):
    """Makes a task and steps it through a script of changes; returns the environment, the world and what was seen."""
    install_minerl(monkeypatch)

    def play(task: str, script: list[dict], actions: list[int] | None = None, **options):
        env = make_env(f"minecraft_{task}", 0, {"minecraft": options})
        world = env.env._world
        seen = [env.step(reset_action(env))]
        world.script = list(script)
        seen += [env.step(act(number)) for number in actions or [0] * len(script)]
        return env, world, seen

    return play


def rewards(seen: list[dict]) -> list[float]:
    return [float(obs["reward"]) for obs in seen[1:]]


def test_wood_is_rewarded_by_the_log_of_both_kinds(play):
    _, world, seen = play("wood", [{"items": {"log": 2}}, {"items": {"log2": 1}}, {"items": {"log": 0}}, {}])
    assert rewards(seen) == [2, 1, 0, 0]
    assert seen[2]["log/log"] == 3 and world.spec.start[0].args == (100.0,)


def test_climbing_is_rewarded_by_height_and_health_by_little(play):
    _, _, seen = play("climb", [{"height": 66.0}, {"height": 65.0}, {"life": 10.0}])
    assert rewards(seen) == pytest.approx([2, -1, -0.005])
    assert seen[-1]["health"] == 0.5


def test_a_diamond_is_rewarded_step_by_step_each_once(play):
    script = [
        {"items": {"log": 1}},
        {"items": {"planks": 4, "log": 0}},
        {"items": {"log": 2}},
        {"items": {"diamond": 1}},
    ]
    env, _, seen = play("diamond", script)
    assert rewards(seen) == [1, 1, 0, 1]
    assert env.act_space["action"].high == 25
    names = env.env._items
    assert seen[-1]["inventory_max"][names.index("planks")] == 4 and seen[3]["inventory"][names.index("log")] == 2
    assert not env.step(reset_action(env))["inventory_max"].any(), "another episode begins with nothing"


def test_death_is_terminal_and_neither_a_crash_nor_the_time_is(play):
    _, _, seen = play("wood", [{}, {"done": True}])
    assert seen[-1]["is_last"] and seen[-1]["is_terminal"]
    _, _, seen = play("wood", [{"done": True, "info": {"error": "lost"}}])
    assert seen[-1]["is_last"] and not seen[-1]["is_terminal"]
    env, _, seen = play("wood", [{}, {}, {}], length=3)
    assert seen[-1]["is_last"] and not seen[-1]["is_terminal"]
    assert env.step(act(0))["is_first"]


def test_jumps_go_on_and_the_view_does_not_turn_over(play):
    _, world, _ = play("wood", [], [10, *[0] * 10, *[3] * 6])
    assert [action["jump"] for action in world.actions[:11]] == [1] * 10 + [0]
    assert sum(action["camera"][0] for action in world.actions) == 60
    _, world, _ = play("wood", [], [1, *[0] * 30])
    assert [action["attack"] for action in world.actions] == [1] + [0] * 30, "blocks break at once"
    _, world, _ = play("wood", [], [1, *[0] * 30], break_speed=1.0)
    assert [action["attack"] for action in world.actions] == [1] * 30 + [0]


def test_worlds_differ_by_episode_and_are_the_same_for_a_seed(play):
    worlds = []
    for _ in range(2):
        env, world, _ = play("wood", [])
        env.step(reset_action(env))
        worlds.append(world.seeds)
    assert worlds[0] == worlds[1] and len(set(worlds[0])) == 2
