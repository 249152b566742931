"""The one optimiser of all parameters: clipped by their own norm, scaled by RMS, with momentum, warm-up and decay."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

DECAYED = 0.1  # share of the step size that is left in the end


def make_optimiser(
    learning_rate: float, warmup: int, clip: float, beta1: float, beta2: float, eps: float, decay: int = 0
) -> Any:
    """Adaptive gradient clipping, RMS scaling, momentum (both bias-corrected), and a step size by `make_schedule`."""
    return optax.chain(
        clip_by_parameter_norm(clip),
        optax.scale_by_rms(beta2, eps, eps_in_sqrt=False, bias_correction=True),
        optax.ema(beta1, debias=True),
        optax.scale_by_learning_rate(make_schedule(learning_rate, warmup, decay)),
    )


def make_schedule(learning_rate: float, warmup: int, decay: int) -> optax.Schedule:
    """rate min(1, n / warmup) max(0.1, 1 - 0.9 n / decay) for update n, counted from 0; a length of 0 has no effect."""

    def rate(count: jax.typing.ArrayLike) -> jax.Array:
        count = jnp.asarray(count)
        rise = jnp.minimum(1.0, count / warmup) if warmup else 1.0
        fall = jnp.maximum(DECAYED, 1.0 - (1.0 - DECAYED) * count / decay) if decay else 1.0
        return jnp.asarray(learning_rate * rise * fall)

    return rate


def clip_by_parameter_norm(clip: float, floor: float = 1e-3) -> optax.GradientTransformation:
    """Shrinks the gradient of each tensor to a norm of at most clip * max(floor, norm of the tensor)."""

    def shrink(gradient: jax.Array, parameter: jax.Array) -> jax.Array:
        norm = jnp.linalg.norm(gradient.ravel())
        limit = clip * jnp.maximum(floor, jnp.linalg.norm(parameter.ravel()))
        return gradient / jnp.maximum(1.0, norm / limit)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return jax.tree.map(shrink, updates, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
