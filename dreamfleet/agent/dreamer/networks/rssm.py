"""The sequence model: a recurrent state `deter`, and categoricals `stoch` that it predicts and tokens correct."""

import equinox as eqx
import jax
import jax.numpy as jnp

from dreamfleet.agent.dreamer.networks.distributions import Categorical
from dreamfleet.agent.dreamer.networks.late_gradients import scan_late
from dreamfleet.agent.dreamer.networks.layers import BlockLinear, Dense, Linear, RMSNorm
from dreamfleet.agent.dreamer.tuning import SHIPPED, Tuning

LOOP_ROWS = 128  # from this many rows on, a product for each block is faster on CPU than a batched one


class LatentState(eqx.Module):
    """The state of a sequence: `deter` (..., D) and `stoch`, flat one-hot vectors (..., S * C)."""

    deter: jax.Array
    stoch: jax.Array

    @property
    def features(self) -> jax.Array:
        """What every head sees."""
        return jnp.concatenate([self.deter, self.stoch.astype(self.deter.dtype)], -1)


class RSSM(eqx.Module):
    """Recurrent state-space model with block-diagonal recurrence."""

    deter_in: Dense
    stoch_in: Dense
    action_in: Dense
    hidden: list[BlockLinear]
    hidden_norms: list[RMSNorm]
    gates: BlockLinear
    posterior: list[Dense]
    posterior_logits: Linear
    prior: list[Dense]
    prior_logits: Linear
    deter: int = eqx.field(static=True)
    stoch: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    blocks: int = eqx.field(static=True)
    unimix: float = eqx.field(static=True)
    dtype: str = eqx.field(static=True)
    tuning: Tuning = eqx.field(static=True)

    def __init__(
        self,
        key: jax.Array,
        tokens: int,
        actions: int,
        *,
        deter: int,
        hidden: int,
        stoch: int,
        classes: int,
        blocks: int,
        dynamics_layers: int,
        posterior_layers: int,
        prior_layers: int,
        unimix: float,
        dtype: str,
        tuning: Tuning = SHIPPED,
    ):
        keys = iter(jax.random.split(key, 6 + dynamics_layers + posterior_layers + prior_layers))
        flat = stoch * classes
        self.deter_in = Dense(next(keys), deter, hidden)
        self.stoch_in = Dense(next(keys), flat, hidden)
        self.action_in = Dense(next(keys), actions, hidden)
        widths = [deter + blocks * 3 * hidden] + [deter] * (dynamics_layers - 1)
        self.hidden = [BlockLinear(next(keys), blocks, width, deter) for width in widths]
        self.hidden_norms = [RMSNorm(deter) for _ in widths]
        self.gates = BlockLinear(next(keys), blocks, deter, 3 * deter)
        widths = [deter + tokens] + [hidden] * (posterior_layers - 1)
        self.posterior = [Dense(next(keys), width, hidden) for width in widths]
        self.posterior_logits = Linear(next(keys), hidden, flat)
        widths = [deter] + [hidden] * (prior_layers - 1)
        self.prior = [Dense(next(keys), width, hidden) for width in widths]
        self.prior_logits = Linear(next(keys), hidden, flat)
        self.deter, self.stoch, self.classes, self.blocks = deter, stoch, classes, blocks
        self.unimix, self.dtype, self.tuning = unimix, dtype, tuning

    def initial(self, batch: tuple[int, ...]) -> LatentState:
        zeros = jnp.zeros((*batch, self.deter), self.dtype)
        return LatentState(zeros, jnp.zeros((*batch, self.stoch * self.classes), self.dtype))

    def latent(self, logits: jax.Array) -> Categorical:
        """The categoricals of flat logits."""
        return Categorical(logits.reshape(*logits.shape[:-1], self.stoch, self.classes), 1, self.unimix)

    def draw(self, logits: jax.Array, noise: jax.Array) -> jax.Array:
        """Flat one-hot vectors, sampled with uniform noise (..., S), that pass gradients to the logits."""
        latent = self.latent(logits)
        stoch = latent.straight_through(latent.sample(noise))
        return stoch.reshape(logits.shape).astype(self.dtype)

    def embed_actions(self, actions: jax.Array) -> jax.Array:
        """The hidden part of flat actions, which are shrunk to at most one in size."""
        actions = actions / jax.lax.stop_gradient(jnp.maximum(1.0, jnp.abs(actions)))
        return self.action_in(actions.astype(self.dtype))

    def prior_of(self, deter: jax.Array) -> jax.Array:
        """Flat logits of what `stoch` is expected to be."""
        for layer in self.prior:
            deter = layer(deter)
        return self.prior_logits(deter)

    def observe(
        self, state: LatentState, tokens: jax.Array, actions: jax.Array, is_first: jax.Array, noise: jax.Array
    ) -> tuple[LatentState, jax.Array]:
        """States (B, T, ...) and posterior logits (B, T, S * C) of a sequence.

        `actions` are the flat previous ones; at `is_first` they and the state before are zeroed. `noise` is uniform
        (B, T, S). What does not depend on the recurrent state is computed for all steps at once.
        """
        keep = 1.0 - is_first[..., None].astype(self.dtype)
        action_hidden = self.embed_actions(actions * keep.astype(actions.dtype))
        from_deter, from_tokens = self.posterior[0].linear.split(self.deter)
        token_hidden = from_tokens(tokens)
        layers = {
            "deter_in": self.deter_in.linear,
            "stoch_in": self.stoch_in.linear,
            "gates": self.gates,
            "posterior0": from_deter,
            "logits": self.posterior_logits,
            **{f"hidden{i}": layer for i, layer in enumerate(self.hidden)},
            **{f"posterior{i}": layer.linear for i, layer in enumerate(self.posterior) if i},
        }
        norms = (self.deter_in.norm, self.stoch_in.norm, self.hidden_norms, [layer.norm for layer in self.posterior])

        def step(apply, norms, carry, inputs):
            deter_norm, stoch_norm, hidden_norms, posterior_norms = norms
            keep, action_hidden, token_hidden, noise = inputs
            deter, stoch = carry.deter * keep, carry.stoch * keep
            hidden = [
                jax.nn.silu(deter_norm(apply("deter_in", deter))),
                jax.nn.silu(stoch_norm(apply("stoch_in", stoch))),
                action_hidden,
            ]
            deter = self._core_batched(apply, hidden_norms, deter, jnp.concatenate(hidden, -1))
            x = apply("posterior0", deter) + token_hidden
            for i, norm in enumerate(posterior_norms):
                x = jax.nn.silu(norm(apply(f"posterior{i}", x) if i else x))
            logits = apply("logits", x)
            state = LatentState(deter, self.draw(logits, noise))
            return state, (state, logits)

        inputs = jax.tree.map(lambda x: x.swapaxes(0, 1), (keep, action_hidden, token_hidden, noise))
        _, outputs = scan_late(step, layers, norms, state, inputs, min(self.tuning.observe_unroll, is_first.shape[1]))
        return jax.tree.map(lambda x: x.swapaxes(0, 1), outputs)

    def predict(self, state: LatentState, actions: jax.Array, noise: jax.Array) -> LatentState:
        """The states (B, T, ...) that are expected to follow, given only the flat actions (B, T, A)."""

        def step(state, inputs):
            action_hidden, noise = inputs
            hidden = [self.deter_in(state.deter), self.stoch_in(state.stoch), action_hidden]
            deter = self.core(state.deter, jnp.concatenate(hidden, -1))
            state = LatentState(deter, self.draw(self.prior_of(deter), noise))
            return state, state

        inputs = jax.tree.map(lambda x: x.swapaxes(0, 1), (self.embed_actions(actions), noise))
        _, states = jax.lax.scan(step, state, inputs)
        return jax.tree.map(lambda x: x.swapaxes(0, 1), states)

    def core(self, deter: jax.Array, hidden: jax.Array) -> jax.Array:
        """The next `deter` (N, D) from the one before and the hidden parts (N, 3 h) of deter, stoch and action."""
        if jax.default_backend() == "cpu" and len(deter) >= LOOP_ROWS:
            return self._core_looped(deter, hidden)
        layers = {"gates": self.gates, **{f"hidden{i}": layer for i, layer in enumerate(self.hidden)}}
        return self._core_batched(lambda name, x: layers[name](x), self.hidden_norms, deter, hidden)

    def _core_batched(self, apply, norms: list[RMSNorm], deter: jax.Array, hidden: jax.Array) -> jax.Array:
        """All blocks in one batched product, with the block as first axis."""
        rows = deter.shape[0]
        deter = deter.reshape(rows, self.blocks, -1).swapaxes(0, 1)
        x = jnp.concatenate([deter, jnp.broadcast_to(hidden, (self.blocks, *hidden.shape))], -1)
        for i, norm in enumerate(norms):
            x = jax.nn.silu(norm.blocks(apply(f"hidden{i}", x)))
        deter = _gate(deter, apply("gates", x))
        return jax.lax.optimization_barrier(deter).swapaxes(0, 1).reshape(rows, -1)

    def _core_looped(self, deter: jax.Array, hidden: jax.Array) -> jax.Array:
        """One product for each block: its gates are then computed where its output lies."""
        parts = jnp.split(deter, self.blocks, -1)
        xs = [jnp.concatenate([part, hidden], -1) for part in parts]
        for layer, norm in zip(self.hidden, self.hidden_norms, strict=True):
            x = jax.nn.silu(norm(jnp.concatenate(_apply_blocks(layer, xs), -1)))
            xs = jnp.split(x, self.blocks, -1)
        gates = _apply_blocks(self.gates, xs)
        return jnp.concatenate([_gate(part, gate) for part, gate in zip(parts, gates, strict=True)], -1)


def _apply_blocks(layer: BlockLinear, xs: list[jax.Array]) -> list[jax.Array]:
    kernels, biases = layer.kernel.astype(xs[0].dtype), layer.bias.astype(xs[0].dtype)
    return [x @ kernel + bias for x, kernel, bias in zip(xs, kernels, jnp.split(biases, len(xs)), strict=True)]


def _gate(deter: jax.Array, gates: jax.Array) -> jax.Array:
    """A gated step: cand = tanh(sigmoid(reset) cand), u = sigmoid(update - 1), u cand + (1 - u) deter."""
    reset, candidate, update = jnp.split(gates, 3, -1)
    candidate = jnp.tanh(jax.nn.sigmoid(reset) * candidate)
    update = jax.nn.sigmoid(update - 1.0)
    return update * candidate + (1.0 - update) * deter
