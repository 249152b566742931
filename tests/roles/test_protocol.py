"""Messages between roles: they come back as they were; what does not fit is refused by name; keys are spelt once."""

import ast
import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dreamfleet
from dreamfleet import rpc
from dreamfleet.errors import BadRequest
from dreamfleet.launch.serial import DirectClient
from dreamfleet.options import read_args
from dreamfleet.roles import protocol
from dreamfleet.roles.actor.role import Actor
from dreamfleet.roles.gang.server import GangServer
from dreamfleet.roles.logger import LoggerRole
from dreamfleet.roles.message import Message
from dreamfleet.roles.replay.role import ReplayRole
from dreamfleet.roles.wiring import Peers
from dreamfleet.rpc import codec
from dreamfleet.testing import CountingAgent
from tests.fleet import make_args, make_factories

COUNTS = protocol.ReplayCounts(100, 50, 40, 30, 1000)
READER = protocol.ReaderPlace("boot", 77)
PROGRESS = protocol.RunProgress(COUNTS, 12, 3.5)
WAIT = protocol.RoleWait("actor.act", 1.5, 0.5)
FIGURES = protocol.RoleCounts(100, 2, 1, 3)
ROLE = protocol.RoleStatus("running", 77, 1, 2, 0.5, 0.7, 120.5, "killed by SIGKILL", 9.5, (WAIT,), FIGURES)
FAILURE = protocol.RoleFailure(3, "env0", "killed by SIGKILL", ("one", "two"))
MESSAGES = [
    protocol.Hello(
        *(
            "env",
            "abc",
            "me",
            "here",
            "1.0",
            "run",
            "task",
            {"batch_size": "4"},
            (3, 4),
            True,
            {"x": "uint8()"},
            {},
            COUNTS,
        )
    ),
    protocol.LeaseRequest("me", "env0", 2, True),
    protocol.Lease((3, 4), 7),
    protocol.ActSession("abc"),
    protocol.BatchMark("me", 7),
    COUNTS,
    protocol.LogPosition(9, True),
    READER,
    protocol.SampleRequest(1.5, "learner", 3, 1, 20, True, READER),
    protocol.SegmentPlaces({"4": "/somewhere"}, 4),
    protocol.SampleInfo(COUNTS, True, protocol.SegmentPlaces({"4": "/somewhere"}, 4)),
    PROGRESS,
    protocol.RunPosition(5, PROGRESS),
    protocol.SaveRequest("step-5", "run"),
    protocol.LoggerCounts(8, -4.5, is_eval=True),
    WAIT,
    FIGURES,
    ROLE,
    FAILURE,
    protocol.MachineStatus(
        *("me", "abc", "envs", "run", "here", "1.0", 4, "running", 5.5, 20.5, 1, {"env0": ROLE}, (FAILURE,))
    ),
    protocol.GangJoin(1, "abc", "me", "here", {"seed": "0"}, 1.5),
    protocol.GangPlace(True, 3, 6401, (1,)),
    protocol.GangSign("abc", 3, 1.5, 20, "complete"),
    protocol.GangNews(True, "complete", 1, "replica 1 was lost"),
]
WRONG = {  # by the type of a good value
    int: [-2, 1.5, "3", True, 2**48, np.zeros(2, int), None],
    float: [float("nan"), float("inf"), "1", True],
    bool: [1, "yes", np.zeros(1, bool), None],
    str: [3, b"x", "x" * 300, None],
    dict: [[], {"a": 1}, {1: "a"}],
    tuple: [3, "x", {}, [-1], [1.5], [[1]]],
    Message: [3, "x", []],
}
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
ARRAYS = arrays(st.sampled_from([bool, np.uint8, np.int64, np.float32]), st.sampled_from([(), (1,), (2, 3)]))
TREES = st.recursive(LEAVES | ARRAYS, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x, max_size=3))
FIELDS = [(message, field.name) for message in MESSAGES for field in dataclasses.fields(message)]
ROOT = Path(dreamfleet.__file__).parent
SOURCES = sorted({*(ROOT / "roles").rglob("*.py"), ROOT / "launch" / "serial.py"} - {Path(protocol.__file__)})


def as_arrays(tree):
    """As portal carries it: numbers are arrays without dimensions."""
    if isinstance(tree, dict):
        return {k: as_arrays(v) for k, v in tree.items()}
    if isinstance(tree, tuple):
        return [as_arrays(value) for value in tree]
    return np.array(tree) if isinstance(tree, (bool, int, float)) else tree


def plain_types(tree) -> set:
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, tuple) else None
    return {type(tree)} if children is None else set().union(*map(plain_types, children))


def test_every_message_is_tested():
    kinds = {kind for _, kind in inspect.getmembers(protocol, inspect.isclass) if issubclass(kind, Message)}
    assert kinds - {Message} == {type(message) for message in MESSAGES}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was(message):
    meta = message.to_meta()
    assert type(message).from_meta(meta) == message
    assert type(message).from_meta(codec.decode([bytes(frame) for frame in codec.encode(meta)])) == message
    back = type(message).from_meta(as_arrays(meta))
    assert back == message
    assert plain_types(back.to_meta()) <= {bool, int, float, str}, "numbers are numbers again"


@pytest.mark.parametrize(("message", "name"), FIELDS, ids=lambda x: x if isinstance(x, str) else type(x).__name__)
def test_what_a_field_does_not_take_is_refused_by_name(message, name):
    good = getattr(message, name)
    for wrong in WRONG[Message if isinstance(good, Message) else type(good)]:
        with pytest.raises(BadRequest) as caught:
            type(message).from_meta({**message.to_meta(), name: wrong})
        if isinstance(good, Message):
            assert f"{type(good).__name__} is {wrong!r}, expected a dict" in str(caught.value)
        else:
            assert str(caught.value).startswith(f"'{name}' of {type(message).__name__} is ")
            assert repr(wrong)[:10] in str(caught.value) and ", expected " in str(caught.value)


@pytest.mark.parametrize(
    ("message", "name"), [pair for pair in FIELDS if pair[1].endswith("_s")], ids=lambda x: str(x)[:20]
)
def test_times_are_not_negative(message, name):
    with pytest.raises(BadRequest, match="expected seconds from 0"):
        type(message).from_meta({**message.to_meta(), name: -0.1})


@given(st.data())
def test_whatever_a_peer_sends_is_read_or_refused(data):
    message = data.draw(st.sampled_from(MESSAGES))
    names = [field.name for field in dataclasses.fields(message)]
    meta = data.draw(st.dictionaries(st.sampled_from(names), TREES))
    try:
        read = type(message).from_meta({**message.to_meta(), **meta})
    except BadRequest:
        return
    assert type(message).from_meta(read.to_meta()) == read


@pytest.mark.parametrize("meta", [None, [], "text", 3, np.zeros(3)])
def test_metadata_that_is_no_dict_is_refused(meta):
    with pytest.raises(BadRequest, match=r"ActSession is .*, expected a dict"):
        protocol.ActSession.from_meta(meta)


def test_a_peer_without_metadata_gets_the_defaults():
    kinds = ("ActSession", "BatchMark", "LogPosition", "SampleRequest", "SampleInfo", "RunPosition", "ReplayCounts")
    for kind in kinds:
        assert getattr(protocol, kind).from_meta({}) == getattr(protocol, kind)()


def test_a_field_that_has_to_be_there_is_missed_by_name():
    with pytest.raises(BadRequest, match="SaveRequest has no 'name'"):
        protocol.SaveRequest.from_data({})
    with pytest.raises(BadRequest, match="RunProgress has no 'updates'"):
        protocol.RunPosition.from_meta({"progress": {"counts": {}}})


def test_what_is_none_is_not_sent():
    assert protocol.LogPosition().to_meta() == {"gap": False}
    assert "reader" not in protocol.SampleRequest().to_meta()


def test_the_table_names_every_method_that_a_role_answers_to(tmp_path):
    args = read_args(make_args(tmp_path))
    factories = make_factories(args)
    replay = ReplayRole(factories.make_replay_train(), factories.make_replay_eval(), factories.make_stream, args)
    logger = LoggerRole(factories.make_logger(), args)
    client = DirectClient("replay", replay.methods())
    actor = Actor(CountingAgent(), Peers(client, client), args, send_delay_s=0.0)
    bound = {protocol.HELLO, *replay.methods(), *logger.methods(), *actor.methods(), *actor.parsers()}
    bound |= GangServer(2, 0, {}, lambda: 0).methods().keys()
    replay.close()
    logger.close()
    lines = (protocol.__doc__ or "").split("\n\n")[1].splitlines()[2:]
    modes = {f"sample_batch_{mode}" for mode in protocol.MODES}
    assert find_methods(lines) - {"sample_batch_*"} | modes == bound
    sent_again = find_methods([line for line in lines if "sent again" in line])
    assert sent_again - {"sample_batch_*"} | modes == protocol.SENT_AGAIN


def find_methods(lines: list[str]) -> set[str]:
    return {line.split()[0] for line in lines}


def spelt_keys(source: str) -> list[str]:
    """Places in a source where a key of metadata, or of the rows' header, is written as a string."""

    def is_meta(node) -> bool:
        return getattr(node, "id", getattr(node, "attr", "")).endswith("meta")

    def is_text(node) -> bool:
        return isinstance(node, ast.Constant) and isinstance(node.value, str)

    def is_spelt(node) -> bool:
        match node:
            case ast.Subscript(value=owner, slice=key):
                return is_meta(owner) and is_text(key)
            case ast.Call(func=ast.Attribute(value=owner, attr="get" | "pop" | "setdefault"), args=[key, *_]):
                return is_meta(owner) and is_text(key)
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[owner]):
                return is_meta(owner) and is_text(key)
            case (
                ast.keyword(arg="meta", value=ast.Dict(keys=keys))
                | ast.Call(func=ast.Attribute(attr="Reply"), args=[_, ast.Dict(keys=keys)])
            ):
                return any(map(is_text, keys))
            case ast.Assign(targets=[target], value=ast.Dict(keys=keys)):
                return is_meta(target) and any(map(is_text, keys))
            case ast.Constant(value=value):
                return value in (protocol.ENV_ID, protocol.IS_EVAL)
        return False

    return [ast.unparse(node) for node in ast.walk(ast.parse(source)) if is_spelt(node)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_keys_of_metadata_are_spelt_in_the_protocol_only(path):
    assert spelt_keys(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "x = meta['step']",
        "x = future.meta.get('inserts', 0)",
        "x = reply_meta.pop('gap')",
        "x = 'again' in meta",
        "client.call('act', meta={'session': 1})",
        "rpc.Reply({}, {'inserts': 1})",
        "self._meta = {'session': 1}",
        "rows = data['envid']",
    ],
)
def test_a_spelt_key_is_found(line):
    assert spelt_keys(line)


def test_the_direct_client_hands_over_metadata_as_it_is():
    meta = protocol.BatchMark("me", 1).to_meta()
    client = DirectClient("replay", {"add_batch": lambda data, given: rpc.Reply({}, given)})
    assert client.call("add_batch", {}, meta=meta).meta == meta
