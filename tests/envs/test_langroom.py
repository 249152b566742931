"""LangRoom: questions, answers in time, what is seen from where, and the three ways to reward."""

import numpy as np
import pytest

from dreamfleet.envs import make_env, reset_action
from dreamfleet.envs.suites.langroom import COLORS, OBJECTS, PAUSE, SIDE, WORDS, draw_shape

ROUND = 6 + PAUSE + 3  # words of a question, the pause, and those of the answer


def act(move: int = 0, talk: str = "") -> dict:
    return {"move": np.int32(move), "talk": np.int32(WORDS.index(talk)), "reset": np.bool_(False)}


def hear(env, count: int) -> list[str]:
    return [WORDS[int(env.step(act())["text"])] for _ in range(count)]


def test_a_question_is_followed_by_a_pause_and_its_answer():
    env = make_env("langroom_answer-only", 0)
    words = [WORDS[int(env.step(reset_action(env))["text"])]]
    colors = dict(env._colors)
    words += hear(env, ROUND - 1)
    assert words[:4] == ["what", "color", "is", "the"] and words[4] in OBJECTS and words[5] == "?"
    assert words[6 : 6 + PAUSE] == [""] * PAUSE
    assert words[-3:] == ["it", "is", colors[words[4]]]
    assert env._colors == colors, "objects keep their colour until the answer was given"
    rounds = []
    for _ in range(20):
        hear(env, ROUND)
        rounds.append(tuple(env._colors.values()))
    assert len(set(rounds)) > 10, "and then change it"


@pytest.mark.parametrize(
    ("task", "right", "wrong", "early", "silent", "echo"),
    [
        ("answer-only", 1.0, -0.1, -0.01, 0.0, -0.01),
        ("answer-and-echo", 10.0, 0.0, 0.0, 0.1, 0.1),
        ("echo", 1.0, 0.0, 0.0, 1.0, 1.0),
    ],
)
def test_rewards(task, right, wrong, early, silent, echo):
    env = make_env(f"langroom_{task}", 0)
    env.step(reset_action(env))
    hear(env, 5)
    color = env._to_say[-1]
    other = next(name for name in COLORS if name != color)
    assert env.step(act(talk=color))["reward"] == pytest.approx(early), "before the answer is asked for"
    assert env.step(act())["reward"] == pytest.approx(silent), "silence while there is silence"
    hear(env, PAUSE - 2)
    assert env.step(act(talk="it"))["reward"] == pytest.approx(echo)
    env.step(act())
    assert env.step(act(talk=color))["reward"] == pytest.approx(right)
    hear(env, ROUND - 1)
    color = env._to_say[-1]
    other = next(name for name in COLORS if name != color)
    assert env.step(act(talk=other))["reward"] == pytest.approx(wrong)


def test_the_agent_sees_what_is_near():
    env = make_env("langroom_answer-only", 1)
    first = env.step(reset_action(env))["image"]
    assert not any((first == color).all(-1).any() for color in COLORS.values()), "no object is near the middle"
    for move in (4, 2):
        for _ in range(SIDE):
            obs = env.step(act(move))
    assert env._player == (1, 2), "the ball is in the way"
    ball = COLORS[env._colors["ball"]]
    assert (obs["image"] == ball).all(-1).sum() == draw_shape("ball", 64 // 5).sum()


def test_objects_look_different():
    shapes = {draw_shape(name, 12).tobytes() for name in (*OBJECTS, "player")}
    assert len(shapes) == len(OBJECTS) + 1
    assert all(20 < draw_shape(name, 12).sum() < 110 for name in OBJECTS)


def test_words_beyond_the_vocabulary_mean_nothing():
    env = make_env("langroom_echo", 0, {"langroom": {"vocabulary": 30, "length": 8}})
    assert env.act_space["talk"].high == env.obs_space["text"].high == 30
    env.step(reset_action(env))
    seen = [env.step({**act(), "talk": np.int32(29)}) for _ in range(8)]
    assert not any(obs["reward"] for obs in seen)
    assert seen[-1]["is_last"] and not seen[-1]["is_terminal"] and not seen[-2]["is_last"]
