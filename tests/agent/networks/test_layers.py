"""Dense layers against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamfleet.agent.dreamer.networks.layers import MLP, BlockLinear, Dense, Linear, RMSNorm, init_kernel

KEY = jax.random.key(0)


@pytest.mark.parametrize("shape", [(256, 512), (5, 5, 16, 64), (8, 64, 96)])
def test_kernels_keep_the_variance(shape):
    kernel = init_kernel(KEY, shape)
    assert float(kernel.std()) * np.sqrt(np.prod(shape[:-1])) == pytest.approx(1.0, rel=0.03)


def test_split_layers_add_up():
    layer = Linear(KEY, 7, 5)
    x = jax.random.normal(KEY, (4, 7))
    first, rest = layer.split(3)
    np.testing.assert_allclose(first(x[:, :3]) + rest(x[:, 3:]), layer(x), rtol=1e-5, atol=1e-6)


def test_block_linear_is_a_block_diagonal_matrix():
    layer = BlockLinear(KEY, 2, 6, 8)
    x = jax.random.normal(KEY, (5, 6))
    dense = np.zeros((6, 8), np.float32)
    dense[:3, :4], dense[3:, 4:] = layer.kernel
    ours = layer(x.reshape(5, 2, 3).swapaxes(0, 1)).swapaxes(0, 1).reshape(5, 8)
    np.testing.assert_allclose(ours, x @ dense, rtol=1e-5, atol=1e-6)


def test_norm_over_blocks_is_the_norm_over_all():
    norm = RMSNorm(6)
    norm = jax.tree.map(lambda scale: scale + jnp.arange(6.0), norm)
    x = 100 * jax.random.normal(KEY, (5, 6))
    blocks = norm.blocks(x.reshape(5, 2, 3).swapaxes(0, 1)).swapaxes(0, 1).reshape(5, 6)
    np.testing.assert_allclose(blocks, norm(x), rtol=1e-5)
    expected = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-4) * norm.scale
    np.testing.assert_allclose(norm(x), expected, rtol=1e-5)


def test_dense_is_linear_norm_silu():
    layer = Dense(KEY, 3, 4)
    x = jax.random.normal(KEY, (2, 3))
    np.testing.assert_allclose(layer(x), jax.nn.silu(layer.norm(layer.linear(x))), rtol=1e-6)


def test_the_input_decides_the_precision():
    x = jnp.ones((2, 3), jnp.bfloat16)
    assert MLP(KEY, 3, 4, 2)(x).dtype == jnp.bfloat16
    assert MLP(KEY, 3, 4, 2)(x.astype(jnp.float32)).dtype == jnp.float32
