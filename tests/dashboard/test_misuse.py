"""What no careful user does: odd names and values, runs that go away, links from elsewhere, hundreds of runs."""

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from dreamfleet.metrics.progress import Progress, write_progress
from tests.dashboard.client import Events, ask, get
from tests.dashboard.conftest import WAIT_MS, serving
from tests.dashboard.runs import append, write_run, write_status

pytestmark = pytest.mark.distributed
expect.set_options(timeout=WAIT_MS)

ODD = ('quo"te', "it's", "a/b/c", "ünï/çødé", "new\nline", "a&b=c#d?e", "100%25", "__proto__", "$\\d", "\ud800")


def chart_of(page, metric: str):
    return page.locator(f".chart[data-metric='{metric}']").first


def add_scores(logdir: Path, steps) -> None:
    append(logdir / "scores.jsonl", [(step, {"episode/score": 1.0, "episode/length": 7}) for step in steps])


def hide(page, is_hidden: bool) -> None:
    """As another tab in front of the page does."""
    page.evaluate(
        """(isHidden) => {
            Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


def test_a_folder_whose_name_is_no_text_hides_no_other_run(tmp_path, dashboard):
    write_run(tmp_path / "run")
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    (odd / "config.yaml").write_text("task: x\n")
    names = [run["name"] for run in ask(dashboard, "runs")]
    assert names == ["caf\\udce9", "run"]
    assert ask(dashboard, "metrics", run=names).keys() == set(names)


def test_metrics_of_any_name(tmp_path, dashboard, page):
    logdir = write_run(tmp_path / "run", metrics=0)
    append(logdir / "metrics.jsonl", [(i, dict.fromkeys(ODD, 1.0)) for i in range(9)])
    assert set(ODD) <= set(ask(dashboard, "metrics", run="run")["run"])
    page.goto(f"{dashboard}/?tab=metrics")
    for name in ODD[:-1]:  # and not half a character, which cannot be asked for
        page.locator("#search").fill("^" + re.escape(name).replace("\\\n", "\\n") + "$")
        expect(page.locator(".chart")).to_have_attribute("data-points", "9")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", "1" + "0" * 400, '"x"', "[1]", "null"])
def test_a_status_with_any_value_stops_nothing(tmp_path, dashboard, value):
    logdir, other = write_run(tmp_path / "odd"), write_run(tmp_path / "other")
    with Events(dashboard, run="odd") as events:
        events.wait("fleet")
        wait = f'{{"what": "x", "seconds": {value}, "share": {value}}}'
        keys = ("restarts", "heartbeat_age_s", "cpu", "memory_mb", "figures", "exit")
        role = ", ".join(f'"{key}": {value}' for key in keys)
        text = f'{{"state": "running", "elapsed_s": {value}, "roles": {{"agent": {{{role}, "waits": [{wait}]}}}}}}'
        (logdir / "progress.json").write_text(f'{{"step": {value}, "total_steps": 5}}')
        (logdir / "status.json").write_text(text)
        write_progress(other, Progress(step=77))
        events.wait("runs", lambda runs: any(run["progress"]["step"] == 77 for run in runs["changed"]))
    assert len(ask(dashboard, "runs")) == 2
    assert ask(dashboard, "fleet", run="odd")["state"]


def test_a_clock_that_says_nothing(tmp_path, dashboard, page):
    logdir = write_run(tmp_path / "run", rows=5)
    page.goto(f"{dashboard}/?tab=metrics&axis=hours&q=m0")
    expect(chart_of(page, "train/m0")).to_have_attribute("data-points", "5")
    with (logdir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 90, "time": NaN, "train/m0": 1}\n{"step": 91, "time": Infinity, "train/m0": 1}\n')
    append(logdir / "metrics.jsonl", [(100, {"train/m0": 3.0})])
    expect(chart_of(page, "train/m0")).to_have_attribute("data-points", "6")


def test_new_means_are_those_of_the_history(tmp_path, dashboard):
    """Values that are not finite are left out of both."""
    logdir = write_run(tmp_path / "run", rows=0, scores=0)
    append(logdir / "metrics.jsonl", [(i, {"train/m0": float(i)}) for i in range(3)])
    query = {"run": "run", "window": 3}
    with Events(dashboard, **query) as events:
        events.wait("fleet")
        append(logdir / "metrics.jsonl", [(3, {"train/m0": None}), (4, {"train/m0": 8.0})])
        rows, steps, values, means = events.wait("rows")["values"]["train/m0"]
    assert (rows, steps, values, means) == ([4], [4.0], [8.0], [11 / 3])


def test_a_run_that_is_resumed_from_before(tmp_path, dashboard, page):
    """Steps that come again are put in their places."""
    logdir = write_run(tmp_path / "run", scores=10)
    page.goto(f"{dashboard}/?run=run")
    chart = chart_of(page, "episode/score")
    expect(chart).to_have_attribute("data-points", "10")
    add_scores(logdir, (5, 15, 25))
    expect(chart).to_have_attribute("data-points", "13")
    xs = chart.evaluate("(element) => element.chart.watched[0][0].x")
    assert xs == sorted(xs) and len(xs) == 13


def test_updates_as_the_axis_of_a_run_that_is_resumed_from_before(tmp_path, dashboard):
    logdir = write_run(tmp_path / "run", rows=0, scores=0)
    updates = [(step, {"learner/updates": step / 10}) for step in (0, 100, 200, 300, 150, 250)]
    append(logdir / "metrics.jsonl", updates)
    add_scores(logdir, (50, 150, 250))
    with Events(dashboard, run="run", axis="update") as events:
        events.wait("fleet")
        add_scores(logdir, (120, 280))
        rows = events.wait("rows", lambda rows: rows["file"] == "scores.jsonl")
    assert rows["values"]["episode/score"][1] == [12.0, 28.0]


def test_episodes_move_to_their_updates_when_these_are_known(tmp_path, dashboard, page):
    logdir = write_run(tmp_path / "run", rows=0, scores=0)
    append(logdir / "metrics.jsonl", [(0, {"learner/updates": 0}), (100, {"learner/updates": 10})])
    add_scores(logdir, (0, 50))
    page.goto(f"{dashboard}/?run=run&axis=update")
    chart = chart_of(page, "episode/score")
    expect(chart).to_have_attribute("data-points", "2")
    add_scores(logdir, (150, 200))
    expect(chart).to_have_attribute("data-points", "4")
    append(logdir / "metrics.jsonl", [(200, {"learner/updates": 20})])
    xs = "() => document.querySelector('.chart[data-metric=\"episode/score\"]').chart.watched[0][0].x.join()"
    page.wait_for_function(f"() => ({xs})() === '0,5,15,20'")


def test_a_range_follows_the_newest_points(tmp_path, dashboard, page):
    logdir = write_run(tmp_path / "run", scores=40)  # the last at step 390
    page.goto(f"{dashboard}/?run=run&start=300&end=390")
    chart = chart_of(page, "episode/score")
    expect(chart).to_have_attribute("data-points", "40")
    for count, step in enumerate((400, 500, 1500), 41):
        add_scores(logdir, [step])
        expect(page).to_have_url(re.compile(rf"start={step - 90}&end={step}\b"))
        expect(chart).to_have_attribute("data-points", str(count))
    page.goto(f"{dashboard}/?run=run&start=300&end=390")  # a range in the past stays
    expect(chart).to_have_attribute("data-points", "43")
    add_scores(logdir, [1600])
    page.get_by_role("button", name="follow").click()
    expect(page.get_by_role("button", name="follow")).to_have_attribute("aria-pressed", "false")
    assert "start=300&end=390" in page.url
    page.get_by_role("button", name="follow").click()
    expect(page).to_have_url(re.compile(r"end=1600\b"))


def test_a_range_follows_while_its_history_is_under_way(tmp_path, dashboard, page, held_answers):
    logdir = write_run(tmp_path / "run", scores=40)  # the last at step 390
    page.goto(f"{dashboard}/?run=run&start=100&end=190")
    expect(chart_of(page, "episode/score")).to_have_attribute("data-points", "40")
    held_answers.hold("/api/series")
    for _ in range(2):  # off and on
        page.get_by_role("button", name="follow").click()
    expect(page).to_have_url(re.compile(r"start=300&end=390\b"))
    add_scores(logdir, [500])
    expect(page).to_have_url(re.compile(r"start=410&end=500\b"))
    held_answers.release()
    expect(chart_of(page, "episode/score")).to_have_attribute("data-points", "41")


def test_points_that_come_while_an_older_history_is_under_way_are_not_lost(tmp_path, dashboard, page, held_answers):
    logdir = write_run(tmp_path / "run", scores=40)
    page.goto(f"{dashboard}/?run=run&start=0&end=200")
    chart = chart_of(page, "episode/score")
    expect(chart).to_have_attribute("data-points", "40")
    page.evaluate("""async () => {
        const { on } = await import("/static/feed.js");
        window.rows = new Promise((resolve) => on("rows", ({ rows }) => resolve(rows)));
    }""")
    held_answers.hold("/api/series")
    page.locator("#reset").click()
    held_answers.wait(1)
    add_scores(logdir, [500])
    assert page.evaluate("window.rows") == 41
    held_answers.release()
    expect(chart).to_have_attribute("data-points", "41")


def test_a_single_point_is_seen(tmp_path, dashboard, page):
    logdir = write_run(tmp_path / "run", rows=1, metrics=1, scores=0)
    page.goto(f"{dashboard}/?tab=metrics&run=run")
    chart = chart_of(page, "train/m0")
    expect(chart).to_have_attribute("data-drawn", "true")
    dots = """() => document.querySelector(".chart[data-metric='train/m0']").chart.figure.plot.renderers
        .filter(({ glyph }) => glyph.type === "Scatter").map((part) => part.data_source.data.x.length).join()"""
    page.wait_for_function(f"() => ({dots})() === '1'")
    append(logdir / "metrics.jsonl", [(50, {"train/m0": 3.0})])
    page.wait_for_function(f"() => ({dots})() === '0'")


@pytest.mark.parametrize("query", ["axis=bogus", "smooth=abc", "smooth=-5", "tab=bogus", "start=x&end=y", "theme=red"])
def test_an_address_that_was_written_by_hand(tmp_path, dashboard, page, query):
    write_run(tmp_path / "run")
    page.goto(f"{dashboard}/?run=run&run=run&{query}")
    expect(chart_of(page, "episode/score")).to_have_attribute("data-points", "40")
    expect(page.locator("#notice")).to_be_hidden()


def test_a_link_to_runs_that_are_not_there(tmp_path, dashboard, page):
    write_run(tmp_path / "here")
    for query in ("run=gone", "run=gone&run=here"):
        page.goto(f"{dashboard}/?{query}&tab=runs")
        expect(page.locator("#notice")).to_contain_text("gone")
        expect(page).to_have_url(re.compile(r"run=here$"))
        expect(chart_of(page, "episode/score")).to_have_attribute("data-points", "40")


@pytest.mark.parametrize("tab", ["overview", "metrics", "runs", "fleet", "dreams"])
def test_runs_that_go_and_come_back(tmp_path, dashboard, page, tab):
    """The page says so, and shows what is there then, not what was."""
    logdir = write_run(tmp_path / "run")
    page.goto(f"{dashboard}/?tab={tab}&run=run")
    expect(page.locator("#page h1, #page .chart").first).to_be_visible()
    shutil.rmtree(logdir)
    expect(page.get_by_text("No runs yet")).to_be_visible()
    write_run(logdir, scores=7)
    expect(page.get_by_text("No runs yet")).to_be_hidden()
    page.locator("[data-tab=overview]").click()
    expect(chart_of(page, "episode/score")).to_have_attribute("data-points", "7")


def test_the_run_in_view_goes_and_others_stay(tmp_path, dashboard, page):
    first, _ = write_run(tmp_path / "first"), write_run(tmp_path / "second")
    page.goto(f"{dashboard}/?run=first&run=second")
    expect(page.get_by_role("heading", name="first")).to_be_visible()
    first.rename(tmp_path / ".first")
    expect(page.get_by_role("heading", name="second")).to_be_visible()
    expect(page.locator("#notice")).to_contain_text("first")


def test_a_run_that_begins_again_in_the_same_folder_has_no_progress(tmp_path, dashboard):
    logdir = write_run(tmp_path / "run")
    with Events(dashboard, run="run") as events:
        events.wait("runs", lambda runs: runs["changed"][0]["phase"] == "finished")
        for file in ("status.json", "progress.json"):  # which are read in the other order
            (logdir / file).unlink()
        (run,) = events.wait("runs", lambda runs: runs["changed"][0]["progress"]["step"] == 0)["changed"]
    assert run["phase"] != "finished"


def test_a_page_that_is_not_seen_has_no_connection(tmp_path, dashboard, page):
    logdir = write_run(tmp_path / "run")
    page.goto(f"{dashboard}/?run=run")
    chart = chart_of(page, "episode/score")
    expect(chart).to_have_attribute("data-points", "40")
    with page.expect_event("requestfailed", lambda request: "/api/events" in request.url):
        hide(page, True)
    expect(page.locator("#notice")).to_be_hidden()
    add_scores(logdir, (500, 510))
    hide(page, False)
    expect(chart).to_have_attribute("data-points", "42")


def test_what_moves_a_chart_by_less_than_a_pixel_is_told_before_it_is_drawn(tmp_path, dashboard, page):
    logdir = write_run(tmp_path / "run", scores=0)
    add_scores(logdir, range(0, 1_000_000, 2000))  # all of them are read at once
    page.goto(f"{dashboard}/?run=run&smooth=1")
    chart = chart_of(page, "episode/score")
    expect(chart).to_have_attribute("data-drawn", "true")
    page.evaluate("""() => {
        const { chart } = document.querySelector(".chart[data-metric='episode/score']");
        chart.drawn.at = Infinity; // it has just been drawn, however slow this machine is
        window.drawnUpTo = () => chart.drawn.ends[0];
    }""")
    before = page.evaluate("drawnUpTo()")
    append(logdir / "scores.jsonl", [(998_010, {"episode/score": 1.0, "episode/length": 7})])
    expect(chart).to_have_attribute("data-points", "501")
    assert page.evaluate("drawnUpTo()") == before == 998_000
    append(logdir / "scores.jsonl", [(998_020, {"episode/score": 50.0, "episode/length": 7})])  # far above all others
    expect(chart).to_have_attribute("data-points", "502")
    assert page.evaluate("drawnUpTo()") == 998_020


def test_nothing_on_the_page_of_the_fleet_moves_by_itself(tmp_path, dashboard, page):
    """An animation of the edges takes a quarter of a core for as long as the page is open."""
    logdir = write_run(tmp_path / "run")
    wait = {"what": "learner: ratio allows no insert", "seconds": 9.0, "share": 0.81}
    write_status(logdir, "running", agent={}, replay={"waits": [wait]}, logger={})
    page.goto(f"{dashboard}/?tab=fleet&run=run")
    expect(page.locator(".picture .edge.hot")).to_have_count(1)
    assert page.evaluate("document.getAnimations().length") == 0


def test_hundreds_of_runs_in_one_chart(tmp_path, dashboard, page):
    first = write_run(tmp_path / "run000", rows=3, metrics=12, scores=3)
    for i in range(1, 300):
        shutil.copytree(first, tmp_path / f"run{i:03d}")
    query = "&".join(f"run=run{i:03d}" for i in range(300))
    page.route("**/charts/bokeh.min.js", lambda route: None)  # what comes is of interest, not how it is drawn
    page.goto(f"{dashboard}/?tab=metrics&{query}&q=m[0-9]$|score", wait_until="commit")
    expect(chart_of(page, "episode/score")).to_have_attribute("data-points", "900")
    expect(chart_of(page, "train/m0")).to_have_attribute("data-points", "900")
    page.locator("[data-tab=runs]").click()
    expect(page.locator("#runs tbody tr")).to_have_count(300)
    expect(page.get_by_text("Of the first 12 of 300 runs.")).to_be_visible()


def test_links_with_a_token_from_other_sites_and_of_two_dashboards(tmp_path, page):
    write_run(tmp_path / "run")
    with serving(tmp_path, host="0.0.0.0") as one, serving(tmp_path, host="0.0.0.0") as two:
        one, two = (address.replace("0.0.0.0", "127.0.0.1") for address in (one, two))
        plain = one.partition("?")[0]
        body = f"<a href='{one}'>with token</a> <a href='{plain}?run=run&tab=fleet'>shared</a>"
        page.route("http://chat.test/", lambda route: route.fulfill(content_type="text/html", body=body))
        page.goto("http://chat.test/")
        page.get_by_text("with token").click()
        expect(page.get_by_role("heading", name="run")).to_be_visible()
        page.goto(two)  # the same machine at another port
        expect(page.get_by_role("heading", name="run")).to_be_visible()
        page.goto("http://chat.test/")
        page.get_by_text("shared").click()
        expect(page.get_by_role("heading", name="run")).to_be_visible()
        page.goto(f"{one}&run=run&tab=runs")  # again: the token does not stay in the address
        expect(page.locator("#runs")).to_be_visible()
        assert "token" not in page.url


def test_runs_are_complete_when_they_are_first_seen(tmp_path, dashboard):
    """However many appear at once, and whoever asks meanwhile."""
    first = write_run(tmp_path / ".first", rows=1, scores=1)
    ask(dashboard, "runs")
    with Events(dashboard):
        for i in range(300):
            shutil.copytree(first, tmp_path / f"run{i}")
        deadline = time.monotonic() + WAIT_MS / 1000
        while len(runs := ask(dashboard, "runs")) < 300:
            assert all("name" in run for run in runs) and time.monotonic() < deadline
        assert all("name" in run for run in runs)


def test_many_runs_in_a_link_with_a_token(tmp_path):
    write_run(tmp_path / "run")
    with serving(tmp_path, host="0.0.0.0") as address:
        address, _, query = address.replace("0.0.0.0", "127.0.0.1").partition("/?")
        many = "&".join(f"run=run{i}" for i in range(300))
        status, _, headers = get(address, f"/?{query}&{many}")
        assert status == 303 and headers["location"] == f"/?{many}"
        assert json.loads(get(address, "/api/runs", {"Cookie": headers["set-cookie"].partition(";")[0]})[1])
