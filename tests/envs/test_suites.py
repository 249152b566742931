"""Suites: names, options, missing packages, and what is special to each."""

import importlib
import importlib.util
import typing

import numpy as np
import pytest

from dreamfleet.envs import check_task, make_env, reset_action
from dreamfleet.envs.existence import check_exists
from dreamfleet.envs.registry import EXTRAS, OWN, SUITES, _call, _dummy
from dreamfleet.errors import ConfigError
from dreamfleet.options import EnvOptions

pytestmark = pytest.mark.filterwarnings("ignore")  # the packages of the suites have warnings of their own


def needs(suite: str) -> None:
    try:
        check_task(f"{suite}_")
    except ConfigError as error:
        pytest.skip(str(error))


def steps(env, count: int, seed: int = 0) -> list[dict]:
    """Random actions, with a reset after the last step of an episode."""
    rng = np.random.default_rng(seed)
    history = [env.step(reset_action(env))]
    while len(history) < count:
        action = {k: rng.uniform(s.low, s.high, s.shape).astype(s.dtype) for k, s in env.act_space.items()}
        history.append(env.step({**action, "reset": np.bool_(history[-1]["is_last"])}))
    return history


@pytest.mark.parametrize("suite", EXTRAS)
def test_a_missing_package_is_said_with_the_command_that_installs_it(suite, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for use in (check_task, lambda task: make_env(task, 0)):
        with pytest.raises(ConfigError, match=f"task='{suite}_x' needs the package .*; .*run .*pip install") as info:
            use(f"{suite}_x")
        assert EXTRAS[suite].install in str(info.value)


@pytest.mark.parametrize("suite", SUITES)
def test_each_suite_takes_the_section_of_its_name(suite):
    needs(suite)
    if suite in EXTRAS or suite in OWN:
        name = EXTRAS[suite].module if suite in EXTRAS else suite
        make = getattr(importlib.import_module(f"dreamfleet.envs.suites.{name}"), f"make_{suite}")
    else:
        make = {"dummy": _dummy, "gym": _call}[suite]
    section = typing.get_type_hints(EnvOptions).get(suite, type(None))
    assert typing.get_type_hints(make)["options"] is section


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        ("atari_pongg", "atari_pong"),
        ("atari100k_pongg", "atari100k_pong"),
        ("dmc_walker_wakl", "dmc_walker_walk"),
        ("crafter_rewards", "crafter_reward"),
        ("minigrid_Emty-5x5-v0", "minigrid_MiniGrid-Empty-5x5-v0"),
        ("bsuite_catch/99", "bsuite_catch/"),
        ("memorymaze_9x8", "memorymaze_9x9"),
        ("procgen_coinrum", "procgen_coinrun"),
        ("pinpad_tree", "pinpad_three"),
        ("langroom_answer_only", "langroom_answer-only"),
        ("loconav_ant_maze", "loconav_ant_maze_"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(task, hint):
    needs(task.partition("_")[0])
    with pytest.raises(ConfigError, match=f"task=.* is not one of the .* try .*{hint}"):
        make_env(task, 0, {"dmc": {"image": False}})
    with pytest.raises(ConfigError, match=f"task=.* is not one of the .* try .*{hint}"):
        check_exists(task)


def test_crafter_counts_achievements_and_tells_death_from_the_time_limit():
    needs("crafter")
    env = make_env("crafter_reward", 0)
    logs = {key for key in env.obs_space if key.startswith("log/achievement_")}
    assert len(logs) == 22
    obs = env.step(reset_action(env))
    assert not any(obs[key] for key in logs)
    player, act = env._env._player, {"action": np.int32(0), "reset": np.bool_(False)}
    player.achievements["eat_cow"] = 2
    obs = env.step(act)
    assert {key: float(obs[key]) for key in logs if obs[key]} == {"log/achievement_eat_cow": 2}
    assert obs["reward"] == 1 and not obs["is_last"]
    player.health = 0
    obs = env.step(act)
    assert obs["is_last"] and obs["is_terminal"] and obs["log/achievement_eat_cow"] == 2
    obs = env.step(act)
    assert obs["is_first"] and obs["log/achievement_eat_cow"] == 0
    env._env._length = 2
    assert [(obs["is_last"], obs["is_terminal"]) for obs in (env.step(act), env.step(act))][-1] == (True, False)


def test_crafter_without_rewards():
    needs("crafter")
    env = make_env("crafter_noreward", 0)
    env.step(reset_action(env))
    env._env._player.achievements["eat_cow"] = 1
    assert env.step({"action": np.int32(0), "reset": np.bool_(False)})["reward"] == 0


def test_control_tasks_repeat_actions_and_end_by_time():
    needs("dmc")
    once, twice = (make_env("dmc_cartpole_balance", 3, {"dmc": {"image": False, "repeat": n}}) for n in (1, 2))
    assert {k for k in once.obs_space if not k.startswith(("is_", "reward"))} == {"position", "velocity"}
    act = {"action": np.ones(1, np.float32), "reset": np.bool_(False)}
    for _ in range(2):  # the second episode is as the first
        first, second = (env.step(reset_action(env)) for env in (once, twice))
        np.testing.assert_array_equal(first["position"], second["position"])
        rewards = [once.step(act) for _ in range(2)]
        obs = twice.step(act)
        np.testing.assert_array_equal(obs["position"], rewards[1]["position"])
        assert obs["reward"] == pytest.approx(rewards[0]["reward"] + rewards[1]["reward"])
    lasts = [twice.step(act) for _ in range(499)]
    assert lasts[-1]["is_last"] and not lasts[-1]["is_terminal"] and not lasts[-2]["is_last"]


def test_control_tasks_show_images_beside_or_instead_of_the_state():
    needs("dmc")
    try:
        both = make_env("dmc_cartpole_balance", 0, {"dmc": {"size": 48}})
        only = make_env("dmc_cartpole_balance", 0, {"dmc": {"proprio": False}})
        other = make_env("dmc_cartpole_balance", 0, {"dmc": {"camera": 1}})
    except ConfigError as error:
        pytest.skip(str(error))
    assert both.obs_space["image"].shape == (48, 48, 3) and "position" in both.obs_space
    assert {k for k in only.obs_space if not k.startswith(("is_", "reward"))} == {"image"}
    image, elsewhere = (env.step(reset_action(env))["image"] for env in (only, other))
    assert image.shape == (64, 64, 3) and image.std() > 5
    assert (image != elsewhere).any()
    with pytest.raises(ConfigError, match=r"env.dmc.image=False leaves nothing to observe"):
        make_env("dmc_cartpole_balance", 0, {"dmc": {"proprio": False, "image": False}})


def test_a_walker_finds_the_goal_of_a_maze_and_is_rewarded_there():
    needs("loconav")
    try:
        env = make_env("loconav_ant_maze_s", 0)
        again = make_env("loconav_ant_maze_s", 0, {"loconav": {"again": True, "size": 48, "camera": 0}})
    except ConfigError as error:
        pytest.skip(str(error))
    assert env.obs_space["image"].shape == (64, 64, 3) and again.obs_space["image"].shape == (48, 48, 3)
    assert env.act_space["action"].shape == (8,) and "walker/joints_pos" in env.obs_space
    stay = {"action": np.zeros(8, np.float32), "reset": np.bool_(False)}
    for each in (env, again):
        first = each.step(reset_action(each))
        assert first["image"].std() > 5 and first["log/coverage"] == 1
        assert [each.step(stay)["reward"] for _ in range(5)] == [0] * 5
        control, walker = _find_walker(each)
        goal = control.task._target_position
        start = np.array(walker.get_pose(control.physics)[0])
        walker.set_pose(control.physics, position=[goal[0], goal[1], 1.0])
        rewards = [each.step(stay) for _ in range(30)]
        assert not any(obs["is_last"] for obs in rewards) and rewards[-1]["log/coverage"] >= 2
        scores = [float(obs["reward"]) for obs in rewards]
        place = np.array(walker.get_pose(control.physics)[0])
        if each is env:
            assert scores[-10:] == [1.0] * 10, "every step since then"
        else:
            assert sum(scores) == 1 and np.linalg.norm(place - start) < 1, "it is back at the start"


def _find_walker(env):
    while not hasattr(env, "_find"):
        env = env.env
    names = dict(zip(env._find.__code__.co_freevars, env._find.__closure__, strict=True))
    return names["control"].cell_contents, names["walker"].cell_contents


def test_every_maze_has_a_way_from_the_start_to_the_goal():
    needs("loconav")
    from dreamfleet.envs.suites.loconav import MAZES
    from dreamfleet.envs.suites.loconav_maze import WAYS, draw

    assert {*WAYS, "empty"} == set(MAZES)
    sizes = []
    for maze in WAYS:
        lines = draw(maze).splitlines()
        cells = {(x, y): mark for y, line in enumerate(lines) for x, mark in enumerate(line)}
        assert all(cells[x, y] not in " PG" for x, y in cells if x in (0, len(lines) - 1) or y in (0, len(lines) - 1))
        start = next(place for place, mark in cells.items() if mark == "P")
        steps, front = {start: 0}, [start]
        for x, y in front:
            for place in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
                if cells[place] in " PG" and place not in steps:
                    steps[place] = steps[x, y] + 1
                    front.append(place)
        sizes.append(steps[next(place for place, mark in cells.items() if mark == "G")])
    assert sizes == sorted(set(sizes)), "each is longer than the one before"


def test_minigrid_is_seen_as_an_image_without_its_text():
    needs("minigrid")
    env = make_env("minigrid_Empty-5x5-v0", 0)
    assert {k for k in env.obs_space if not k.startswith(("is_", "reward"))} == {"image", "direction"}
    assert env.obs_space["image"].shape == (64, 64, 3)
    env.step(reset_action(env))
    right, forward = np.int32(1), np.int32(2)
    history = [env.step({"action": a, "reset": np.bool_(False)}) for a in (forward, forward, right, forward, forward)]
    assert [int(obs["direction"]) for obs in history] == [0, 0, 1, 1, 1]
    assert history[-1]["is_terminal"] and history[-1]["reward"] > 0.9, "this is the way to the goal"
    assert make_env("minigrid_MiniGrid-Empty-5x5-v0", 0).obs_space.keys() == env.obs_space.keys()


def test_bsuite_records_what_its_scores_are_made_of_and_takes_the_seed():
    needs("bsuite")
    env = make_env("bsuite_catch/0", 0)
    history = steps(env, 200)
    assert history[0]["log/total_regret"] == 0 and history[-1]["log/total_regret"] > 0
    boards = [np.stack([obs["vector"] for obs in steps(make_env("bsuite_catch/0", seed), 100)]) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(boards[0], boards[1])
    assert (boards[0] != boards[2]).any()


def test_bsuite_ends_after_its_episodes_and_writes_what_its_analysis_reads(tmp_path, monkeypatch):
    needs("bsuite")
    from bsuite import sweep
    from bsuite.bsuite import load_from_id
    from bsuite.logging import csv_load, csv_logging

    monkeypatch.setattr(sweep, "EPISODES", {**sweep.EPISODES, "deep_sea/0": 30})
    theirs = csv_logging.wrap_environment(load_from_id("deep_sea/0"), "deep_sea/0", str(tmp_path / "theirs"))
    env = make_env("bsuite_deep_sea/0", 0, {"bsuite": {"results": str(tmp_path / "ours")}})
    rng, overs = np.random.default_rng(0), []
    while not overs or not overs[-1]:
        for _ in range(7 if len(overs) < 7 else 99):  # the process of the first seven episodes ends there
            theirs.reset()
            obs = env.step(reset_action(env))
            while not obs["is_last"]:
                action = rng.integers(2)
                obs = env.step({"action": np.int32(action), "reset": np.bool_(False)})
                theirs.step(action)
            overs.append(float(obs["log/run_over"]))
            if overs[-1]:
                break
        env = make_env("bsuite_deep_sea/0", 0, {"bsuite": {"results": str(tmp_path / "ours")}})
    assert len(overs) == 30 and sum(overs) == 1
    assert env.step(reset_action(env))["log/run_over"], "a process that comes later says so at once"
    (ours, _), (expected, _) = (csv_load.load_bsuite(str(tmp_path / name)) for name in ("ours", "theirs"))
    assert ours["episode"].tolist() == [*range(1, 11), 12, 14, 17, 20, 25, 30]
    counts = ["steps", "total_return", "episode_len", "episode_return", "total_bad_episodes", "denoised_return"]
    for column in counts:
        assert ours[column].tolist() == pytest.approx(expected[column].tolist()), column


def test_bsuite_goes_on_from_what_earlier_processes_counted(tmp_path):
    needs("bsuite")
    (tmp_path / "cartpole-0.json").write_text('{"episode": 2, "best_episode": 5000, "raw_return": 70.0}')
    env = make_env("bsuite_cartpole/0", 0, {"bsuite": {"results": str(tmp_path)}})
    env.step(reset_action(env))
    obs = env.step({"action": np.int32(1), "reset": np.bool_(False)})
    assert obs["reward"] == 1 and (obs["log/best_episode"], obs["log/raw_return"]) == (5000, 71)


def test_bsuite_writes_down_the_same_episodes_as_the_package():
    needs("bsuite")
    from bsuite.utils.wrappers import _logarithmic_logging

    from dreamfleet.envs.suites.bsuite_results import is_logged

    assert [n for n in range(1, 20_001) if is_logged(n)] == [n for n in range(1, 20_001) if _logarithmic_logging(n)]


def test_procgen_shows_every_episode_from_its_first_image():
    needs("procgen")
    env = make_env("procgen_bigfish", 0)
    history = steps(env, 400)
    lasts = [obs["is_last"] for obs in history]
    assert any(lasts)
    assert [obs["is_first"] for obs in history[1:]] == lasts[:-1]
    assert all(obs["reward"] == 0 for obs in history if obs["is_first"])
    end = lasts.index(True)
    np.testing.assert_array_equal(history[end]["image"], history[end - 1]["image"])
    assert (history[end + 1]["image"] != history[end]["image"]).any()
    obs = env.step(reset_action(env))
    assert obs["is_first"] and not env.step({"action": np.int32(0), "reset": np.bool_(False)})["is_first"]
    again = steps(make_env("procgen_bigfish", 0), 100)
    assert all((a["image"] == b["image"]).all() for a, b in zip(again, history, strict=False))
