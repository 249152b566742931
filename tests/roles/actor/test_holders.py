"""Who steps an environment, and that nobody else can take it."""

import tracemalloc

import pytest

from dreamfleet.errors import BadRequest
from dreamfleet.roles.actor import holders
from dreamfleet.roles.actor.holders import Holders
from dreamfleet.roles.protocol import Hello

OWN = (0, 1)
NEWER = "taken over by a newer process"


def hello(session: str, owner: str = "here", envs: tuple[int, ...] = OWN, is_eval: bool = False) -> Hello:
    return Hello(role="env", session=session, owner=owner, host="this host", envs=envs, is_eval=is_eval)


@pytest.fixture
def own():
    """Those of a worker that presented itself and asked, and whose environments are kept for it."""
    holders = Holders("here")
    holders.present(hello("first"))
    holders.claim(OWN, "first")
    return holders


@pytest.mark.parametrize("session", ["", "stranger", "presented"])
def test_a_request_takes_nothing_from_a_worker_that_presented_itself(own, session):
    own.present(hello("presented", "there", (5,)))
    own.claim([5], session)
    for env_ids in ([1], [5, 1]):
        with pytest.raises(BadRequest, match="environment 1 is stepped on this host"):
            own.claim(env_ids, session)
    own.claim(OWN, "first")


def test_a_worker_takes_over_from_one_with_the_same_owner_for_ever(own):
    own.present(hello("second", envs=(1,)))
    own.claim([1], "second")
    with pytest.raises(BadRequest, match=NEWER):
        own.claim([0], "first")
    with pytest.raises(BadRequest, match=NEWER):
        own.present(hello("first"))
    own.claim([1], "second")


def test_the_newer_of_two_is_the_one_that_presented_itself_later(own):
    own.present(hello("older", envs=(7,)))
    own.present(hello("newer", envs=(7,)))
    own.present(hello("older", envs=(7,)))  # over another connection
    own.claim([7], "newer")
    with pytest.raises(BadRequest, match=NEWER):
        own.claim([7], "older")
    own.claim([7], "newer")


@pytest.mark.parametrize("is_eval", [False, True])
def test_a_worker_with_another_owner_is_refused(own, is_eval):
    with pytest.raises(BadRequest, match=r"environment 1 is stepped on this host, .*: give this worker other numbers"):
        own.present(hello("other", "there", (7, 1), is_eval))
    own.present(hello("third", "somewhere", (7,)))
    own.claim([7], "third")
    own.claim(OWN, "first")


def test_those_who_only_say_hello_take_nothing(own):
    own.present(hello("worker", "somewhere", (7,)))
    own.present(hello("only said hello", "there", (7,)))
    own.claim([7], "worker")
    own.claim([7], "worker")


def test_an_environment_that_is_free_again_goes_to_whoever_asks_next(own):
    for session in ("one", "two"):
        own.present(hello(session, session, (7,)))
        own.claim([7], session)
    with pytest.raises(BadRequest, match=NEWER):
        own.claim([7], "one")


def test_many_that_come_and_go_take_no_room_and_no_memory(own, monkeypatch):
    monkeypatch.setattr(holders, "MOST_ENVS", 20)
    monkeypatch.setattr(holders, "MOST_SESSIONS", 20)

    def come_and_go(numbers: range) -> int:
        for number in numbers:
            own.present(hello(f"{number}", "there", tuple(range(10 * number + 10, 10 * number + 20))))
            own.claim([10 * number + 10], f"{number}")
            own.claim([10 * number + 10], f"act {number}")
            own.claim(OWN, "first")
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = come_and_go(range(1000))
        assert come_and_go(range(1000, 5000)) - before < 100_000
    finally:
        tracemalloc.stop()
    own.present(hello("worker", "somewhere", (5,)))
    own.claim([5], "worker")


def test_more_environments_than_anybody_has_are_refused(own, monkeypatch):
    monkeypatch.setattr(holders, "MOST_ENVS", 20)
    with pytest.raises(BadRequest, match="20 environments are too many beside 2 others"):
        own.claim(range(100, 120), "many")
    own.claim(range(100, 118), "fewer")
    own.claim(OWN, "first")


def test_no_more_join_than_the_replay_has_room_for():
    holders = Holders("here", timeout_s=10.0, room=3)
    holders.present(hello("own", envs=tuple(range(100))))  # those of the run itself have theirs
    holders.present(hello("first", "there", (105, 106)))
    holders.claim([105, 106], "first")
    refusal = "no room for sequences of 2 more environments beside 2 that have joined, of 3: raise it"
    for refuse in (
        lambda: holders.present(hello("second", "elsewhere", (107, 108))),
        lambda: holders.claim([7, 8], ""),
    ):
        with pytest.raises(BadRequest, match=refusal):
            refuse()
    holders.present(hello("eval", "elsewhere", (107, 108), is_eval=True))
    holders.present(hello("second", "elsewhere", (107,)))
    holders.claim([105, 106], "first")
