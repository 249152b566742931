"""The one optimiser of all parameters: clipped by their own norm, scaled by RMS, with momentum and warm-up."""

from typing import Any

import jax
import jax.numpy as jnp
import optax


def make_optimiser(learning_rate: float, warmup: int, clip: float, beta1: float, beta2: float, eps: float) -> Any:
    """Adaptive gradient clipping, RMS scaling, momentum (both bias-corrected), linear warm-up from zero."""
    return optax.chain(
        clip_by_parameter_norm(clip),
        optax.scale_by_rms(beta2, eps, eps_in_sqrt=False, bias_correction=True),
        optax.ema(beta1, debias=True),
        optax.scale_by_learning_rate(optax.linear_schedule(0.0, learning_rate, warmup) if warmup else learning_rate),
    )


def clip_by_parameter_norm(clip: float, floor: float = 1e-3) -> optax.GradientTransformation:
    """Shrinks the gradient of each tensor to a norm of at most clip * max(floor, norm of the tensor)."""

    def shrink(gradient: jax.Array, parameter: jax.Array) -> jax.Array:
        norm = jnp.linalg.norm(gradient.ravel())
        limit = clip * jnp.maximum(floor, jnp.linalg.norm(parameter.ravel()))
        return gradient / jnp.maximum(1.0, norm / limit)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return jax.tree.map(shrink, updates, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
