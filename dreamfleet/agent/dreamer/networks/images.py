"""The image layers: a 5x5 convolution with 2x2 max pooling, and 2x upsampling with a 5x5 convolution.

Both are computed as one 3x3 convolution at the lower resolution, which has larger matrices and, when upsampling, 9/25
of the multiplications. Each cell stands for its 2x2 pixels (space to depth):

    conv5(x)[2i + a] sees x[2i + a - 2 .. 2i + a + 2], which lie in cells i - 1, i, i + 1, for both a.

Images are (N, H, W, C); kernels are stored in the 5x5 form (height, width, in, out).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dreamfleet.agent.dreamer.networks.layers import init_kernel


class ConvPool(eqx.Module):
    """5x5 "same" convolution followed by 2x2 max pooling."""

    kernel: jax.Array
    bias: jax.Array

    def __init__(self, key: jax.Array, inputs: int, outputs: int):
        self.kernel, self.bias = _init_conv5(key, inputs, outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        inputs, outputs = self.kernel.shape[2:]
        # tap = 2 p + a - A, where p is the cell, a the pixel in it, A the pixel of the output cell.
        kernel = jnp.einsum("paAh,qbBw,hwio->pqabiABo", POOL_TAPS, POOL_TAPS, self.kernel)
        kernel = kernel.reshape(3, 3, 4 * inputs, 4 * outputs).astype(x.dtype)
        y = conv3(space_to_depth(x), kernel)
        y = y.reshape(*y.shape[:-1], 4, outputs).max(-2)
        return y + self.bias.astype(x.dtype)


class UpConv(eqx.Module):
    """2x nearest-neighbour upsampling followed by a 5x5 "same" convolution."""

    kernel: jax.Array
    bias: jax.Array

    def __init__(self, key: jax.Array, inputs: int, outputs: int):
        self.kernel, self.bias = _init_conv5(key, inputs, outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return depth_to_space(self.cells(x))

    def cells(self, x: jax.Array) -> jax.Array:
        """The output in space-to-depth form: (N, H, W, 4 * out) for an input of H x W."""
        inputs, outputs = self.kernel.shape[2:]
        # The upsampled pixel 2i + A + tap - 2 is a copy of cell i + floor((A + tap - 2) / 2).
        kernel = jnp.einsum("pAh,qBw,hwio->pqiABo", UP_TAPS, UP_TAPS, self.kernel)
        kernel = kernel.reshape(3, 3, inputs, 4 * outputs).astype(x.dtype)
        return conv3(x, kernel) + jnp.tile(self.bias, 4).astype(x.dtype)


def _init_conv5(key: jax.Array, inputs: int, outputs: int) -> tuple[jax.Array, jax.Array]:
    return init_kernel(key, (5, 5, inputs, outputs)), jnp.zeros(outputs)


def space_to_depth(x: jax.Array) -> jax.Array:
    """(N, H, W, C) to (N, H / 2, W / 2, 4 C), the pixels of a cell in row order."""
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).swapaxes(2, 3).reshape(n, h // 2, w // 2, 4 * c)


def depth_to_space(x: jax.Array) -> jax.Array:
    """The inverse of space_to_depth."""
    n, h, w, c = x.shape
    return x.reshape(n, h, w, 2, 2, c // 4).swapaxes(2, 3).reshape(n, 2 * h, 2 * w, c // 4)


def conv3(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """A 3x3 "same" convolution."""
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _pool_taps() -> np.ndarray:
    taps = np.zeros((3, 2, 2, 5), np.float32)  # cell, pixel, output pixel, tap
    for p, a, A in np.ndindex(3, 2, 2):
        if 0 <= 2 * p + a - A < 5:
            taps[p, a, A, 2 * p + a - A] = 1.0
    return taps


def _up_taps() -> np.ndarray:
    taps = np.zeros((3, 2, 5), np.float32)  # cell, output pixel, tap
    for A, h in np.ndindex(2, 5):
        taps[1 + (A + h - 2) // 2, A, h] = 1.0
    return taps


POOL_TAPS, UP_TAPS = _pool_taps(), _up_taps()
