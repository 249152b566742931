"""From task names to environments, and what is said about names that lead nowhere."""

import gymnasium
import numpy as np
import pytest

from dreamfleet.envs import Env, make_env, reset_action
from dreamfleet.envs.dummy import Dummy
from dreamfleet.envs.gymnasium import FromGymnasium
from dreamfleet.envs.registry import is_attribute
from dreamfleet.errors import ConfigError
from dreamfleet.testing import CountingEnv


def make_cartpole() -> gymnasium.Env:
    return gymnasium.make("CartPole-v1")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("dumy_image", r"task='dumy_image' names an unknown suite; did you mean dummy_image\?"),
        ("gim_CartPole-v1", r"did you mean gym_CartPole-v1\?"),
        ("chess", r"task='chess' names an unknown suite; known suites: dummy, gym"),
        ("", "names no environment; give one, such as gym_CartPole-v1"),
        ("dummy_sound", "task='dummy_sound' is unknown; use dummy_image or dummy_vector"),
        ("gym_NoSuchTask-v0", r"task='gym_NoSuchTask-v0' cannot be made by Gymnasium \(.*NoSuchTask"),
        ("gym_CartPole-v99", r"task='gym_CartPole-v99' cannot be made by Gymnasium \(.*v99"),
        ("gym_", "task='gym_' cannot be made by Gymnasium"),
        ("no_such_module:make", r"task='no_such_module:make' cannot be imported \(.*no_such_module"),
        ("dreamfleet.testing:NoSuchEnv", r"cannot be imported \(.*NoSuchEnv"),
        ("dreamfleet.testing:", "cannot be imported"),
        (":make", "task=':make' cannot be imported"),
        (".module:make", "task='.module:make' cannot be imported"),
    ],
)
def test_an_unknown_task_is_an_error_with_a_remedy(task, message):
    with pytest.raises(ConfigError, match=message) as info:
        make_env(task, seed=0)
    assert info.value.key == "task" and info.value.remedy


def test_dummies_take_the_options_of_their_suite():
    env = make_env("dummy_image", 0, {"dummy": {"length": 2, "size": 16}, "gym": {"size": 96}})
    assert isinstance(env, Dummy)
    assert env.obs_space["image"].shape == (16, 16, 3)
    action = {"action": np.int32(0), "reset": np.bool_(False)}
    assert [bool(env.step(action)["is_last"]) for _ in range(3)] == [False, False, True]
    assert make_env("dummy_vector", 0).obs_space["vector"].shape == (7,)


def test_a_gymnasium_id_is_made_and_seeded():
    envs = [make_env("gym_CartPole-v1", seed) for seed in (1, 1, 2)]
    first, again, other = (env.step(reset_action(env))["vector"] for env in envs)
    for env in envs:
        env.close()
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_a_gymnasium_id_may_name_the_module_that_registers_it(monkeypatch, tmp_path):
    (tmp_path / "brings_an_env.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('own/Brought-v3', CartPoleEnv)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    env = make_env("gym_brings_an_env:own/Brought-v3", 0)
    assert env.obs_space["vector"].shape == (4,)
    env.close()
    with pytest.raises(ConfigError, match=r"gym_no_such_module_here:X-v0' cannot be made by Gymnasium"):
        make_env("gym_no_such_module_here:X-v0", 0)
    assert is_attribute("gym_mine:Env") and not is_attribute("gym_mine:Env-v0")


def test_a_callable_is_called_with_the_seed_if_it_takes_one():
    seeds = []

    def make(seed: int) -> Dummy:
        seeds.append(seed)
        return Dummy()

    assert isinstance(make_env(make, 5), Dummy) and seeds == [5]
    assert isinstance(make_env(lambda: Dummy(), 5), Dummy)


def test_an_attribute_may_be_inside_a_class():
    assert isinstance(make_env(f"{__name__}:Maker.make", 0), Dummy)


class Maker:
    @staticmethod
    def make() -> Dummy:
        return Dummy()


def test_an_attribute_may_be_one_of_our_environments():
    env = make_env("dreamfleet.testing:CountingEnv", 0)
    assert isinstance(env, CountingEnv)


def test_an_attribute_may_be_a_gymnasium_environment_and_is_seeded():
    envs = [make_env(f"{__name__}:make_cartpole", seed) for seed in (1, 1, 2)]
    assert all(isinstance(env, FromGymnasium) and isinstance(env, Env) for env in envs)
    first, again, other = (env.step(reset_action(env))["vector"] for env in envs)
    for env in envs:
        env.close()
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
