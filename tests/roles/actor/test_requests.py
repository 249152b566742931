"""Requests for actions: what is refused, and how they are batched and answered."""

import elements
import numpy as np
import pytest

from dreamfleet.errors import BadRequest
from dreamfleet.roles.actor.requests import FLAGS, RequestParser, join, pad, split_answers
from dreamfleet.roles.protocol import ActSession


def make_data(env_ids=(0, 1), **changes) -> dict:
    rows = len(env_ids)
    data = {
        "envid": np.array(env_ids, np.int64),
        "is_eval": np.zeros(rows, bool),
        "image": np.stack([np.full((4, 4, 3), env_id, np.uint8) for env_id in env_ids]),
        "log/speed": np.arange(rows, dtype=np.float32),
        "reward": np.ones(rows, np.float32),
        "is_first": np.zeros(rows, bool),
        "is_last": np.arange(rows) == 1,
        "is_terminal": np.zeros(rows, bool),
    }
    return {k: v for k, v in {**data, **changes}.items() if v is not None}


def make_single(env_id=0, **changes) -> dict:
    data = {k: v[0] for k, v in make_data([env_id]).items()}
    return {**data, "envid": env_id, "is_eval": False, "is_first": True, **changes}


def parse(data, parser=None, session="", form="many"):
    parser = parser or RequestParser()
    return getattr(parser, f"parse_{form}")(data, ActSession(session).to_meta() if session else {})


def test_many_environments_in_one_message():
    request = parse(make_data([5, 3]))
    assert (request.env_ids, request.is_eval, request.is_single, request.rows) == ([5, 3], False, False, 2)
    assert request.obs.keys() == make_data().keys() - {"envid", "is_eval"}
    assert parse(make_data(is_eval=np.ones(2, bool))).group != request.group


def test_the_single_form_has_no_leading_dimension():
    request = parse(make_single(7), form="one")
    assert (request.env_ids, request.is_single, request.rows) == ([7], True, 1)
    assert request.obs["image"].shape == (1, 4, 4, 3) and request.obs["is_first"].tolist() == [True]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"envid": None}, "'envid'"),
        ({"is_eval": None}, "'is_eval'"),
        ({"envid": np.array([0.0, 1.0])}, "'envid' must be non-negative integers"),
        ({"envid": np.array([0, -1])}, "'envid' must be non-negative integers"),
        ({"envid": np.array([0, 2**63], np.uint64)}, "'envid' must be non-negative integers"),
        ({"envid": np.array([[0, 1]])}, "'envid' must be non-negative integers"),
        ({"envid": 3}, "'envid' must be non-negative integers"),
        ({"envid": np.array([], np.int64)}, "'envid' must be non-negative integers"),
        ({"envid": np.array([4, 4])}, "'envid' names an environment twice"),
        ({"is_eval": np.array([True, False])}, "'is_eval' must be the same"),
        ({"is_eval": np.array([True])}, "'is_eval' must be the same"),
        ({"reward": None}, "needs 'reward' as a float"),
        ({"reward": np.ones(2, np.int32)}, "needs 'reward' as a float"),
        ({"is_first": None}, "needs 'is_first' as a bool"),
        ({"is_last": np.zeros(2, np.uint8)}, "needs 'is_last' as a bool"),
        ({"is_terminal": np.zeros((2, 1), bool)}, "needs 'is_terminal' as a bool"),
        ({"image": "text"}, "'image' is str"),
        ({"image": b"bytes"}, "'image' is bytes"),
        ({"image": {"nested": 1}}, "'image' is dict"),
        ({"image": [1, 2]}, "'image' is list"),
        ({"image": np.zeros((3, 4, 4, 3), np.uint8)}, r"'image' is uint8\(3, 4, 4, 3\), expected uint8\(2, 4, 4, 3\)"),
        ({"image": np.uint8(0)}, "'image'"),
    ],
)
def test_a_bad_request_is_refused_by_key_and_rules_out_no_good_one(changes, message):
    parser = RequestParser()
    with pytest.raises(BadRequest, match=message):
        parse(make_data(**changes), parser)
    assert parse(make_data(), parser).rows == 2
    with pytest.raises(BadRequest):
        parse(make_data(**changes), parser)


def test_none_and_things_that_are_no_dict_are_refused():
    for data in (None, [1], np.zeros(3), "text", {}, {"envid": 1}):
        for form in ("one", "many"):
            with pytest.raises(BadRequest, match="'envid'"):
                parse(data, form=form)
    with pytest.raises(BadRequest, match="'image' is NoneType"):
        parse({**make_data(), "image": None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": np.zeros(2)}, r"extra \['extra'\]"),
        ({"image": None}, r"missing \['image'\]"),
        (
            {"image": np.zeros((2, 4, 4, 3), np.float32)},
            r"'image' is float32\(2, 4, 4, 3\), expected uint8\(2, 4, 4, 3\)",
        ),
        ({"image": np.zeros((2, 4, 5, 3), np.uint8)}, r"'image' is uint8\(2, 4, 5, 3\), expected uint8"),
        ({"reward": np.ones(2)}, r"'reward' is float64\(2,\), expected float32\(2,\)"),
        ({"reward": np.ones(3, np.float32)}, r"'reward' is float32\(3,\), expected float32\(2,\)"),
    ],
)
def test_the_first_request_fixes_what_the_others_look_like(changes, message):
    parser = RequestParser()
    parse(make_data(), parser)
    with pytest.raises(BadRequest, match=message):
        parse(make_data(**changes), parser)
    parse(make_data([2, 3, 4]), parser)
    parse(make_single(1), parser, form="one")


@pytest.mark.parametrize("session", ["", "a"])
def test_logs_of_one_process_rule_nobody_out_and_only_common_ones_are_joined(session):
    parser = RequestParser()
    odd = {"log/speed": np.zeros((2, 3), np.float32), "log/other": np.zeros(2, np.float32)}
    requests = [
        parser.parse_many(make_data(**odd), ActSession(session).to_meta()),
        parser.parse_many(make_data(), ActSession("b").to_meta()),
        parser.parse_many(make_data(), ActSession("c").to_meta()),
    ]
    assert requests[1].spec is requests[2].spec
    for joined, has_speed in ((requests, False), (requests[1:], True)):
        _, obs = join(joined)
        assert ("log/speed" in obs, "log/other" in obs) == (has_speed, False)
        assert {len(value) for value in obs.values()} == {2 * len(joined)}
    with pytest.raises(BadRequest, match=r"'log/speed' is float32\(1, 3\), expected float32\(2, 3\)"):
        parser.parse_many(make_data(**{"log/speed": np.zeros((1, 3), np.float32)}), {})


def test_what_a_worker_presented_is_expected_of_all_others():
    parser = RequestParser()
    spaces = {k: f"{v.dtype.name}{v.shape[1:]}" for k, v in make_data().items() if k not in ("envid", "is_eval")}
    spaces = {k: v for k, v in spaces.items() if not k.startswith("log/")}
    parser.expect(False, spaces, "the task")
    parser.expect(False, spaces, "the task")
    with pytest.raises(BadRequest, match=r"extra \['extra'\]"):
        parse(make_data(extra=np.zeros(2)), parser)
    parse(make_data(), parser)
    with pytest.raises(BadRequest, match=r"'image' is missing, expected uint8\(4, 4, 3\).*the task"):
        parser.expect(False, {k: v for k, v in spaces.items() if k != "image"}, "the task")
    with pytest.raises(BadRequest, match="the space of 'image' is 'nonsense'"):
        RequestParser().expect(False, spaces | {"image": "nonsense"}, "the task")


def test_who_only_presents_itself_rules_out_nobody():
    parser = RequestParser()
    spaces = {k: f"{v.dtype.name}{v.shape[1:]}" for k, v in make_data().items() if k not in ("envid", "is_eval")}
    spaces = {k: v for k, v in spaces.items() if not k.startswith("log/")}
    others = [{k: v for k, v in spaces.items() if k != "image"}, spaces | {"image": "float32(7,)"}]
    for presented in [*others * 50, spaces, *others]:
        parser.expect(False, presented, "the task")
    assert parse(make_data(), parser).rows == 2
    for presented in others:
        with pytest.raises(BadRequest, match="other observations than the run"):
            parser.expect(False, presented, "the task")
    parser.expect(False, spaces, "the task")


@pytest.mark.parametrize("text", ["object()", "O()", "str3()", "V8()", "datetime64()", "float32(-1,)", "float32(3,)x"])
def test_a_space_of_what_is_no_number_is_refused(text):
    flags = {"reward": "float32()", **dict.fromkeys(FLAGS, "bool()")}
    RequestParser().expect(False, flags | {"x": "float32(3,)"}, "the task")
    with pytest.raises(BadRequest, match="the space of 'x' is"):
        RequestParser().expect(False, flags | {"x": text}, "the task")


def test_evaluation_may_look_different_from_training():
    parser = RequestParser()
    parse(make_data(), parser)
    extra = {"depth": np.zeros(2, np.float32)}
    parse(make_data([8, 9], is_eval=np.ones(2, bool), **extra), parser)
    with pytest.raises(BadRequest, match="depth"):
        parse(make_data(**extra), parser)


def test_what_the_agent_expects_wins_over_the_first_request():
    space = {
        "image": elements.Space(np.uint8, (4, 4, 3)),
        "reward": elements.Space(np.float32),
        **{key: elements.Space(bool) for key in FLAGS},
        "log/ignored": elements.Space(np.float32),
    }
    parser = RequestParser(space)
    with pytest.raises(BadRequest, match=r"'image' is uint8\(2, 5, 5, 3\), expected uint8\(2, 4, 4, 3\)"):
        parse(make_data(image=np.zeros((2, 5, 5, 3), np.uint8)), parser)
    with pytest.raises(BadRequest, match=r"missing \[\], extra \['depth'\]"):
        parse(make_data(depth=np.zeros(2)), parser)
    with pytest.raises(BadRequest, match="'reward' is float64"):
        parse(make_data(reward=np.ones(2)), parser)
    assert "log/speed" in parse(make_data(), parser).obs


def test_an_agent_that_names_only_its_inputs_gets_the_flags_all_the_same():
    parser = RequestParser({"image": elements.Space(np.uint8, (4, 4, 3))})
    assert parse(make_data(), parser).obs.keys() >= {"reward", *FLAGS}
    with pytest.raises(BadRequest, match=r"missing \['reward'\]"):
        parse(make_data(reward=None), parser)


def test_the_newer_of_two_processes_wins_for_ever():
    parser = RequestParser()
    parse(make_data([0, 1]), parser, session="old")
    parse(make_data([0, 1]), parser, session="old")
    parse(make_data([1]), parser, session="new")
    for env_ids in ([0, 1], [1], [0], [5]):
        with pytest.raises(BadRequest, match=r"environments \[.*\] were taken over by a newer process"):
            parse(make_data(env_ids), parser, session="old")
    parse(make_data([1]), parser, session="new")
    parse(make_data([2]), parser, session="other")
    parse(make_data([2]), parser, session="other")
    parse(make_data([1]), parser, session="newest")
    with pytest.raises(BadRequest):
        parse(make_data([1]), parser, session="new")


def test_a_refused_request_takes_nothing_over():
    parser = RequestParser()
    parse(make_data([0]), parser, session="old")
    with pytest.raises(BadRequest):
        parse(make_data([0], extra=np.zeros(1)), parser, session="new")
    parse(make_data([0]), parser, session="old")


def test_peers_without_a_session_are_let_in():
    parser = RequestParser()
    parse(make_data([0]), parser, session="old")
    parse(make_data([0]), parser)
    parse(make_data([0]), parser, session="old")


def test_join_keeps_the_order_of_the_requests():
    parser = RequestParser()
    requests = [
        parse(make_data([5, 3]), parser),
        parse(make_single(9), parser, form="one"),
        parse(make_data([1]), parser),
    ]
    env_ids, obs = join(requests)
    assert env_ids == [5, 3, 9, 1]
    assert obs["image"][:, 0, 0, 0].tolist() == env_ids
    assert obs["is_first"].tolist() == [False, False, True, False]
    alone, only = join(requests[:1])
    assert alone == [5, 3] and only is requests[0].obs


@pytest.mark.parametrize(("rows", "batch_size", "expected"), [(1, 4, 4), (4, 4, 4), (5, 4, 8), (3, 1, 3), (2, 3, 3)])
def test_padding_fills_up_with_row_0(rows, batch_size, expected):
    obs = parse(make_data(range(10, 10 + rows))).obs
    padded = pad(obs, batch_size)
    assert all(len(v) == expected and v.dtype == obs[k].dtype for k, v in padded.items())
    names = padded["image"][:, 0, 0, 0].tolist()
    assert names == [*range(10, 10 + rows), *[10] * (expected - rows)]


def test_every_request_gets_its_own_part_of_the_answer():
    parser = RequestParser()
    requests = [
        parse(make_data([5, 3]), parser),
        parse(make_single(9), parser, form="one"),
        parse(make_data([1]), parser),
    ]
    acts = {"action": np.array([50, 30, 90, 10]), "move": np.arange(8).reshape(4, 2)}
    is_last = np.array([False, True, True, False])
    many, single, one = split_answers(requests, acts, is_last)
    assert many["action"].tolist() == [50, 30] and many["reset"].tolist() == [False, True]
    assert single["action"] == 90 and bool(single["reset"]) and single["move"].tolist() == [4, 5]
    assert one["action"].tolist() == [10] and one["reset"].tolist() == [False] and one["move"].shape == (1, 2)
