"""`dreamfleet plot`: which runs make up a curve, what the curve is, and the files."""

import json
import re
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image

from dreamfleet.base.extras import install_command
from dreamfleet.cli import main
from dreamfleet.options import load_options, save_options
from dreamfleet.results.curves import load_reference, load_run_curve


def write_run(logdir, scores, **config) -> None:
    """A log directory with a score every 100 steps."""
    save_options(load_options({"task": "gym_CartPole-v1", "logdir": str(logdir), **config}))
    rows = [
        {"step": 100 * i, "time": 5000.0 + 36 * i, "episode/score": score, "episode/length": 7}
        for i, score in enumerate(scores, 1)
    ]
    (logdir / "scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (logdir / "metrics.jsonl").write_text('{"step": 100, "time": 1.0, "train/loss": 3.5}\n{"step": 200, "ti')


@pytest.fixture
def runs(tmp_path):
    """Two seeds of one setting and one run of another setting, and one of another task."""
    for seed in (0, 1):
        write_run(tmp_path / "plain" / f"seed_{seed}", [10.0 + 20 * seed] * 100, seed=seed)
    write_run(tmp_path / "tuned", [50.0] * 50, **{"dreamer.horizon": 100})
    write_run(tmp_path / "acrobot", [-100.0] * 100, task="gym_Acrobot-v1")
    return tmp_path


@pytest.fixture
def plotted(capsys):
    def run(*argv) -> list[str]:
        capsys.readouterr()
        assert main(["plot", *map(str, argv)]) == 0
        return capsys.readouterr().out.splitlines()

    return run


def test_seeds_of_one_setting_are_one_curve(runs, plotted):
    assert plotted(runs) == [
        "gym_Acrobot-v1: acrobot (1 run), final -100.0, best -100.0",
        "gym_CartPole-v1: plain (2 runs), final 20.0 ± 10.0, best 20.0",
        "gym_CartPole-v1: tuned (1 run), final 50.0, best 50.0",
        "wrote curves.png",
    ]
    with Image.open("curves.png") as image:
        assert min(image.size) > 400 and len(np.unique(np.asarray(image.convert("L")))) > 50


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("folder", ["plain (2 runs), final 20.0", "tuned (1 run), final 50.0"]),
        ("task", ["all runs (3 runs), final 20.0"]),
        ("run", ["plain/seed_0 (1 run), final 10.0", "plain/seed_1 (1 run), final 30.0", "tuned (1 run), final 50.0"]),
    ],
)
def test_other_ways_to_put_runs_together(runs, plotted, by, expected):
    lines = plotted(runs / "plain", runs / "tuned", "--by", by)
    assert len(lines) == len(expected) + 1
    for line, part in zip(lines, expected, strict=False):
        assert part in line


def test_a_run_that_is_named_twice_counts_once(runs, plotted):
    assert "(2 runs)" in plotted(runs / "plain", runs / "plain" / "seed_0")[0]


def test_svg_and_html_are_whole_and_hold_the_curves(runs, plotted):
    plotted(runs, "--out", "a.svg")
    svg = ElementTree.parse("a.svg").getroot()
    texts = ["".join(node.itertext()) for node in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"plain (2 runs)", "tuned", "gym_CartPole-v1", "episode score", "environment steps"} <= set(texts)
    plotted(runs, "--out", "sub/b.html")
    page = (runs / "sub" / "b.html").read_text()
    assert "<svg" in page and "</html>" in page and "<td>plain</td><td>2</td><td>20.0</td><td>10.0</td>" in page
    assert not re.search(r'(src|href)="(?!#)', page.replace("xlink:href", "href")), "nothing is loaded from elsewhere"
    first = (runs / "a.svg").read_bytes()
    plotted(runs, "--out", "a.svg")
    assert (runs / "a.svg").read_bytes() == first


def test_hours_and_other_metrics(runs, plotted):
    series = load_run_curve(runs / "tuned", "episode/score", "hours")
    assert series.xs[0] == 0 and series.xs[-1] == pytest.approx(0.49)
    assert "final 50.0" in plotted(runs / "tuned", "--x", "hours")[0]
    assert "final 3.5" in plotted(runs / "tuned", "--metric", "train/loss")[0], "a line half written is passed over"
    assert "final 7.0" in plotted(runs / "tuned", "--metric", "episode/length")[0]


def test_a_real_run(random_run, plotted):
    assert plotted(random_run)[0].startswith("dummy_vector: run (1 run), final 10.0")


def test_references_of_both_forms(runs, plotted):
    curves = [
        {"name": "paper", "task": "gym_CartPole-v1", "seed": seed, "xs": [0, 5000, 10000], "ys": [0, 50, 100 + seed]}
        for seed in (0, 20)
    ]
    (runs / "paper.json").write_text(json.dumps(curves))
    (runs / "bound.csv").write_text("step,score\n10000,500\n0,500\n")
    lines = plotted(runs, "--reference", runs / "paper.json", runs / "bound.csv")
    assert any(line.startswith("gym_CartPole-v1: paper (reference), final 110.0 ± 10.0") for line in lines)
    assert sum("bound (reference), final 500.0" in line for line in lines) == 2, "without a task, in both panels"
    assert not any(line.startswith("gym_Acrobot-v1: paper") for line in lines)
    (curve,) = load_reference(runs / "bound.csv")
    assert curve.runs[0].xs.tolist() == [0, 10000], "sorted"


@pytest.mark.parametrize(
    ("content", "reason"),
    [("[1", "JSONDecodeError"), ('{"a": 1}', "not a list"), ('[{"xs": [1], "ys": []}]', "length")],
)
def test_references_that_are_none(runs, refusal, content, reason):
    (runs / "bad.json").write_text(content)
    line = refusal("plot", str(runs), "--reference", str(runs / "bad.json"))
    assert "bad.json' is not a file of curves" in line and reason in line


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["nowhere"], "is not a directory"),
        (["empty"], "holds no run (there is no scores.jsonl in it or below it)"),
        (["tuned", "--out", "curves.pdf"], "out='curves.pdf' has an unknown figure type; use .png, .svg, .html"),
        (["tuned", "--metric", "train/los"], "metric='train/los' has not been logged"),
        (["tuned", "--metric", "train/los"], "; did you mean train/loss?"),
        (["tuned", "--reference", "nope.json"], "reference='nope.json' cannot be read (No such file"),
        (
            ["tuned", "--reference", "tuned/config.yaml", "--x", "hours"],
            "x='hours' cannot be combined with --reference",
        ),
        (["tuned", "--smooth", "3"], "argument='--smooth' is unknown"),
        (["tuned", "--by", "color"], "invalid choice"),
    ],
)
def test_wrong_questions(runs, refusal, argv, part):
    (runs / "empty").mkdir()
    assert part in refusal("plot", *argv)


def test_a_run_that_no_episode_has_ended_in(runs, refusal):
    write_run(runs / "fresh", [])
    assert (
        "has not been logged" in (line := refusal("plot", "fresh")) and "wait for the first episode to finish" in line
    )


def test_the_missing_package_is_named_with_its_extra(runs, refusal, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = refusal("plot", "tuned")
    assert "needs the package matplotlib" in line and install_command("plot") in line


def test_help_has_examples(capsys):
    assert main(["plot", "--help"]) == 0
    assert "examples:" in (text := capsys.readouterr().out) and "--reference published.json" in text
