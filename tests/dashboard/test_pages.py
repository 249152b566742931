"""Every page in a real browser, on runs that are written by the test: what can be done with it, wide and narrow."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from dreamfleet.metrics.progress import Progress, write_progress
from tests.dashboard.conftest import WAIT_MS
from tests.dashboard.runs import append, write_run, write_status

pytestmark = pytest.mark.distributed
expect.set_options(timeout=WAIT_MS)


@pytest.fixture
def runs(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / "plain" / f"seed_{seed}", seed=seed)
    write_run(tmp_path / "tuned", metrics=300, **{"dreamer.horizon": 100})
    return tmp_path


def query_of(page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def chart_of(page, metric: str):
    return page.locator(f".chart[data-metric='{metric}']").first


def test_lines_are_sketched_until_the_library_draws_them(runs, dashboard, page):
    page.route("**/charts/bokeh.min.js", lambda route: None)  # it is under way
    page.goto(f"{dashboard}/?run=tuned", wait_until="commit")
    chart = chart_of(page, "episode/score")
    expect(chart.locator(".sketch polyline").first).to_have_attribute("points", re.compile(r"^0,\S+( \S+){38} 1,\S+$"))
    page.unroute("**/charts/bokeh.min.js")
    expect(chart).to_have_attribute("data-drawn", "true")
    expect(chart.locator(".sketch")).to_have_count(0)


def test_metrics_are_found_pinned_and_only_drawn_on_screen(runs, dashboard, page):
    page.goto(f"{dashboard}/?tab=metrics&run=tuned")
    expect(page.get_by_text("302 metrics")).to_be_visible()
    expect(chart_of(page, "train/m0")).to_have_attribute("data-points", "100")
    drawn, all_charts = page.locator(".chart .canvas > *").count(), page.locator(".chart").count()
    assert 0 < drawn < 40 and all_charts >= 300
    page.locator("#search").fill("m1[05]$")
    expect(page.get_by_text("2 of 302 metrics")).to_be_visible()
    chart = chart_of(page, "train/m15")
    chart.hover()
    chart.get_by_role("button", name="pin to the top").click()
    expect(page.get_by_role("heading", name="Pinned")).to_be_visible()
    chart = chart_of(page, "train/m10")
    chart.hover()
    chart.get_by_role("button", name="logarithmic axis").click()
    assert query_of(page) == {
        "tab": ["metrics"], "run": ["tuned"], "pin": ["train/m15"], "log": ["train/m10"], "q": ["m1[05]$"]
    }  # fmt: skip
    page.reload()  # the address holds all of it
    expect(page.get_by_text("2 of 302 metrics")).to_be_visible()
    expect(page.get_by_role("heading", name="Pinned")).to_be_visible()


def test_a_run_without_environments_shows_its_updates(runs, dashboard, page):
    write_progress(runs / "tuned", Progress(updates=40, total_updates=80))
    page.goto(f"{dashboard}/?run=tuned")
    expect(page.locator(".progress")).to_contain_text("40 / 80 updates · 50 %")
    expect(page.get_by_role("progressbar", name="updates")).to_have_attribute("aria-valuenow", "50")
    page.goto(f"{dashboard}/?run=tuned&tab=runs")
    expect(page.locator("#runs")).to_contain_text("40 / 80 updates")


def test_a_chart_is_saved(runs, dashboard, page):
    page.goto(f"{dashboard}/?run=tuned")
    chart = chart_of(page, "learner/updates_per_s")
    expect(chart).to_have_class(re.compile("empty"))  # nothing was logged under this name
    chart = chart_of(page, "episode/length")
    expect(chart).to_have_attribute("data-points", "40")
    for kind, start in (("CSV", b"run,step,time,"), ("PNG", b"\x89PNG")):
        chart.hover()
        with page.expect_download() as download:
            chart.get_by_role("button", name=f"download as {kind}").click()
        assert download.value.path().read_bytes().startswith(start)


def test_range_and_cursor_are_shared_by_charts(runs, dashboard, page):
    page.goto(f"{dashboard}/?run=tuned&tab=metrics&q=m[0-3]$&smooth=1")
    first, second = chart_of(page, "train/m0"), chart_of(page, "train/m1")
    for chart in (first, second):
        expect(chart).to_have_attribute("data-points", "100")
        expect(chart).to_have_attribute("data-drawn", "true")
    box = first.locator(".plot").bounding_box()
    page.mouse.move(box["x"] + 150, box["y"] + 80)
    for chart in (first, second):
        expect(chart.locator(".cursor")).to_be_visible()
    assert first.locator(".readout i").inner_text() == second.locator(".readout i").inner_text()
    page.mouse.down()
    page.mouse.move(box["x"] + 220, box["y"] + 80, steps=4)
    page.mouse.up()
    expect(page.locator("#reset")).to_be_visible()
    zoomed = query_of(page)
    assert 0 < float(zoomed["start"][0]) < float(zoomed["end"][0]) < 990
    page.locator("#reset").click()
    expect(page.locator("#reset")).to_be_hidden()
    first.locator(".plot").focus()
    page.keyboard.press("+")
    expect(page.locator("#reset")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#reset")).to_be_hidden()


def test_several_runs(runs, dashboard, page):
    page.goto(f"{dashboard}/?tab=runs&run=plain/seed_0")
    expect(page.locator("#runs tbody tr")).to_have_count(3)
    page.get_by_role("button", name="show all").click()
    expect(page.locator("#configs tbody tr td:first-child")).to_have_text(["seed", "dreamer.horizon"])
    chart = chart_of(page, "episode/score")
    expect(chart).to_have_attribute("data-points", "120")
    page.locator("[data-sort=seed]").click()
    expect(page.locator("#runs tbody tr").first).to_contain_text("plain/seed_1")
    page.locator("#group").click()
    expect(page.locator("[data-groups='2']")).to_be_visible()
    page.locator("#sidebar").get_by_label("show tuned in charts").click()
    expect(page.locator("[data-groups='1']")).to_be_visible()
    assert query_of(page)["run"] == ["plain/seed_0", "plain/seed_1"]


STEERED_STREAM = """
window.EventSource = class extends EventTarget {
    static CLOSED = 2;
    constructor() { super(); window.stream = this; }
    close() {}
    send(name, data) { this.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) })); }
};
"""


def test_seeds_whose_options_are_known_late_are_grouped_then(runs, dashboard, page):
    """Of runs that are over, nothing comes after that."""
    page.add_init_script(STEERED_STREAM)
    page.goto(f"{dashboard}/?tab=runs&group=1&run=plain/seed_0&run=plain/seed_1&run=tuned")
    expect(page.locator("[data-groups='3']")).to_be_visible()
    page.evaluate("""async () => {
        const { runs } = await import("/static/feed.js");
        const changed = [...runs.values()].map((run) => ({ ...run, group: run.name.split("/")[0] }));
        stream.send("runs", { changed, gone: [] });
    }""")
    expect(page.locator("[data-groups='2']")).to_be_visible()


def test_axis_smoothing_and_theme(runs, dashboard, page):
    page.goto(f"{dashboard}/?run=tuned")
    expect(chart_of(page, "episode/score")).to_have_attribute("data-points", "40")
    page.get_by_label("x-axis").select_option("hours")
    expect(chart_of(page, "episode/score")).to_have_attribute("data-points", "40")
    page.locator("#smoothing").fill("0")
    assert query_of(page)["axis"] == ["hours"] and query_of(page)["smooth"] == ["1"]
    theme = page.locator("html").get_attribute("data-theme")
    page.keyboard.press("Tab")
    page.locator("#theme").click()
    expect(page.locator("html")).not_to_have_attribute("data-theme", theme)
    page.keyboard.press("3")
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    page.go_back()
    expect(chart_of(page, "episode/score")).to_be_visible()


def test_what_is_new_is_drawn_and_a_replaced_file_too(runs, dashboard, page):
    page.goto(f"{dashboard}/?run=tuned")
    chart = chart_of(page, "episode/score")
    expect(chart).to_have_attribute("data-points", "40")
    scores = runs / "tuned" / "scores.jsonl"
    append(scores, [(2000, {"episode/score": 77.0, "episode/length": 7})])
    expect(chart).to_have_attribute("data-points", "41")
    append(scores, [(3000 + i, {"episode/score": float(i), "episode/length": 7}) for i in range(2000)])
    expect(chart).to_have_attribute("data-points", "2041")
    scores.unlink()
    append(scores, [(i, {"episode/score": 1.0, "episode/length": 7}) for i in range(5)])
    expect(chart).to_have_attribute("data-points", "5")


def test_every_run_is_named_at_the_cursor(runs, dashboard, page):
    page.goto(f"{dashboard}/?tab=runs&run=plain/seed_0&run=tuned")
    chart = chart_of(page, "episode/score")
    expect(chart).to_have_attribute("data-points", "80")
    expect(chart).to_have_attribute("data-drawn", "true")
    chart.locator(".plot").hover()
    expect(chart.locator(".tip div")).to_have_count(2)
    expect(chart.locator(".tip")).to_contain_text("plain/seed_0")
    at = chart.locator(".readout i").inner_text()
    append(runs / "tuned" / "scores.jsonl", [(500, {"episode/score": 5.0, "episode/length": 7})])
    expect(chart).to_have_attribute("data-points", "81")
    expect(chart.locator(".readout i")).to_have_text(at)  # the cursor stays while new points come
    page.mouse.move(0, 0)
    expect(chart.locator(".tip")).to_be_hidden()


def test_runs_are_filtered_by_a_regular_expression(runs, dashboard, page):
    page.goto(dashboard)
    page.get_by_label("filter runs").fill("seed_[1-9]|tun")
    expect(page.locator("#sidebar .run button")).to_have_text(["plain/seed_1", "tuned"])


def test_the_fleet_by_its_link(runs, dashboard, page):
    """Logs of all roles can be chosen, move on by themselves, and what is drawn fits into its box."""
    busy = {"cpu": 0.34, "memory_mb": 1300.0, "figures": {"new_updates": 1}}
    write_status(runs / "tuned", "running", agent=busy, replay=busy, logger=busy)
    write_status(runs / "tuned" / "joined" / "envs", "running", env0=busy)
    (runs / "tuned" / "joined" / "envs" / "owner-elsewhere").touch()
    rates = {"logger/add/rate": 1234.5, "env/steps_per_s": 0.00969, "actor/steps_per_s": 8500.0}
    append(runs / "tuned" / "metrics.jsonl", [(2000, rates)])
    logs = runs / "tuned" / "logs"
    logs.mkdir()
    (logs / "replay.log").write_text("first\n")
    page.goto(f"{dashboard}/?tab=fleet&run=tuned")
    expect(page.locator("#roles tr[data-role='envs/env0']")).to_contain_text("on elsewhere")
    expect(page.locator(".picture [data-role='envs/env0']")).to_have_class("node running")
    expect(page.locator("#log-role option")).to_have_text(["agent", "replay", "logger", "envs/env0"])
    page.locator("#log-role").select_option("replay")
    expect(page.get_by_label("log", exact=True)).to_have_text("first")
    with (logs / "replay.log").open("a") as file:
        file.write("second\n")
    write_status(runs / "tuned", "running", agent=busy, replay=busy, logger=busy)
    expect(page.get_by_label("log", exact=True)).to_contain_text("second")
    expect(page.locator(".picture .node[data-role=logger] text")).to_have_count(3)
    inside = """() => [...document.querySelectorAll('.picture .node')].every((node) => {
        const box = node.querySelector('rect').getBBox();
        return [...node.querySelectorAll('text')].map((text) => text.getBBox()).every((text) =>
            text.x + text.width <= box.x + box.width && text.y + text.height <= box.y + box.height);
    })"""
    assert page.evaluate(inside)


def test_a_restart_is_told_when_the_log_says_so(runs, dashboard, page):
    """It is counted before the process that writes the line is there."""
    write_status(runs / "tuned", "running", env0={})
    (runs / "tuned" / "logs").mkdir()
    page.goto(f"{dashboard}/?tab=fleet&run=tuned")
    expect(page.get_by_text("None.")).to_be_visible()
    with page.expect_response("**/api/faults*"):
        write_status(runs / "tuned", "running", env0={"state": "starting", "restarts": 1})
    birth = "--- 2026-01-02 03:04:05 env0 incarnation 1 pid 7 ---\n"
    (runs / "tuned" / "logs" / "env0.log").write_text(birth)
    write_status(runs / "tuned", "running", env0={"restarts": 1})
    expect(page.locator(".fault")).to_contain_text("env0 restarted")


def test_faults_that_are_answered_late_do_not_replace_later_ones(runs, dashboard, page, held_answers):
    write_status(runs / "tuned", "running", env0={})
    page.goto(f"{dashboard}/?tab=fleet&run=tuned")
    expect(page.get_by_text("None.")).to_be_visible()
    held_answers.hold("/api/faults")
    write_status(runs / "tuned", "running", env0={"state": "starting", "restarts": 1})
    held_answers.wait(1)
    (runs / "tuned" / "logs").mkdir()
    (runs / "tuned" / "logs" / "env0.log").write_text("--- 2026-01-02 03:04:05 env0 incarnation 1 pid 7 ---\n")
    write_status(runs / "tuned", "running", env0={"restarts": 1})
    held_answers.wait(2)
    held_answers.release(1)
    expect(page.locator(".fault")).to_contain_text("env0 restarted")
    held_answers.release(0)
    expect(page.locator(".fault")).to_have_count(1)


def test_text_of_a_run_is_never_read_as_markup(tmp_path, dashboard, page):
    evil = "<img src=x onerror=alert(1)>"
    logdir = write_run(tmp_path / evil.replace("/", "_"))
    append(logdir / "metrics.jsonl", [(9, {f"train/{evil}": 1.0})])
    write_status(logdir, "running", agent={"exit": evil}, **{f"env{evil}": {"state": evil}})
    for tab in ("overview", "metrics", "runs", "fleet", "dreams"):
        page.goto(f"{dashboard}/?tab={tab}")
        expect(page.locator("#sidebar .run")).to_contain_text(evil)
        expect(page.locator("#page h1, #page .chart").first).to_be_visible()
        assert page.locator("img").count() == 0


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("tab", ["overview", "metrics", "runs", "fleet", "dreams"])
def test_no_page_is_wider_than_the_window(runs, dashboard, page, tab, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{dashboard}/?tab={tab}&run=tuned&run=plain/seed_0")
    expect(page.locator("#page > *").first).to_be_visible()
    sizes = "() => [document.documentElement.scrollWidth, document.querySelector('main').scrollWidth]"
    document, main = page.evaluate(sizes)
    assert document <= width and main <= width
