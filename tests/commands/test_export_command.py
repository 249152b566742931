"""`dreamfleet export`: the policy acts the same in a Python that has nothing but jax and numpy."""

import importlib.metadata
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import elements
import numpy as np
import pytest

from dreamfleet.agent.contract import PolicyProgram
from dreamfleet.base.extras import install_command
from dreamfleet.cli import main
from dreamfleet.launch.trained import load_run, make_trained_agent
from dreamfleet.results.artefact import NAMES, write_artefact
from dreamfleet.results.load_policy import load
from tests.documented import DOCS, read_blocks
from tests.fleet import DEADLINE_S

STEPS = 12

# Plays recorded observations, of two episodes, one after the other and as a batch.
STRANGER = """
import importlib.util, json, sys
import numpy as np

path, recorded = sys.argv[1:]
for name in ("dreamfleet", "elements", "equinox", "flatbuffers", "gymnasium"):
    assert importlib.util.find_spec(name) is None, f"{name} can be imported"
sys.path.insert(0, path)
from load_policy import load

with np.load(recorded, allow_pickle=False) as file:
    obs = {name: file[name] for name in file.files}
policy = load(path)
single = []
for episode in range(2):
    policy.reset()
    for step in range(len(obs["is_first"])):
        act = policy({name: value[step, episode] for name, value in obs.items() if name != "is_first"})
        single.append(int(act["action"]))
policy.reset(batch_size=2, seed=policy.spec["seed"])
rows = [{name: value[step] for name, value in obs.items()} for step in range(len(obs["is_first"]))]
batch = [policy(row)["action"].tolist() for row in rows]
print(json.dumps({"single": single, "batch": batch, "modules": sorted(sys.modules)}))
"""


@pytest.fixture(scope="module")
def bare_site(tmp_path_factory) -> Path:
    """A directory of packages with jax and what it requires, and nothing else."""
    site, queue, done = tmp_path_factory.mktemp("site"), ["jax"], set()
    while queue:
        name = queue.pop()
        if name in done:
            continue
        done.add(name)
        distribution = importlib.metadata.distribution(name)
        for top in {Path(file).parts[0] for file in distribution.files or () if ".." not in Path(file).parts}:
            target = Path(str(distribution.locate_file(top)))
            if target.exists() and not (site / top).exists():
                (site / top).symlink_to(target)
        required = [line for line in distribution.requires or () if "extra ==" not in line]
        queue += [re.split(r"[^\w.-]", line)[0] for line in required]
    assert {"jax", "numpy"} <= done and "flatbuffers" not in done
    return site


@pytest.fixture(scope="module")
def exported(vector_run, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("exported")
    for name in ("policy", "policy.zip"):
        assert main(["export", str(vector_run), "--out", str(out / name)]) == 0
    return out


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    """Observations of two episodes, (T, 2, ...)."""
    rng = np.random.default_rng(3)
    is_first = np.zeros((STEPS, 2), bool)
    is_first[0] = is_first[5, 1] = True
    return {"vector": rng.normal(size=(STEPS, 2, 4)).astype(np.float32), "is_first": is_first}


def own_actions(agent, recorded, columns, is_first) -> list:
    """What our agent does in eval mode when it sees these columns as a batch."""
    carry, actions = agent.init_policy(len(columns)), []
    for step in range(STEPS):
        obs = {"vector": recorded["vector"][step, columns], "is_first": is_first[step, columns]}
        carry, acts, _ = agent.policy(carry, obs, "eval")
        actions.append(acts["action"].tolist())
    return actions


@pytest.mark.distributed
@pytest.mark.parametrize("name", ["policy", "policy.zip"])
def test_the_same_actions_without_dreamfleet(name, exported, bare_site, recorded, vector_run, tmp_path):
    arrays: dict = recorded
    np.savez(tmp_path / "recorded.npz", **arrays)
    code = f"import sys; sys.path.append({str(bare_site)!r})\n" + STRANGER
    command = [sys.executable, "-I", "-S", "-c", code, str(exported / name), str(tmp_path / "recorded.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert not [module for module in result["modules"] if module.startswith("dreamfleet")]
    start = np.zeros_like(recorded["is_first"])
    start[0] = True
    agent = make_trained_agent(load_run(vector_run))
    single = [acts for column in (0, 1) for (acts,) in own_actions(agent, recorded, [column], start)]
    assert result["single"] == single and len(set(single)) == 2
    agent = make_trained_agent(load_run(vector_run))
    assert result["batch"] == own_actions(agent, recorded, [0, 1], recorded["is_first"])


@pytest.mark.distributed
def test_the_script_that_the_documentation_shows_plays_an_episode(exported):
    (script,) = read_blocks(DOCS / "commands.md", "python")
    code = f"import sys; sys.path.insert(0, 'policy')\n{script}\nprint('played', done)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, cwd=exported
    )
    assert done.stdout == "played True\n", done.stderr


def test_lone_observations_and_seeds(exported, recorded):
    policy = load(exported / "policy")

    def play(**options) -> list[int]:
        policy.reset(**options)
        return [int(policy(obs)) for obs in recorded["vector"][:, 0]]

    first, second = play(), play()
    assert first != second, "the noise goes on from one episode to the next"
    assert play(seed=policy.spec["seed"]) == first
    assert play(seed=99) == play(seed=99)


def test_greedy_policies_need_no_luck(vector_run, recorded, tmp_path):
    assert main(["export", str(vector_run), "--out", str(tmp_path / "p"), "--dreamer.greedy_eval", "True"]) == 0
    spec = json.loads((tmp_path / "p" / "policy.json").read_text())
    assert spec["task"] == "gym_CartPole-v1" and spec["step"] == 100
    policy = load(tmp_path / "p")
    agent = make_trained_agent(load_run(vector_run, ["--dreamer.greedy_eval", "True"]))
    start = np.zeros_like(recorded["is_first"])
    start[0] = True
    assert [[int(policy(obs))] for obs in recorded["vector"][:, 1]] == own_actions(agent, recorded, [1], start)


def test_images(image_run, tmp_path):
    assert main(["export", str(image_run), "--out", str(tmp_path / "p")]) == 0
    policy = load(tmp_path / "p")
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    agent = make_trained_agent(load_run(image_run))
    carry = agent.init_policy(1)
    for step in range(5):
        obs = {"image": image[None], "is_first": np.array([step == 0])}
        carry, acts, _ = agent.policy(carry, obs, "eval")
        assert policy(image) == acts["action"][0]


def test_what_is_wrong_with_an_observation_is_said(exported):
    policy = load(exported / "policy.zip")
    with pytest.raises(KeyError, match="no 'vector'; it has vektor"):
        policy({"vektor": np.zeros(4)})
    with pytest.raises(ValueError, match=r"'vector' has shape \(5,\), but needs \[4\]"):
        policy(np.zeros(5))
    policy.reset(batch_size=3)
    with pytest.raises(ValueError, match=r"\[4\] in a batch of 3"):
        policy(np.zeros((2, 4)))


def test_files_hold_no_pickles(exported):
    with np.load(exported / "policy" / "arrays.npz", allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)
    spec = json.loads((exported / "policy" / "policy.json").read_text())
    assert spec["obs_space"]["vector"]["low"][1] is None and spec["act_space"]["action"]["high"] == 2
    with zipfile.ZipFile(exported / "policy.zip") as archive:
        names = set(archive.namelist())
    assert all((exported / "policy" / name).is_file() for name in names)
    assert {name for name in names if not name.startswith("vendor/flatbuffers")} == set(NAMES)


def test_types_that_numpy_files_do_not_know(tmp_path, exported):
    import ml_dtypes

    weights = {"w": np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)}
    serialized = (exported / "policy" / "program.bin").read_bytes()
    carry = {"c": np.zeros((1, 2), np.float32)}
    program = PolicyProgram(serialized, weights, carry, ["is_first", "x"], 0, ("cpu",))
    spaces = {"x": elements.Space(np.float32, (2,)), "is_first": elements.Space(bool)}
    write_artefact(tmp_path / "p", program, spaces, {"action": elements.Space(np.int32, (), 0, 2)}, {})
    loaded = load(tmp_path / "p")._weights["w"]
    assert loaded.dtype == ml_dtypes.bfloat16 and (np.asarray(loaded) == weights["w"]).all()


def test_what_is_not_an_export_is_not_replaced(random_run, tmp_path, refusal):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("")
    line = refusal("export", str(random_run), "--out", str(tmp_path / "thesis"))
    assert "exists and is not an export" in line and (tmp_path / "thesis" / "chapter.tex").exists()


def test_an_agent_that_cannot(random_run, refusal, tmp_path):
    line = refusal("export", str(random_run), "--out", str(tmp_path / "p"))
    assert "agent='dreamfleet.agent.random:RandomAgent' does not support export" in line


def test_the_missing_package_is_named_with_its_extra(random_run, refusal, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    line = refusal("export", str(random_run), "--out", str(tmp_path / "p"))
    assert "needs the package flatbuffers" in line and install_command("export") in line
    assert "required: --out" in refusal("export", str(random_run))
