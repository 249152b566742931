"""A scan whose layers get their weight gradients after the loop, from all steps at once.

The gradient of a weight that is used in every step is a sum over the steps. Autodiff adds it up inside the backward
loop, with products of a few rows each; here the loop only yields the gradient of each layer's output, and one large
product follows.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Tree = Any
Apply = Callable[[str, jax.Array], jax.Array]
Body = Callable[[Apply, Tree, Tree, Tree], tuple[Tree, Tree]]


def scan_late(body: Body, layers: dict[str, Callable], consts: Tree, carry: Tree, xs: Tree, unroll: int = 1) -> tuple:
    """`jax.lax.scan` of `body(apply, consts, carry, x) -> carry, y`, where `apply(name, x)` applies a layer.

    Every layer maps (..., rows, in) to (..., rows, out) and is applied once a step. Everything else that is
    differentiated must come in through `consts`, `carry` or `xs`.
    """

    @jax.custom_vjp
    def run(layers, consts, carry, xs):
        def step(carry, x):
            return body(lambda name, value: layers[name](value), consts, carry, x)

        return jax.lax.scan(step, carry, xs, unroll=unroll)

    def forward(layers, consts, carry, xs):
        def tapped(consts, carry, xs, taps):
            def step(carry, inputs):
                x, tap = inputs
                seen = {}

                def apply(name, value):
                    seen[name] = value
                    return layers[name](value) + tap[name]

                carry, y = body(apply, consts, carry, x)
                return carry, (y, seen)

            carry, (ys, seen) = jax.lax.scan(step, carry, (xs, taps), unroll=unroll)
            return (carry, ys), seen

        length = len(jax.tree.leaves(xs)[0])
        shapes = _output_shapes(body, layers, consts, carry, xs)
        taps = {name: jnp.zeros((length, *shape.shape), shape.dtype) for name, shape in shapes.items()}
        outputs, pull, seen = jax.vjp(tapped, consts, carry, xs, taps, has_aux=True)
        return outputs, (pull, layers, seen)

    def backward(residuals, gradient):
        pull, layers, seen = residuals
        d_consts, d_carry, d_xs, d_taps = pull(gradient)
        d_layers = {name: _weight_gradient(layers[name], seen[name], d_taps[name]) for name in layers}
        return d_layers, d_consts, d_carry, d_xs

    run.defvjp(forward, backward)
    return run(layers, consts, carry, xs)


def _output_shapes(body: Body, layers: dict[str, Callable], consts: Tree, carry: Tree, xs: Tree) -> dict:
    def outputs(consts, carry, xs):
        made = {}

        def apply(name, value):
            made[name] = layers[name](value)
            return made[name]

        body(apply, consts, carry, jax.tree.map(lambda x: x[0], xs))
        return made

    return jax.eval_shape(outputs, consts, carry, xs)


def _weight_gradient(layer: Callable, inputs: jax.Array, gradient: jax.Array) -> Tree:
    # (T, ..., rows, in) to (..., T * rows, in): the steps become more rows.
    def merge(x: jax.Array) -> jax.Array:
        x = jnp.moveaxis(x, 0, -3)
        return x.reshape(*x.shape[:-3], -1, x.shape[-1])

    _, pull = jax.vjp(lambda layer: layer(merge(inputs)), layer)
    return pull(merge(gradient))[0]
