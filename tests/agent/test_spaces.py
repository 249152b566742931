"""Which observations are images, classes and numbers, and how they and actions become vectors."""

import elements
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamfleet.agent.dreamer.networks.heads import PolicyHead
from dreamfleet.agent.dreamer.spaces import action_fields, flatten, image_fields, make_field, vector_fields
from dreamfleet.errors import ConfigError

Space = elements.Space


def test_kinds_of_observations():
    spaces = {
        "reward": Space(np.float32),
        "is_first": Space(bool),
        "log/depth": Space(np.float32),
        "small": Space(np.uint8, (4, 4)),
        "view": Space(np.uint8, (64, 64, 3)),
        "back": Space(np.uint8, (64, 64, 1)),
        "count": Space(np.int32),
        "door": Space(bool),
        "speed": Space(np.float32, (3,)),
    }
    assert [field.key for field in image_fields(spaces)] == ["back", "view"]
    vectors = {field.key: field for field in vector_fields(spaces)}
    assert list(vectors) == ["count", "door", "small", "speed"]
    assert [vectors[key].is_classes for key in vectors] == [False, True, True, False]
    assert [vectors[key].flat_size for key in vectors] == [1, 2, 16 * 256, 3]


def test_flattening():
    fields = vector_fields({"a": Space(np.int32, (2,), 5, 8), "b": Space(np.float32)})
    flat = flatten({"a": jnp.array([[5, 7]]), "b": jnp.array([np.e - 1])}, fields, squash=True)
    np.testing.assert_allclose(flat, [[1, 0, 0, 0, 0, 1, 1]], rtol=1e-6)


@pytest.mark.parametrize("shapes", [[(60, 64, 3)], [(64, 64, 3), (32, 32, 3)]])
def test_images_that_the_networks_cannot_take_are_refused(shapes):
    with pytest.raises(ConfigError, match="resize"):
        image_fields({str(i): Space(np.uint8, shape) for i, shape in enumerate(shapes)})


def test_entries_with_different_numbers_of_classes():
    space = {"arms": Space(np.int32, (3,), 1, np.array([3, 5, 2])), "reset": Space(bool)}
    fields = action_fields(space)
    actor = PolicyHead(jax.random.key(0), 4, fields, units=8, layers=1, scale=1.0)
    policy = actor(jnp.ones((2000, 4)))
    acts = np.asarray(actor.sample(policy, actor.noise(jax.random.key(1), (2000,)))["arms"])
    assert [set(column) for column in acts.T] == [{1, 2}, {1, 2, 3, 4}, {1}]
    assert np.isfinite(policy["arms"].entropy()).all()
    assert np.isfinite(actor.log_prob(policy, {"arms": jnp.asarray(acts)})).all()


def test_fields_are_hashable():
    assert len({make_field("a", Space(np.int32, (), 0, 3)), make_field("a", Space(np.int32, (), 0, 3))}) == 1
