"""Episodes put together from batches of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamfleet.base.dimensions import MOST_ENVS
from dreamfleet.metrics import EpisodeTracker


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def make_batch(*rows, **extra):
    """Rows of (env_id, reward, flags), where flags holds f for first, l for last and e for evaluation."""
    env_ids, rewards, flags = zip(*rows, strict=True)
    return {
        "envid": np.array(env_ids),
        "is_eval": np.array(["e" in flag for flag in flags]),
        "reward": np.array(rewards, np.float32),
        "is_first": np.array(["f" in flag for flag in flags]),
        "is_last": np.array(["l" in flag for flag in flags]),
        "action": np.zeros((len(rows), 3)),
        **extra,
    }


def summarize(episodes):
    return [(episode.env_id, episode.is_eval, episode.score, episode.length) for episode in episodes]


def test_scores_and_lengths():
    tracker = EpisodeTracker(60)
    assert tracker.add(make_batch((0, 1, "f"), (7, 10, "fe"))) == []
    assert tracker.add(make_batch((7, 20, "e"), (0, 2, ""))) == []
    assert summarize(tracker.add(make_batch((0, 4, "l"), (7, 0, "e")))) == [(0, False, 7, 2)]
    assert summarize(tracker.add(make_batch((0, 1, "f"), (7, 5, "le")))) == [(7, True, 35, 3)]
    assert summarize(tracker.add(make_batch((0, 2, "l")))) == [(0, False, 3, 1)]
    assert summarize(tracker.add(make_batch((0, 9, "fl")))) == [(0, False, 9, 0)]
    assert tracker.abandoned == 0


def test_episodes_without_their_first_row_do_not_count():
    tracker = EpisodeTracker(60)
    assert tracker.add(make_batch((0, 1, ""))) == []
    assert tracker.add(make_batch((0, 1, "l"))) == []
    tracker.add(make_batch((0, 1, "f")))
    tracker.add(make_batch((0, 1, "l")))
    assert tracker.add(make_batch((0, 5, "l"))) == []  # the end again
    assert tracker.abandoned == 0


def test_a_new_start_abandons_the_episode():
    tracker = EpisodeTracker(60)
    tracker.add(make_batch((0, 100, "f"), (1, 1, "f"), **{"log/x": np.array([9.0, 9.0])}))
    tracker.add(make_batch((0, 1, "f"), (1, 1, ""), **{"log/x": np.array([1.0, 1.0])}))
    first, second = tracker.add(make_batch((0, 1, "l"), (1, 1, "l"), **{"log/x": np.array([2.0, 2.0])}))
    assert summarize([first, second]) == [(0, False, 2, 1), (1, False, 3, 2)]
    assert first.stats["log/x/max"] == 2 and second.stats["log/x/max"] == 9
    assert tracker.abandoned == 1


def test_forget_drops_what_is_running():
    tracker = EpisodeTracker(60)
    tracker.add(make_batch((0, 1, "f")))
    tracker.forget()
    assert tracker.add(make_batch((0, 1, "l"))) == []
    tracker.add(make_batch((0, 1, "f")))
    assert len(tracker.add(make_batch((0, 1, "l")))) == 1
    assert tracker.abandoned == 0


def test_several_rows_of_one_environment_in_a_batch():
    tracker = EpisodeTracker(60)
    rows = [(0, 1, "f"), (1, 5, "f"), (0, 2, ""), (0, 3, "l"), (0, 10, "f"), (1, 5, "l"), (0, 20, "l"), (0, 7, "f")]
    episodes = tracker.add(make_batch(*rows, **{"log/n": np.arange(8)}))
    assert sorted(summarize(episodes)) == [(0, False, 6, 2), (0, False, 30, 1), (1, False, 10, 1)]
    by_score = {episode.score: episode.stats for episode in episodes}
    assert by_score[6]["log/n/sum"] == 0 + 2 + 3 and by_score[30]["log/n/sum"] == 4 + 6
    assert tracker.add(make_batch((0, 1, "l")))[0].score == 8


def test_log_keys():
    tracker = EpisodeTracker(60)
    images = np.zeros((1, 4, 4, 3), np.float32)
    first = {
        "log/depth": np.array([-3.0]),
        "log/won": np.array([False]),
        "log/image": images,
        "log/vector": np.ones((1, 2)),
    }
    second = {"log/depth": np.array([-1.0]), "log/won": np.array([True]), "log/late": np.array([5], np.uint8)}
    tracker.add(make_batch((0, 1, "f"), **first))
    (episode,) = tracker.add(make_batch((0, 1, "l"), **second))
    assert {k: v for k, v in episode.stats.items() if k.startswith("log/")} == {
        "log/depth/avg": -2,
        "log/depth/max": -1,
        "log/depth/sum": -4,
        "log/won/avg": 0.5,
        "log/won/max": 1,
        "log/won/sum": 1,
        "log/late/avg": 5,
        "log/late/max": 5,
        "log/late/sum": 5,
    }
    (episode,) = tracker.add(make_batch((0, 1, "fl")))
    assert episode.stats == {}


def test_silent_environments_are_dropped_and_their_place_is_used_again():
    clock = Clock()
    tracker = EpisodeTracker(60, clock=clock)
    tracker.add(make_batch((0, 1, "f"), (1, 1, "f")))
    for clock.now in range(1, 100):
        tracker.add(make_batch((1, 1, "")))
    tracker.add(make_batch((1, 1, ""), (2, 8, "f")))
    assert tracker.abandoned == 1
    episodes = tracker.add(make_batch((0, 1, "l"), (1, 1, "l"), (2, 8, "l")))
    assert summarize(episodes) == [(1, False, 102, 101), (2, False, 16, 1)]


def test_nobody_is_silent_while_all_wait():
    clock = Clock()
    tracker = EpisodeTracker(60, clock=clock)
    tracker.add(make_batch((0, 1, "f"), (1, 1, "f")))
    clock.now = 300.0  # a policy that compiles
    tracker.add(make_batch((1, 1, "")))
    clock.now = 301.0
    episodes = tracker.add(make_batch((0, 1, "l"), (1, 1, "l")))
    assert summarize(episodes) == [(0, False, 2, 1), (1, False, 3, 2)]
    assert tracker.abandoned == 0


def test_many_environments():
    tracker = EpisodeTracker(60)
    env_ids = [3 * index + 10**12 for index in range(1000)]
    tracker.add(make_batch(*[(env_id, 1, "f") for env_id in env_ids[:10]]))
    tracker.add(make_batch(*[(env_id, 2, "f") for env_id in env_ids[10:]]))
    episodes = tracker.add(make_batch(*[(env_id, 1, "l") for env_id in env_ids]))
    assert summarize(episodes) == [(env_id, False, 2 if i < 10 else 3, 1) for i, env_id in enumerate(env_ids)]


flags = st.sampled_from(["", "", "f", "l", "fl"])
rows = st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 5), flags), min_size=1, max_size=12)


@given(st.lists(rows, max_size=15))
def test_same_as_row_by_row(batches):
    tracker = EpisodeTracker(60)
    running, abandoned = {}, 0
    for batch in batches:
        expected = []
        for env_id, reward, flag in batch:
            if "f" in flag:
                abandoned += env_id in running
                running[env_id] = (0.0, -1)  # of which the first row becomes none
            if env_id in running:
                score, length = running[env_id]
                running[env_id] = (score + reward, length + 1)
                if "l" in flag:
                    expected.append((env_id, False, *running.pop(env_id)))
        assert sorted(summarize(tracker.add(make_batch(*batch)))) == sorted(expected)
    assert tracker.abandoned == abandoned


def make_frames(*values):
    return np.stack([np.full((4, 6, 3), value, np.uint8) for value in values])


def test_records_the_first_environment_of_each_kind():
    clock = Clock()
    tracker = EpisodeTracker(1000, video_every_s=10, clock=clock)
    tracker.add(make_batch((5, 0, "fe"), (2, 0, "f"), (1, 0, "f"), (6, 0, "fe"), image=make_frames(50, 20, 10, 60)))
    tracker.add(make_batch((1, 0, ""), (6, 0, "e"), (5, 0, "e"), (2, 0, ""), image=make_frames(11, 61, 51, 21)))
    rows = [(1, 0, "l"), (2, 0, "l"), (5, 0, "le"), (6, 0, "le")]
    episodes = tracker.add(make_batch(*rows, image=make_frames(12, 22, 52, 62)))
    videos = {episode.env_id: episode.video for episode in episodes}
    assert videos[2] is None and videos[6] is None
    assert videos[1].shape == (3, 4, 6, 3) and videos[1].dtype == np.uint8
    assert videos[1][:, 0, 0, 0].tolist() == [10, 11, 12]
    assert videos[5][:, 0, 0, 0].tolist() == [50, 51, 52]

    (episode,) = tracker.add(make_batch((1, 0, "fl"), image=make_frames(1)))
    assert episode.video is None  # too early for the next one
    clock.now = 10.0
    (episode,) = tracker.add(make_batch((1, 0, "fl"), image=make_frames(1)))
    assert episode.video is not None


def test_videos_are_bounded_and_whole():
    tracker = EpisodeTracker(60, max_frames=3)
    tracker.add(make_batch((0, 0, "f"), image=make_frames(0)))
    frames = make_frames(1)
    tracker.add(make_batch((0, 0, ""), image=frames))
    frames[:] = 99  # the batch's memory is used again
    for value in range(2, 6):
        tracker.add(make_batch((0, 0, ""), image=make_frames(value)))
    (episode,) = tracker.add(make_batch((0, 0, "l"), image=make_frames(6)))
    assert episode.length == 6
    assert episode.video is not None and episode.video[:, 0, 0, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("gap", ["forget", "restart", "size"])
def test_no_video_of_a_broken_episode(gap):
    tracker = EpisodeTracker(60)
    tracker.add(make_batch((0, 0, "f"), image=make_frames(1)))
    if gap == "forget":
        tracker.forget()
        tracker.add(make_batch((0, 0, "f")))  # a start without an image
        tracker.add(make_batch((0, 0, ""), image=make_frames(2)))
    elif gap == "restart":
        tracker.add(make_batch((0, 0, "f"), image=make_frames(7)))
    else:
        tracker.add(make_batch((0, 0, ""), image=np.zeros((1, 8, 8, 3), np.uint8)))
    (episode,) = tracker.add(make_batch((0, 0, "l"), image=make_frames(3)))
    if gap == "restart":
        assert episode.video is not None and episode.video[:, 0, 0, 0].tolist() == [7, 3]
    else:
        assert episode.video is None


def test_reward_rate_is_the_share_of_steps_at_which_the_reward_changes():
    tracker = EpisodeTracker(60)
    tracker.add(make_batch((0, 5, "fl"), (1, 3, "f")))
    tracker.add(make_batch((0, 1, "f"), (1, 3, "")))
    tracker.add(make_batch((0, 1, ""), (1, 3.005, "")))
    (first,) = tracker.add(make_batch((0, 2, ""), (1, 4, "l")))
    (second,) = tracker.add(make_batch((0, 2, "l")))
    assert (first.stats["reward_rate"], second.stats["reward_rate"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))


def test_starts_and_ends_are_counted():
    tracker = EpisodeTracker(60)
    tracker.add(make_batch((0, 1, "f"), (1, 1, "f"), (2, 1, "l")))
    tracker.add(make_batch((0, 1, "l"), (1, 1, "f")))
    assert (tracker.starts, tracker.ends, tracker.abandoned) == (3, 1, 1)


def test_ever_new_environments_do_not_take_ever_more_memory():
    """A peer may make numbers up; those that go on stepping are not forgotten for them."""
    tracker, rng = EpisodeTracker(timeout_s=1e9), np.random.default_rng(0)

    def add(env_ids, is_first, is_last):
        rows = len(env_ids)
        flags = {
            "is_first": np.full(rows, is_first),
            "is_last": np.full(rows, is_last),
            "is_eval": np.zeros(rows, bool),
        }
        return tracker.add({"envid": np.array(env_ids), "reward": np.ones(rows), **flags})

    add([1], True, False)
    for _ in range(100):
        add(rng.integers(2, 2**40, 1000), True, False)
        add([1], False, False)
    assert len(tracker._slots) <= MOST_ENVS and len(tracker._running) <= 2 * MOST_ENVS
    (episode,) = add([1], False, True)
    assert (episode.env_id, episode.length) == (1, 101)
    assert tracker.abandoned >= 100_000 - MOST_ENVS
