"""A log directory as the reference's parallel script leaves it."""

import pickle

import numpy as np
import pytest
from ruamel.yaml import YAML

from tests import quick_jax
from tests.migration.reference import CONFIG, DATA, write_chunk

quick_jax.set_up()


@pytest.fixture
def theirs(tmp_path):
    """What the reference's parallel script leaves in its log directory."""
    directory = tmp_path / "theirs"
    (directory / "replay").mkdir(parents=True)
    with (directory / "config.yaml").open("w") as stream:
        YAML().dump(CONFIG, stream)
    write_chunk(directory / "replay", 1, 2, 7)
    write_chunk(directory / "replay", 2, 0, 8, first=7)
    write_chunk(directory / "replay", 3, 0, 5)
    saved = directory / "ckpt" / "agent" / "20260101T000000F000"
    saved.mkdir(parents=True)
    params = {key.removeprefix("param/"): value for key, value in np.load(DATA).items() if key.startswith("param/")}
    (saved / "agent.pkl").write_bytes(pickle.dumps({"params": params, "counters": {"updates": 77}}))
    (saved / "done").touch()
    (saved.parent / "latest").write_text(saved.name)
    return directory
