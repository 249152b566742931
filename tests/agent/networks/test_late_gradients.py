"""The scan with late gradients gives what a plain scan gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamfleet.agent.dreamer.networks.late_gradients import scan_late
from dreamfleet.agent.dreamer.networks.layers import BlockLinear, Linear, RMSNorm


@pytest.mark.parametrize("unroll", [1, 3])
def test_values_and_gradients_are_those_of_a_plain_scan(unroll):
    keys = jax.random.split(jax.random.key(0), 5)
    layers = {"in": Linear(keys[0], 6, 4), "block": BlockLinear(keys[1], 2, 4, 4)}
    norm, carry = RMSNorm(4), jax.random.normal(keys[2], (3, 4))
    xs = jax.random.normal(keys[3], (7, 3, 2))

    def body(apply, norm, carry, x):
        y = jnp.tanh(norm(apply("in", jnp.concatenate([carry, x], -1))))
        blocks = apply("block", y.reshape(3, 2, 2).swapaxes(0, 1)).swapaxes(0, 1).reshape(3, 4)
        return blocks, jnp.sin(blocks)

    def plain(layers, norm, carry, xs):
        return jax.lax.scan(lambda carry, x: body(lambda name, x: layers[name](x), norm, carry, x), carry, xs)

    def late(layers, norm, carry, xs):
        return scan_late(body, layers, norm, carry, xs, unroll)

    def evaluate(scan):
        weights = jax.random.normal(keys[4], (7, 3, 4))

        def loss(*args):
            last, ys = scan(*args)
            return (weights * ys).sum() + jnp.square(last).sum()

        return jax.value_and_grad(loss, (0, 1, 2, 3))(layers, norm, carry, xs)

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), evaluate(late), evaluate(plain))
