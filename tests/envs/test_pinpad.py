"""Visual Pin Pad: rooms, the order that is rewarded, and what the image shows."""

import numpy as np
import pytest

from dreamfleet.envs import make_env, reset_action
from dreamfleet.envs.suites.pinpad import CELEBRATION, HEIGHT, PADS, WIDTH, find_order, place_pads


def visit(env, order) -> list[dict]:
    """Puts the player beside each pad and steps on it, so that no other is touched on the way."""
    seen = []
    for pad in order:
        x, y = next(cell for cell, number in env._pad_at.items() if number == pad)
        env._player = next(
            (x + i, y + j) for i, j in ((1, 0), (-1, 0), (0, 1), (0, -1)) if env._pad_at.get((x + i, y + j)) == pad
        )
        seen.append(env.step({"action": np.int32(0), "reset": np.bool_(False)}))
    return seen


@pytest.mark.parametrize("name", PADS)
def test_rooms_have_separate_pads_within_their_walls(name):
    cells = place_pads(PADS[name])
    assert len(cells) == 9 * PADS[name], "pads overlap"
    assert all(0 < x < WIDTH - 1 and 0 < y < HEIGHT - 1 for x, y in cells)
    order = find_order(PADS[name])
    assert sorted(order) == list(range(PADS[name]))
    colors = set(make_env(f"pinpad_{name}", 0)._colors)
    assert len(colors) == PADS[name]


@pytest.mark.parametrize("name", ["three", "four"])
def test_only_the_right_order_is_rewarded_and_then_it_begins_anew(name):
    env = make_env(f"pinpad_{name}", 3)
    order = find_order(PADS[name])
    for attempt in (order[::-1], order):
        first = env.step(reset_action(env))
        assert first["is_first"] and not env._steps_on
        env._player = (WIDTH // 2, HEIGHT // 2)
        seen = visit(env, attempt)
        assert [obs["reward"] for obs in seen if obs["reward"]] == ([10.0] if attempt == order else [])
    assert seen[-1]["reward"] == 10.0 and not seen[-1]["is_last"]
    stay = {"action": np.int32(0), "reset": np.bool_(False)}
    after = [env.step(stay) for _ in range(CELEBRATION)]
    assert not any(obs["reward"] for obs in after), "it is rewarded once"
    assert (after[0]["image"] != after[-1]["image"]).any() and len(env._steps_on) <= 1
    env._player = (WIDTH // 2, HEIGHT // 2)
    env._steps_on.clear()
    assert visit(env, order)[-1]["reward"] == 10.0, "it can be done again"


def test_walls_stop_and_time_ends_the_episode_without_a_terminal_state():
    env = make_env("pinpad_three", 0, {"pinpad": {"length": 20}})
    env.step(reset_action(env))
    left = {"action": np.int32(4), "reset": np.bool_(False)}
    seen = [env.step(left) for _ in range(20)]
    assert env._player[0] == 1
    assert [obs["is_last"] for obs in seen] == [False] * 19 + [True] and not seen[-1]["is_terminal"]
    assert env.step(left)["is_first"]


def test_a_pad_counts_once_until_another_was_stepped_on():
    env = make_env("pinpad_five", 0)
    env.step(reset_action(env))
    visit(env, [0, 0, 0, 1, 0])
    assert list(env._steps_on) == [0, 1, 0]
    image = env.step({"action": np.int32(0), "reset": np.bool_(False)})["image"]
    shown = [tuple(image[4 * HEIGHT + 1, 8 * i + 1].tolist()) for i in range(3)]
    assert shown == [env._colors[0], env._colors[1], env._colors[0]], "it is shown below the room"


def test_the_image_can_be_larger():
    image = make_env("pinpad_three", 0, {"pinpad": {"size": 96}}).step({"reset": np.bool_(True)})["image"]
    small = make_env("pinpad_three", 0).step({"reset": np.bool_(True)})["image"]
    np.testing.assert_array_equal(image[::6, ::6], small[::4, ::4])
