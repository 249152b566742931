"""The Atari protocol on the real emulator, and the bugs that the field has had in it."""

import numpy as np
import pytest

from dreamfleet.envs import make_env, reset_action
from dreamfleet.envs.images import resize

pytest.importorskip("ale_py", reason="needs pip install 'dreamfleet[atari]'")
FIRE = 1


def make(game: str = "breakout", seed: int = 0, suite: str = "atari", **options):
    return make_env(f"{suite}_{game}", seed, {suite: options})


def play(env, steps: int, action: int = FIRE) -> list[dict]:
    """Steps as the actor does: with a reset after the last step of an episode."""
    history = [env.step(reset_action(env))]
    while len(history) < steps:
        history.append(env.step({"action": np.int32(action), "reset": np.bool_(history[-1]["is_last"])}))
    return history


def screen(env) -> np.ndarray:
    image = (
        env._ale.getScreenGrayscale()[..., None] if env.obs_space["image"].shape[-1] == 1 else env._ale.getScreenRGB()
    )
    return resize(image, *env.obs_space["image"].shape[:2], env._options.resize)


def test_spaces_follow_the_two_benchmarks():
    env = make()
    assert env.obs_space["image"].shape == (96, 96, 1) and env.act_space["action"].high == 18
    env = make(suite="atari100k")
    assert env.obs_space["image"].shape == (64, 64, 3) and env.act_space["action"].high == 4
    image = env.step(reset_action(env))["image"]
    assert image.shape == (64, 64, 3) and image.dtype == np.uint8 and image.any()


def test_an_action_is_repeated_in_every_episode():
    env = make(sticky=False, noops=0, length=40)
    frames, episodes = [], 0
    for obs in play(env, 1):
        assert obs["is_first"]
    for _ in range(35):
        before = env._ale.getEpisodeFrameNumber()
        obs = env.step({"action": np.int32(0), "reset": np.bool_(False)})
        if obs["is_first"]:
            episodes += 1
        else:
            frames.append(env._ale.getEpisodeFrameNumber() - before)
    assert episodes == 3 and set(frames) == {4}


def test_nothing_is_left_of_the_episode_before():
    env = make("pong", sticky=False, noops=0)
    first = play(env, 1)[0]
    for _ in range(60):
        before = env.step({"action": np.int32(2), "reset": np.bool_(False)})
    obs = env.step({"action": np.int32(2), "reset": np.bool_(True)})
    assert obs["is_first"] and obs["reward"] == 0
    np.testing.assert_array_equal(obs["image"], screen(env))
    np.testing.assert_array_equal(obs["image"], first["image"])
    assert (before["image"] > obs["image"]).any(), "what was on the screen before could have been left"


def test_an_image_is_the_brighter_of_the_last_two_frames():
    env = make("pong", sticky=False, noops=0)
    play(env, 60)
    screens = []
    env._ale = Watched(env._ale, lambda: screens.append(env._ale.getScreenGrayscale()[..., None]))
    image = env.step({"action": np.int32(0), "reset": np.bool_(False)})["image"]
    assert len(screens) == 4
    np.testing.assert_array_equal(image, resize(np.maximum(screens[2], screens[3]), 96, 96, "bilinear"))
    assert (screens[2] != screens[3]).any()


class Watched:
    """An emulator that tells of every frame."""

    def __init__(self, ale, tell):
        self._ale, self._tell = ale, tell

    def act(self, action):
        reward = self._ale.act(action)
        self._tell()
        return reward

    def __getattr__(self, name):
        return getattr(self._ale, name)


def test_flags_of_episodes_that_end_by_themselves_and_by_time():
    for options, is_terminal in [({}, True), ({"length": 100}, False)]:
        history = play(make(sticky=False, **options), 500)
        lasts = [obs["is_last"] for obs in history]
        assert sum(lasts) >= 2 and history[0]["is_first"]
        assert [obs["is_first"] for obs in history[1:]] == lasts[:-1]
        assert all(obs["is_terminal"] == (obs["is_last"] and is_terminal) for obs in history)
    assert lasts.index(True) == 25


def test_what_a_lost_life_means():
    def count(lives: str) -> tuple[int, int]:
        history = play(make(sticky=False, noops=0, lives=lives), 400)
        return sum(obs["is_last"] for obs in history), sum(obs["is_terminal"] for obs in history)

    games, deaths = count("unused")
    assert games == deaths > 0
    lasts, terminals = count("discount")
    assert lasts == games and terminals >= 5 * games
    lasts, terminals = count("reset")
    assert lasts == terminals >= 5 * games


def test_the_game_goes_on_after_a_life_that_ended_an_episode():
    env = make(sticky=False, noops=0, lives="reset")
    lives = []
    for obs in play_live(env, 300):
        if obs["is_first"]:
            lives.append(env._ale.lives())
    assert lives[:6] == [5, 4, 3, 2, 1, 5]


def play_live(env, steps: int):
    reset = True
    for _ in range(steps):
        obs = env.step({"action": np.int32(FIRE), "reset": np.bool_(reset)})
        yield obs
        reset = obs["is_last"]


def test_games_start_after_a_random_number_of_frames():
    def starts(noops: int) -> set[int]:
        env = make(noops=noops)
        return {(env.step(reset_action(env)), env._ale.getEpisodeFrameNumber())[1] for _ in range(12)}

    assert starts(0) == {0}
    assert len(starts(30)) > 5 and max(starts(30)) <= 30


def test_sticky_actions_are_random_but_the_same_for_a_seed():
    def images(seed: int, sticky: bool) -> np.ndarray:
        env = make("pong", seed, sticky=sticky, noops=0)
        env.step(reset_action(env))
        rng = np.random.default_rng(0)
        steps = [{"action": rng.integers(18), "reset": np.bool_(False)} for _ in range(80)]
        return np.stack([env.step(action)["image"] for action in steps])

    np.testing.assert_array_equal(images(1, True), images(1, True))
    assert (images(1, True) != images(2, True)).any()
    np.testing.assert_array_equal(images(1, False), images(2, False))
