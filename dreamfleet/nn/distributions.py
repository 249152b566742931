"""What the heads predict: each distribution has the methods of its use (`loss`, `mean`, `sample`, `log_prob`, ...).

All are computed in float32. Leading axes are batch axes; events are summed over.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dreamfleet.nn.transforms import symexp_bins, symlog


class Categorical(eqx.Module):
    """Classes of a discrete value of shape (..., *event); logits have the classes last.

    `event` is the number of event axes (without classes). `unimix` is the share of the uniform distribution mixed in.
    """

    logits: jax.Array  # normalised: logarithms of the probabilities
    probs: jax.Array
    event: int = eqx.field(static=True, default=0)

    def __init__(self, logits: jax.Array, event: int = 0, unimix: float = 0.0):
        logits = logits.astype(jnp.float32)
        self.probs = (1.0 - unimix) * jax.nn.softmax(logits) + unimix / logits.shape[-1]
        self.logits = jnp.log(self.probs) if unimix else jax.nn.log_softmax(logits)
        self.event = event

    def sample(self, noise: jax.Array) -> jax.Array:
        """Classes for uniform noise of the shape of the value: the one in whose part of [0, 1) it falls."""
        classes = self.logits.shape[-1]
        # A product with a triangle is the cumulative sum, in the one operation that every device does best.
        borders = self.probs @ jnp.triu(jnp.ones((classes, classes)))[:, :-1]
        return (noise[..., None] >= borders).sum(-1).astype(jnp.int32)

    def mode(self) -> jax.Array:
        return jnp.argmax(self.logits, -1)

    def straight_through(self, classes: jax.Array) -> jax.Array:
        """The classes as one-hot vectors that pass their gradient on to the probabilities."""
        onehot = jax.nn.one_hot(classes, self.logits.shape[-1])
        return onehot + self.probs - jax.lax.stop_gradient(self.probs)

    def log_prob(self, classes: jax.Array) -> jax.Array:
        return self._sum((jax.nn.one_hot(classes, self.logits.shape[-1]) * self.logits).sum(-1))

    def loss(self, classes: jax.Array) -> jax.Array:
        return -self.log_prob(classes)

    def entropy(self) -> jax.Array:
        return -self._sum((self.probs * self.logits).sum(-1))

    def kl(self, other: "Categorical") -> jax.Array:
        return self._sum((self.probs * (self.logits - other.logits)).sum(-1))

    def _sum(self, x: jax.Array) -> jax.Array:
        return x.sum(tuple(range(x.ndim - self.event, x.ndim)))


class BoundedNormal(eqx.Module):
    """Normal(tanh(mean), std) with std = (high - low) sigmoid(raw + 2) + low, independent in each event axis."""

    center: jax.Array
    std: jax.Array
    event: int = eqx.field(static=True, default=0)

    def __init__(self, mean: jax.Array, raw_std: jax.Array, event: int, low: float = 0.1, high: float = 1.0):
        self.center = jnp.tanh(mean.astype(jnp.float32))
        self.std = (high - low) * jax.nn.sigmoid(raw_std.astype(jnp.float32) + 2.0) + low
        self.event = event

    def sample(self, noise: jax.Array) -> jax.Array:
        """Values for standard normal noise."""
        return self.center + self.std * noise

    def mode(self) -> jax.Array:
        return self.center

    def log_prob(self, x: jax.Array) -> jax.Array:
        z = (x - self.center) / self.std
        return self._sum(-0.5 * jnp.square(z) - jnp.log(self.std) - 0.5 * np.log(2 * np.pi))

    def entropy(self) -> jax.Array:
        return self._sum(jnp.log(self.std) + 0.5 * np.log(2 * np.pi * np.e))

    def _sum(self, x: jax.Array) -> jax.Array:
        return x.sum(tuple(range(x.ndim - self.event, x.ndim)))


class Bernoulli(eqx.Module):
    """A yes or no; the target of the loss may be a probability."""

    logit: jax.Array

    def __init__(self, logit: jax.Array):
        self.logit = logit.astype(jnp.float32)

    @property
    def prob(self) -> jax.Array:
        return jax.nn.sigmoid(self.logit)

    def loss(self, target: jax.Array) -> jax.Array:
        return -(target * jax.nn.log_sigmoid(self.logit) + (1.0 - target) * jax.nn.log_sigmoid(-self.logit))


class TwoHot(eqx.Module):
    """A number as a distribution over bins; a target is split between its two nearest bins, linearly in raw space."""

    logits: jax.Array

    def __init__(self, logits: jax.Array):
        self.logits = logits.astype(jnp.float32)

    @property
    def bins(self) -> np.ndarray:
        return symexp_bins(self.logits.shape[-1])

    def mean(self) -> jax.Array:
        """The expected value, with the halves paired before they are summed: equal logits give exactly zero."""
        weighted = jax.nn.softmax(self.logits) * self.bins
        half = len(self.bins) // 2
        pairs = weighted[..., :half][..., ::-1] + weighted[..., -half:]
        middle = weighted[..., half : len(self.bins) - half].sum(-1)
        return middle + pairs.sum(-1)

    def loss(self, target: jax.Array) -> jax.Array:
        """Cross-entropy to the two-hot target: -sum(two_hot * log_softmax(logits))."""
        return -(two_hot(target, self.bins) * jax.nn.log_softmax(self.logits)).sum(-1)


def two_hot(target: jax.Array, bins: np.ndarray) -> jax.Array:
    """Weights over the bins: linear between the two nearest ones, which are hit exactly at their own values."""
    target = target.astype(jnp.float32)[..., None]
    below = jnp.clip((bins <= target).sum(-1) - 1, 0, len(bins) - 1)
    above = jnp.clip(len(bins) - (bins > target).sum(-1), 0, len(bins) - 1)
    table = jnp.asarray(bins)
    to_below = jnp.abs(table[below] - target[..., 0])
    to_above = jnp.abs(table[above] - target[..., 0])
    is_same = below == above
    to_below, to_above = jnp.where(is_same, 1.0, to_below), jnp.where(is_same, 1.0, to_above)
    total = to_below + to_above
    index = jnp.arange(len(bins))
    low = (index == below[..., None]) * (to_above / total)[..., None]
    high = (index == above[..., None]) * (to_below / total)[..., None]
    return low + high


def symlog_error(prediction: jax.Array, target: jax.Array, event: int) -> jax.Array:
    """Squared error in symlog space, where the prediction already is, summed over the event axes."""
    error = jnp.square(prediction.astype(jnp.float32) - symlog(target.astype(jnp.float32)))
    return error.sum(tuple(range(error.ndim - event, error.ndim)))
