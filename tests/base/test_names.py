"""Names that users and files give: data types, objects in modules, packages, and the hints for what is none."""

import ml_dtypes
import numpy as np
import pytest

from dreamfleet.base.dtypes import find_dtype, find_extension_dtype
from dreamfleet.base.extras import check_installed
from dreamfleet.base.hints import choose_from, did_you_mean, nearest
from dreamfleet.base.loader import load_attribute, load_option
from dreamfleet.errors import ConfigError


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float16, np.complex64, ml_dtypes.bfloat16])
def test_numbers_are_found_by_their_name(dtype):
    assert find_dtype(np.dtype(dtype).name) == np.dtype(dtype)


@pytest.mark.parametrize(
    "name", ["object", "str", "datetime64[s]", "finfo", "np", "__name__", "", "a b", "\udc80", None]
)
def test_other_names_are_none_of_a_data_type(name):
    with pytest.raises(ValueError, match="data type"):
        find_dtype(name)


def test_types_of_numpy_are_not_extensions():
    with pytest.raises(ValueError, match="data type"):
        find_extension_dtype("float128")


def test_attributes_are_found_by_path():
    assert load_attribute("os.path:join") is __import__("os").path.join
    assert load_attribute("os:path.join") is __import__("os").path.join


@pytest.mark.parametrize("name", ["nowhere:x", "os:nowhere", "os", "os:", ":x", ".os:x", ""])
def test_what_is_not_there_is_a_setting_that_cannot_work(name):
    with pytest.raises(ConfigError, match="cannot be imported") as caught:
        load_option("agent", name, "name another")
    assert caught.value.key == "agent" and caught.value.remedy == "name another"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("raise ValueError('mine')", ValueError),
        ("import os\nos.no_such_function", AttributeError),
        ("import no_such_package", ModuleNotFoundError),
        ("from os import no_such_name", ImportError),
        ("def x(:", SyntaxError),
    ],
)
def test_an_error_of_the_module_is_its_own(code, error, tmp_path, monkeypatch):
    (tmp_path / "broken_part.py").write_text(f"{code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error) as caught:
        load_option("agent", "broken_part:x", "name another")
    assert type(caught.value) is error


def test_a_misspelt_attribute_is_asked_about():
    with pytest.raises(ConfigError) as caught:
        load_option("agent", "dreamfleet.agent.random:RandomAgnet", "name another")
    assert caught.value.remedy == "did you mean dreamfleet.agent.random:RandomAgent?"


def test_packages_are_looked_for_in_order():
    check_installed("task", "a", ["os", "json"], "run pip")
    with pytest.raises(ConfigError, match=r"needs the package nowhere_to_be_found, .*; run pip"):
        check_installed("task", "a", ["os", "nowhere_to_be_found"], "run pip")


def test_hints():
    assert nearest("run.x_addr", ["run.a_addr", "run.b_addr", "seed"]) == ["run.a_addr", "run.b_addr"]
    assert nearest("anything", []) == []
    assert nearest("env", ["run.envs", "steps"]) == ["run.envs"]
    assert did_you_mean("jsnl", ["jsonl", "wandb"], "none") == "did you mean jsonl?"
    assert did_you_mean("x", ["jsonl", "wandb"], "none") == "none"
    assert choose_from("jsnl", ["jsonl", "wandb"]) == "choose from jsonl, wandb (did you mean jsonl?)"
    assert choose_from("x", ["jsonl", "wandb"]) == "choose from jsonl, wandb"
