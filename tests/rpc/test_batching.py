"""Batches form by size, time and fullness; replies come first, and what follows them keeps its order."""

import threading
from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest

from dreamfleet import lifecycle
from dreamfleet.errors import BadRequest, Disconnected, RemoteError
from tests.rpc.links import WAIT_S, wait_until

NEVER_MS = 1e6


@dataclass
class Item:
    value: int
    rows: int = 1
    group: str = ""


def parse(data):
    if not isinstance(data, dict) or "value" not in data:
        raise BadRequest("key `value` is missing")
    return Item(int(data["value"]), int(data.get("rows", 1)), str(data.get("group", "")))


class Recorder:
    """A batched handler that answers each item with its value and the size of its batch."""

    def __init__(self):
        self.batches = []
        self.posted = []

    def __call__(self, items):
        self.batches.append([item.value for item in items])
        return [{"value": item.value, "size": len(items)} for item in items], len(self.batches) - 1

    def post(self, info):
        self.posted.append(info)


def serve(link, fn, *, parse=parse, methods=("act",), **options):
    server = link.make_server(name="actor", max_pending=options.pop("max_pending", 4096))
    server.bind_batched(dict.fromkeys(methods, parse), fn, **{"batch": 4, "max_wait_ms": NEVER_MS, **options})
    server.start()
    return server


def results(futures):
    return [int(future.result(WAIT_S)["value"]) for future in futures]


def test_a_full_batch_starts_at_once(threaded_link):
    fn = Recorder()
    serve(threaded_link, fn)
    client = threaded_link.make_client()
    futures = [client.call("act", {"value": value}) for value in range(8)]
    assert results(futures) == list(range(8))
    assert [sorted(batch) for batch in fn.batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_batch_that_is_not_full_starts_in_time(link):
    fn = Recorder()
    serve(link, fn, max_wait_ms=20)
    client = link.make_client()
    assert results([client.call("act", {"value": 7})]) == [7]
    assert results([client.call("act", {"value": 8})]) == [8]
    assert fn.batches == [[7], [8]]


def test_a_batch_starts_when_everybody_waits(threaded_link):
    fn = Recorder()
    serve(threaded_link, fn, is_full=lambda items: len(items) == 3)
    client = threaded_link.make_client()
    assert results([client.call("act", {"value": value}) for value in range(3)]) == [0, 1, 2]
    assert len(fn.batches) == 1


def test_rows_count_and_items_stay_whole(threaded_link):
    fn = Recorder()
    serve(threaded_link, fn, is_full=lambda items: items[-1].value == 9)
    client = threaded_link.make_client()
    rows = {0: 3, 1: 2, 2: 2, 3: 7, 9: 1}
    futures = [client.call("act", {"value": value, "rows": count}) for value, count in rows.items()]
    assert results(futures) == list(rows)
    assert fn.batches == [[0], [1, 2], [3], [9]]


def test_groups_are_batched_apart(threaded_link):
    fn = Recorder()
    serve(threaded_link, fn, batch=2)
    client = threaded_link.make_client()
    groups = ["train", "eval", "eval", "train"]
    futures = [client.call("act", {"value": value, "group": group}) for value, group in enumerate(groups)]
    assert results(futures) == [0, 1, 2, 3]
    assert fn.batches == [[1, 2], [0, 3]]


def test_each_group_has_its_own_time(threaded_link):
    fn = Recorder()
    serve(threaded_link, fn, max_wait_ms=20)
    client = threaded_link.make_client()
    futures = [client.call("act", {"value": value, "group": str(value)}) for value in range(3)]
    assert results(futures) == [0, 1, 2]
    assert sorted(fn.batches) == [[0], [1], [2]]


def test_methods_share_a_batch(threaded_link):
    fn = Recorder()
    serve(threaded_link, fn, batch=2, methods=("act", "act_many"))
    client = threaded_link.make_client()
    assert results([client.call("act", {"value": 0}), client.call("act_many", {"value": 1})]) == [0, 1]
    assert fn.batches == [[0, 1]]


def test_refused_items_do_not_hold_up_a_batch(threaded_link):
    fn = Recorder()
    serve(threaded_link, fn, batch=2)
    client = threaded_link.make_client()
    bad, first = client.call("act", {"wrong": 1}), client.call("act", {"value": 1})
    with pytest.raises(BadRequest, match=r"actor\.act refused the request: key `value` is missing"):
        bad.result(WAIT_S)
    assert results([first, client.call("act", {"value": 2})]) == [1, 2]


def test_an_error_in_a_parser_is_answered(threaded_link):
    serve(threaded_link, Recorder(), batch=1, parse=lambda data: 1 // 0)
    with pytest.raises(RemoteError, match="ZeroDivisionError"):
        threaded_link.make_client().call("act", {}).result(WAIT_S)


def test_an_error_goes_to_every_item_and_nothing_is_posted(threaded_link):
    posted = []

    def fn(items):
        if items[0].value < 2:
            raise ValueError(f"bad batch of {len(items)}")
        return [{"value": item.value} for item in items], items[0].value

    server = serve(threaded_link, fn, batch=2, post=posted.append)
    client = threaded_link.make_client()
    for future in [client.call("act", {"value": value}) for value in range(2)]:
        with pytest.raises(RemoteError, match="bad batch of 2"):
            future.result(WAIT_S)
    assert results([client.call("act", {"value": value}) for value in (2, 3)]) == [2, 3]
    server.close()
    assert posted == [2]


def test_an_exception_in_place_of_a_reply_is_the_answer_of_that_item(threaded_link):
    def fn(items):
        return [BadRequest("not you") if item.value == 1 else {"value": item.value} for item in items], None

    serve(threaded_link, fn, batch=2)
    client = threaded_link.make_client()
    good, bad = client.call("act", {"value": 0}), client.call("act", {"value": 1})
    assert results([good]) == [0]
    with pytest.raises(BadRequest, match="not you"):
        bad.result(WAIT_S)


def test_a_wrong_number_of_replies_is_an_error(threaded_link):
    serve(threaded_link, lambda items: ([{}], None), batch=2)
    client = threaded_link.make_client()
    futures = [client.call("act", {"value": value}) for value in range(2)]
    for future in futures:
        with pytest.raises(RemoteError, match="2 items were answered with 1 replies"):
            future.result(WAIT_S)


def test_parsers_can_see_metadata(threaded_link):
    fn = Recorder()
    serve(threaded_link, fn, batch=1, takes_meta=True, parse=lambda data, meta: Item(int(meta["value"])))
    future = threaded_link.make_client().call("act", {"x": 1}, meta={"value": 5})
    assert results([future]) == [5]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_replies_come_before_the_work_after_them(threaded_link, workers):
    fn, may_post, posted = Recorder(), threading.Event(), threading.Event()

    def post(info):
        assert may_post.wait(WAIT_S)
        posted.set()

    serve(threaded_link, fn, batch=1, post=post, workers=workers)
    assert results([threaded_link.make_client().call("act", {"value": 1})]) == [1]
    assert not posted.is_set()
    may_post.set()
    assert posted.wait(WAIT_S)


def test_posts_keep_the_order_of_batches_whatever_finishes_first(threaded_link):
    first_may_end, posted, all_posted = threading.Event(), [], threading.Event()

    def fn(items):
        if items[0].value == 0:
            assert first_may_end.wait(WAIT_S)
        return [{"value": item.value} for item in items], items[0].value

    def post(info):
        posted.append(info)
        if len(posted) == 4:
            all_posted.set()

    serve(threaded_link, fn, batch=1, post=post, workers=2)
    client = threaded_link.make_client()
    futures = [client.call("act", {"value": value}) for value in range(4)]
    assert results(futures[1:]) == [1, 2, 3]
    assert posted == []
    first_may_end.set()
    assert results(futures[:1]) == [0]
    assert all_posted.wait(WAIT_S)
    assert posted == [0, 1, 2, 3]


def test_workers_wait_when_too_much_is_unposted(threaded_link):
    fn, may_post = Recorder(), threading.Semaphore(0)
    serve(threaded_link, fn, batch=1, post=lambda info: may_post.acquire(timeout=WAIT_S), post_backlog=2)
    client = threaded_link.make_client()
    futures = deque(client.call("act", {"value": value}) for value in range(4))
    assert results([futures.popleft(), futures.popleft()]) == [0, 1]
    wait_until(lambda: any("work that follows earlier batches" in wait["what"] for wait in lifecycle.waits()))
    assert len(fn.batches) == 2
    for value in (2, 3):
        may_post.release()
        assert results([futures.popleft()]) == [value]
    may_post.release(2)


def test_an_error_in_a_post_is_logged_and_the_server_goes_on(threaded_link, caplog):
    fn, posted = Recorder(), threading.Semaphore(0)

    def post(info):
        posted.release()
        raise ValueError("in the post")

    serve(threaded_link, fn, batch=1, post=post)
    client = threaded_link.make_client()
    for value in range(2):
        assert results([client.call("act", {"value": value})]) == [value]
        assert posted.acquire(timeout=WAIT_S)
    assert "ValueError: in the post" in caplog.text


def test_a_batch_grows_while_no_worker_is_free(threaded_link):
    started, release = threading.Semaphore(0), threading.Semaphore(0)
    recorder = Recorder()

    def fn(items):
        started.release()
        assert release.acquire(timeout=WAIT_S)
        return recorder(items)

    server = serve(threaded_link, fn, max_wait_ms=1, batch=10)
    client = threaded_link.make_client()
    first = client.call("act", {"value": 0})
    assert started.acquire(timeout=WAIT_S)
    others = [client.call("act", {"value": value}) for value in range(1, 4)]
    wait_until(lambda: server.stats()["queue"] >= 3)
    release.release(2)
    assert results([first, *others]) == [0, 1, 2, 3]
    assert recorder.batches == [[0], [1, 2, 3]]


def test_nothing_is_lost_when_more_comes_than_may_be_pending(threaded_link):
    release, recorder = threading.Event(), Recorder()

    def fn(items):
        assert release.wait(WAIT_S)
        return recorder(items)

    server = serve(threaded_link, fn, batch=1, max_pending=4)
    clients = [threaded_link.make_client(max_inflight=8) for _ in range(3)]
    futures = [client.call("act", {"value": value}) for value, client in enumerate(clients * 8)]
    wait_until(lambda: server.stats()["pending"] >= 4)
    assert server.stats()["pending"] == 4
    release.set()
    assert results(futures) == list(range(24))


def test_arrays_of_a_batch(threaded_link):
    def fn(items):
        stacked = np.stack([item.data for item in items])
        return [{"mean": stacked[index].mean(), "value": 0} for index in range(len(items))], None

    class Image:
        def __init__(self, data):
            self.data, self.rows = data["image"], 1

    serve(threaded_link, fn, batch=3, parse=Image)
    client = threaded_link.make_client()
    futures = [client.call("act", {"image": np.full((64, 64, 3), value, np.uint8)}) for value in range(3)]
    assert [float(future.result(WAIT_S)["mean"]) for future in futures] == [0.0, 1.0, 2.0]


def test_stats_of_batches(threaded_link):
    server = serve(threaded_link, Recorder(), batch=2)
    client = threaded_link.make_client()
    results([client.call("act", {"value": value}) for value in range(2)])
    stats = server.stats()
    assert stats["act/rate"] > 0
    assert stats["act/wait_ms"] >= 0


def test_close_does_not_wait_for_a_batch_to_fill(threaded_link):
    server = serve(threaded_link, Recorder())
    client = threaded_link.make_client()
    future = client.call("act", {"value": 1})
    wait_until(lambda: server.stats()["queue"] >= 1)
    server.close()
    with pytest.raises((Disconnected, RemoteError)):
        future.result(WAIT_S)


def test_batched_methods_beside_plain_ones(threaded_link):
    server = threaded_link.make_server(name="actor")
    server.bind("ping", lambda data: "pong")
    server.bind_batched({"act": parse}, Recorder(), batch=2, max_wait_ms=NEVER_MS)
    server.start()
    client = threaded_link.make_client()
    waiting = client.call("act", {"value": 1})
    assert client.call("ping").result(WAIT_S) == "pong"
    assert results([waiting, client.call("act", {"value": 2})]) == [1, 2]


def test_what_was_answered_is_posted_before_close_returns(threaded_link):
    posted = []
    server = serve(threaded_link, Recorder(), batch=1, post=posted.append, workers=2)
    client = threaded_link.make_client()
    assert results([client.call("act", {"value": value}) for value in range(10)]) == list(range(10))
    server.close()
    assert len(posted) == 10
