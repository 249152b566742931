"""The 3x3 forms of the image layers against plain 5x5 convolutions, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamfleet.agent.dreamer.networks.images import ConvPool, UpConv, depth_to_space, space_to_depth

KEY = jax.random.key(0)


def plain_conv(x, kernel):
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def plain_conv_pool(layer, x):
    y = plain_conv(x, layer.kernel) + layer.bias
    n, h, w, c = y.shape
    return y.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))


def plain_up_conv(layer, x):
    return plain_conv(x.repeat(2, 1).repeat(2, 2), layer.kernel) + layer.bias


@pytest.mark.parametrize("kind, plain", [(ConvPool, plain_conv_pool), (UpConv, plain_up_conv)])
def test_values_and_gradients_are_those_of_the_plain_form(kind, plain):
    layer = kind(KEY, 3, 6)
    layer = jax.tree.map(lambda x: x + 0.1 * jax.random.normal(KEY, x.shape), layer)
    x = jax.random.normal(jax.random.key(1), (2, 8, 12, 3))
    weights = jax.random.normal(jax.random.key(2), plain(layer, x).shape)
    np.testing.assert_allclose(layer(x), plain(layer, x), rtol=1e-4, atol=1e-4)

    def gradients(fn):
        return jax.grad(lambda layer, x: (weights * fn(layer, x)).sum(), (0, 1))(layer, x)

    ours, theirs = gradients(lambda layer, x: layer(x)), gradients(plain)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), ours, theirs)


def test_space_to_depth_and_back():
    x = jnp.arange(2 * 4 * 6 * 3).reshape(2, 4, 6, 3)
    cells = space_to_depth(x)
    np.testing.assert_array_equal(cells[0, 0, 0], x[0, :2, :2].reshape(-1))
    np.testing.assert_array_equal(depth_to_space(cells), x)
