"""What is predicted from the features of a state: reward, continuation, value and policy."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp

from dreamfleet.agent.dreamer.networks.distributions import Bernoulli, BoundedNormal, Categorical, TwoHot
from dreamfleet.agent.dreamer.networks.layers import MLP, Linear
from dreamfleet.agent.dreamer.spaces import Field

IMPOSSIBLE = -1e9  # logit of a class that an entry does not have

Policy = dict[str, Categorical | BoundedNormal]


class TwoHotHead(eqx.Module):
    """An MLP that predicts a number, zero at first."""

    mlp: MLP
    out: Linear

    def __init__(self, key: jax.Array, inputs: int, *, units: int, layers: int, bins: int):
        mlp_key, out_key = jax.random.split(key)
        self.mlp = MLP(mlp_key, inputs, units, layers)
        self.out = Linear(out_key, units, bins, scale=0.0)

    def __call__(self, features: jax.Array) -> TwoHot:
        return TwoHot(self.out(self.mlp(features)))


class ContinueHead(eqx.Module):
    """An MLP that predicts whether the episode goes on."""

    mlp: MLP
    out: Linear

    def __init__(self, key: jax.Array, inputs: int, *, units: int, layers: int):
        mlp_key, out_key = jax.random.split(key)
        self.mlp = MLP(mlp_key, inputs, units, layers)
        self.out = Linear(out_key, units, 1)

    def __call__(self, features: jax.Array) -> Bernoulli:
        return Bernoulli(self.out(self.mlp(features))[..., 0])


class ClassesOut(eqx.Module):
    """The output layer for a discrete field of any shape."""

    out: Linear
    field: Field = eqx.field(static=True)

    def __init__(self, key: jax.Array, units: int, field: Field, scale: float = 1.0):
        self.out = Linear(key, units, field.flat_size, scale)
        self.field = field

    def __call__(self, x: jax.Array) -> Categorical:
        logits = self.out(x).reshape(*x.shape[:-1], *self.field.shape, self.field.classes)
        if self.field.class_mask is not None:
            logits = jnp.where(self.field.class_mask, logits, IMPOSSIBLE)
        return Categorical(logits, len(self.field.shape))


class NumbersOut(eqx.Module):
    """The output layers for a continuous field: mean and spread of each number."""

    mean: Linear
    std: Linear
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, key: jax.Array, units: int, field: Field, scale: float):
        mean_key, std_key = jax.random.split(key)
        self.mean = Linear(mean_key, units, field.flat_size, scale)
        self.std = Linear(std_key, units, field.flat_size, scale)
        self.shape = field.shape

    def __call__(self, x: jax.Array) -> BoundedNormal:
        shape = (*x.shape[:-1], *self.shape)
        return BoundedNormal(self.mean(x).reshape(shape), self.std(x).reshape(shape), len(self.shape))


class PolicyHead(eqx.Module):
    """The policy: one distribution for every action."""

    mlp: MLP
    outputs: dict[str, ClassesOut | NumbersOut]
    fields: tuple[Field, ...] = eqx.field(static=True)

    def __init__(
        self, key: jax.Array, inputs: int, fields: tuple[Field, ...], *, units: int, layers: int, scale: float
    ):
        mlp_key, *keys = jax.random.split(key, 1 + len(fields))
        self.mlp = MLP(mlp_key, inputs, units, layers)
        self.outputs = {
            field.key: (ClassesOut if field.is_classes else NumbersOut)(k, units, field, scale)
            for k, field in zip(keys, fields, strict=True)
        }
        self.fields = fields

    def __call__(self, features: jax.Array) -> Policy:
        return self.policy_of(self.mlp(features))

    def policy_of(self, hidden: jax.Array) -> Policy:
        """The distributions from the output of the MLP."""
        return {field.key: self.outputs[field.key](hidden) for field in self.fields}

    def noise(self, key: jax.Array, batch: tuple[int, ...]) -> dict[str, jax.Array]:
        """Random numbers that `sample` turns into actions."""
        keys = jax.random.split(key, len(self.fields))
        return {
            field.key: (jax.random.uniform if field.is_classes else jax.random.normal)(k, (*batch, *field.shape))
            for k, field in zip(keys, self.fields, strict=True)
        }

    def sample(self, policy: Policy, noise: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Actions drawn from the policy, in the types of their spaces."""
        return {field.key: _value(field, policy[field.key].sample(noise[field.key])) for field in self.fields}

    def mode(self, policy: Policy) -> dict[str, jax.Array]:
        """The most likely actions."""
        return {field.key: _value(field, policy[field.key].mode()) for field in self.fields}

    def log_prob(self, policy: Policy, actions: Mapping[str, jax.Array]) -> jax.Array:
        """Logarithm of the probability of all actions together."""
        parts = []
        for field in self.fields:
            value = actions[field.key]
            parts.append(policy[field.key].log_prob(field.to_classes(value) if field.is_classes else value))
        return sum(parts[1:], parts[0])


def _value(field: Field, sample: jax.Array) -> jax.Array:
    return field.from_classes(sample) if field.is_classes else sample.astype(field.dtype)
