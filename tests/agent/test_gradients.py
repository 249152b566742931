"""Gradients: of each loss against finite differences, and which networks they reach."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamfleet.agent.dreamer.learning import initial_carry, make_learning, split_context
from dreamfleet.agent.dreamer.losses import actor_loss, critic_loss, latent_losses
from dreamfleet.agent.dreamer.model import Model
from dreamfleet.agent.dreamer.networks.distributions import Bernoulli, BoundedNormal, Categorical, TwoHot, symlog_error
from dreamfleet.agent.dreamer.networks.rssm import LatentState
from dreamfleet.agent.dreamer.objective import objective
from tests.agent.batches import ACT_SPACE, OBS_SPACE, QUICK, make_batch, make_config, random_module

KEY = jax.random.key(0)
NAMES = ("dyn", "rep", "vector", "token", "reward", "cont", "policy", "value", "replay_value")
WORLD = ("encoder", "rssm", "decoder", "reward", "cont")


def normal(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def make_model(config, **options):
    return random_module(lambda: Model(KEY, OBS_SPACE, ACT_SPACE, config, tuning=QUICK), **options)


TARGET = 3 * normal(4, seed=1)
CLASSES = jnp.array([0, 2, 1, 2])
LOSSES = {
    "dyn": (lambda x: latent_losses(Categorical(5 * normal(4, 2, 3), 1), Categorical(x, 1), 0.0)[0]["dyn"], (4, 2, 3)),
    "rep": (lambda x: latent_losses(Categorical(x, 1), Categorical(5 * normal(4, 2, 3), 1), 0.0)[0]["rep"], (4, 2, 3)),
    "unimix": (lambda x: Categorical(x, 0, 0.1).kl(Categorical(2 * normal(4, 3))), (4, 3)),
    "reward": (lambda x: TwoHot(x).loss(TARGET), (4, 21)),
    "value": (lambda x: critic_loss(TwoHot(x), TARGET, 0.5 * TARGET, jnp.abs(TARGET), 1.0), (4, 21)),
    "cont": (lambda x: Bernoulli(x).loss(jax.nn.sigmoid(TARGET)), (4,)),
    "vector": (lambda x: symlog_error(x, 10 * normal(4, 3), 1), (4, 3)),
    "token": (lambda x: Categorical(x).loss(CLASSES), (4, 3)),
    "policy of classes": (
        lambda x: actor_loss(Categorical(x).log_prob(CLASSES), Categorical(x).entropy(), TARGET, jnp.ones(4), 0.1),
        (4, 3),
    ),
    "policy of numbers": (
        lambda x: actor_loss(
            BoundedNormal(x[0], x[1], 1).log_prob(normal(4, 2)),
            BoundedNormal(x[0], x[1], 1).entropy(),
            TARGET,
            jnp.ones(4),
            0.1,
        ),
        (2, 4, 2),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_finite_differences(name):
    fn, shape = LOSSES[name]
    loss = jax.jit(lambda x: fn(x).sum())
    x, direction, step = normal(*shape, seed=2), normal(*shape, seed=3), 1e-2
    expected = (loss(x + step * direction) - loss(x - step * direction)) / (2 * step)
    ours = (jax.grad(loss)(x) * direction).sum()
    np.testing.assert_allclose(ours, expected, rtol=2e-2, atol=1e-3)


def test_gradients_of_the_networks_are_finite_differences():
    """Encoder, recurrence and decoder together, without the sampling that has no derivative."""
    config = make_config().dreamer
    model, direction = make_model(config), make_model(config, scale=0.1, seed=1)
    batch = {key: value[:, 0] for key, value in make_batch(OBS_SPACE, ACT_SPACE, make_config()).items()}
    stoch = model.rssm.initial((4,)).stoch

    def loss(model):
        tokens = model.encoder(batch)
        hidden = jnp.concatenate([model.rssm.deter_in(tokens @ jnp.ones((16, 32))), tokens, tokens], -1)
        deter = model.rssm.core(jnp.ones((4, 32)), hidden)
        losses = model.decoder.losses(LatentState(deter, stoch), batch)
        return losses["vector"].sum() + losses["token"].sum()

    @jax.jit
    def compare(model, direction):
        ends = [loss(jax.tree.map(lambda x, d, s=sign: x + s * 1e-2 * d, model, direction)) for sign in (1.0, -1.0)]
        products = jax.tree.map(lambda g, d: (g * d).sum(), jax.grad(loss)(model), direction)
        return sum(jax.tree.leaves(products)), (ends[0] - ends[1]) / 2e-2

    ours, expected = compare(model, direction)
    np.testing.assert_allclose(ours, expected, rtol=2e-2)


@pytest.fixture(scope="module")
def gradient_norms():
    """For an option: the norm of the gradient of each loss in each network."""

    def compute(**options):
        config = make_config(**{f"dreamer__{key}": value for key, value in options.items()})
        batch = make_batch(OBS_SPACE, ACT_SPACE, config)
        model = make_model(config.dreamer)
        learning = random_module(lambda: make_learning(model, KEY, config.dreamer))

        @jax.jit
        def norms(model, weights):
            start, obs, actions = split_context(model, initial_carry(model, config.batch_size), batch, 1)

            def weighted(model):
                inputs = (learning.slow_critic, learning.norms, start, obs, actions, KEY)
                losses = objective(model, *inputs, config.dreamer)[1].losses
                return sum(weights[name] * losses[name] for name in NAMES)

            gradients = jax.grad(weighted)(model)
            parts = (*WORLD, "actor", "critic")
            return {part: sum(jnp.abs(x).sum() for x in jax.tree.leaves(getattr(gradients, part))) for part in parts}

        return {
            (name, part): float(norm)
            for name in NAMES
            for part, norm in norms(model, {other: float(other == name) for other in NAMES}).items()
        }

    return compute


def test_actor_and_critic_leave_the_world_model_alone(gradient_norms):
    norms = gradient_norms()
    for part in WORLD:
        assert norms["policy", part] == norms["value", part] == 0, part
    assert norms["policy", "actor"] > 0 and norms["policy", "critic"] == 0
    assert norms["value", "critic"] > 0 and norms["value", "actor"] == 0
    assert norms["replay_value", "rssm"] > 0 and norms["replay_value", "encoder"] > 0
    assert norms["replay_value", "critic"] > 0 and norms["replay_value", "actor"] == 0
    assert norms["reward", "rssm"] > 0
    for loss in ("dyn", "rep", "vector", "token", "reward", "cont"):
        assert norms[loss, "actor"] == norms[loss, "critic"] == 0, loss


def test_options_open_and_close_the_way_of_gradients(gradient_norms):
    norms = gradient_norms(ac_grads=True, reward_grad=False, replay_value_grad=False)
    assert norms["value", "rssm"] > 0 and norms["policy", "rssm"] > 0
    assert norms["reward", "rssm"] == 0 and norms["reward", "reward"] > 0
    assert norms["replay_value", "rssm"] == 0 and norms["replay_value", "critic"] > 0
