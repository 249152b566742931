"""The dense layers of the agent: linear, block-linear, normalised and stacked; every other module is made of them.

Parameters are float32 and are cast to the type of the input, which therefore decides the precision of the computation.
"""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

NORM_EPS = 1e-4
# A normal that is cut off at two standard deviations has a smaller one: this makes up for it.
TRUNCATION_CORRECTION = 1.1368


def init_kernel(key: jax.Array, shape: Sequence[int], scale: float = 1.0) -> jax.Array:
    """Truncated normal with variance scale^2 / fan_in, where all dimensions but the last two count as spatial."""
    fan_in = math.prod(shape[:-1])
    std = scale * TRUNCATION_CORRECTION / math.sqrt(fan_in)
    return std * jax.random.truncated_normal(key, -2.0, 2.0, tuple(shape))


class Product(eqx.Module):
    """y = x W, a linear layer without its bias."""

    kernel: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.kernel.astype(x.dtype)


class Linear(eqx.Module):
    """y = x W + b, with W of shape (in, out)."""

    kernel: jax.Array
    bias: jax.Array

    def __init__(self, key: jax.Array, inputs: int, outputs: int, scale: float = 1.0):
        self.kernel = init_kernel(key, (inputs, outputs), scale)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.add_bias(x @ self.kernel.astype(x.dtype))

    def add_bias(self, x: jax.Array) -> jax.Array:
        """What follows the product, for callers that compute that one together with others."""
        return x + self.bias.astype(x.dtype)

    def split(self, inputs: int) -> tuple[Product, "Linear"]:
        """Two layers that add up to this one: for the first `inputs` inputs, and for the rest."""
        rest = eqx.tree_at(lambda layer: layer.kernel, self, self.kernel[inputs:])
        return Product(self.kernel[:inputs]), rest


class BlockLinear(eqx.Module):
    """A linear layer in which each of `blocks` equal parts of the output sees only its part of the input.

    Takes and returns the block first: (blocks, N, in / blocks) to (blocks, N, out / blocks).
    """

    kernel: jax.Array  # (blocks, in / blocks, out / blocks)
    bias: jax.Array  # (out,)

    def __init__(self, key: jax.Array, blocks: int, inputs: int, outputs: int):
        self.kernel = init_kernel(key, (blocks, inputs // blocks, outputs // blocks))
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        blocks = len(self.kernel)
        y = jax.lax.dot_general(x, self.kernel.astype(x.dtype), (((2,), (1,)), ((0,), (0,))))
        return y + self.bias.reshape(blocks, 1, -1).astype(x.dtype)


class RMSNorm(eqx.Module):
    """Divides by the root mean square over the last axis, computed in float32, and applies a learned scale."""

    scale: jax.Array

    def __init__(self, size: int):
        self.scale = jnp.ones(size)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self._normalise(x, -1, self.scale)

    def blocks(self, x: jax.Array) -> jax.Array:
        """The same for (blocks, N, size / blocks), over all blocks together."""
        return self._normalise(x, (0, 2), self.scale.reshape(len(x), 1, -1))

    @staticmethod
    def _normalise(x: jax.Array, axis: int | tuple[int, ...], scale: jax.Array) -> jax.Array:
        x32 = x.astype(jnp.float32)
        mean_square = jnp.mean(jnp.square(x32), axis, keepdims=True)
        return (x32 * jax.lax.rsqrt(mean_square + NORM_EPS) * scale).astype(x.dtype)


class Dense(eqx.Module):
    """Linear, norm and SiLU."""

    linear: Linear
    norm: RMSNorm

    def __init__(self, key: jax.Array, inputs: int, units: int):
        self.linear = Linear(key, inputs, units)
        self.norm = RMSNorm(units)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.finish(x @ self.linear.kernel.astype(x.dtype))

    def finish(self, x: jax.Array) -> jax.Array:
        """What follows the product, for callers that compute that one together with others."""
        return jax.nn.silu(self.norm(self.linear.add_bias(x)))


class MLP(eqx.Module):
    """A stack of dense layers of the same width."""

    layers: list[Dense]

    def __init__(self, key: jax.Array, inputs: int, units: int, layers: int):
        keys = jax.random.split(key, layers)
        self.layers = [Dense(keys[i], inputs if i == 0 else units, units) for i in range(layers)]

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = layer(x)
        return x
