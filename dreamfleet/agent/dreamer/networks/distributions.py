"""What the heads predict: each distribution has the methods of its use (`loss`, `mean`, `sample`, `log_prob`, ...).

All are computed in float32. Leading axes are batch axes; events are summed over.
"""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dreamfleet.agent.dreamer.networks.transforms import symexp_bins, symlog


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

    def randomness(self) -> jax.Array:
        """The mean entropy of the event axes between that of a sure choice (0) and of an even one (1)."""
        values = math.prod(self.logits.shape[self.logits.ndim - 1 - self.event : -1])
        return self.entropy() / (values * math.log(max(2, self.logits.shape[-1])))  # there may be but one class

    def kl(self, other: "Categorical") -> jax.Array:
        return self._sum((self.probs * (self.logits - other.logits)).sum(-1))

    def _sum(self, x: jax.Array) -> jax.Array:
        return x.sum(tuple(range(x.ndim - self.event, x.ndim)))


class BoundedNormal(eqx.Module):
    """Normal(tanh(mean), std) with std = (high - low) sigmoid(raw + 2) + low, independent in each event axis."""

    center: jax.Array
    std: jax.Array
    event: int = eqx.field(static=True, default=0)
    bounds: tuple[float, float] = eqx.field(static=True, default=(0.1, 1.0))  # of std

    def __init__(self, mean: jax.Array, raw_std: jax.Array, event: int, low: float = 0.1, high: float = 1.0):
        self.center = jnp.tanh(mean.astype(jnp.float32))
        self.std = (high - low) * jax.nn.sigmoid(raw_std.astype(jnp.float32) + 2.0) + low
        self.event, self.bounds = event, (low, high)

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

    def randomness(self) -> jax.Array:
        """The mean entropy of the event axes between those of the smallest (0) and of the largest spread (1)."""
        low, high = self.bounds
        values = math.prod(self.std.shape[self.std.ndim - self.event :])
        return self._sum(jnp.log(self.std / low)) / (values * math.log(high / low))

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

    def loss(self, *targets: jax.Array) -> jax.Array:
        """Cross-entropy to the two-hot target, summed over the targets if there are several."""
        return _two_hot_loss(self.logits, targets)


def two_hot(target: jax.Array, bins: np.ndarray) -> jax.Array:
    """Weights over the bins: linear between the two nearest ones, all on the outermost beyond the range.

    The weight of a bin is a hat over its neighbours: min((t - left) / gap, (right - t) / gap), cut to [0, 1]. That
    needs neither search nor gather. Of two bins at the same place, the right one takes a target that is there.
    """
    gaps = np.diff(bins)
    # A gap of zero is a step, reached at its place; beyond the outermost bins there is no slope at all.
    slopes = np.where(gaps > 0, 1.0 / np.maximum(gaps, 1e-30), 1e30)
    rising = _float32(0.0, bins[:-1]), _float32(0.0, slopes), _float32(1.0, gaps == 0)
    falling = _float32(bins[1:], 0.0), _float32(slopes, 0.0), _float32(0.0 * gaps, 1.0)
    target = target.astype(jnp.float32)[..., None]
    from_left = (target - rising[0]) * rising[1] + rising[2]
    from_right = (falling[0] - target) * falling[1] + falling[2]
    return jnp.clip(jnp.minimum(from_left, from_right), 0.0, 1.0)


def _float32(*parts: np.ndarray | float) -> np.ndarray:
    return np.concatenate([np.atleast_1d(part) for part in parts]).astype(np.float32)


@jax.custom_vjp
def _two_hot_loss(logits: jax.Array, targets: tuple[jax.Array, ...]) -> jax.Array:
    """sum_i (logsumexp(logits) - sum(two_hot(target_i) * logits)), in one pass over the logits."""
    weights = _summed_weights(logits, targets)
    return len(targets) * jax.nn.logsumexp(logits, -1) - (weights * logits).sum(-1)


def _two_hot_forward(logits: jax.Array, targets: tuple[jax.Array, ...]) -> tuple:
    return _two_hot_loss(logits, targets), (logits, targets)


def _two_hot_backward(residuals: tuple, gradient: jax.Array) -> tuple:
    # Everything is computed again from the logits: cheaper than to keep arrays of their size.
    logits, targets = residuals
    error = len(targets) * jax.nn.softmax(logits) - _summed_weights(logits, targets)
    return gradient[..., None] * error, jax.tree.map(jnp.zeros_like, targets)


def _summed_weights(logits: jax.Array, targets: tuple[jax.Array, ...]) -> jax.Array:
    bins = symexp_bins(logits.shape[-1])
    return functools.reduce(jnp.add, [two_hot(target, bins) for target in targets])


_two_hot_loss.defvjp(_two_hot_forward, _two_hot_backward)


def symlog_error(prediction: jax.Array, target: jax.Array, event: int) -> jax.Array:
    """Squared error in symlog space, where the prediction already is, summed over the event axes."""
    error = jnp.square(prediction.astype(jnp.float32) - symlog(target.astype(jnp.float32)))
    return error.sum(tuple(range(error.ndim - event, error.ndim)))
