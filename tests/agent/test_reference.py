"""Every array of the recording, computed by our modules from the recorded inputs and weights."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamfleet.agent.dreamer.imagination import imagine
from dreamfleet.agent.dreamer.losses import latent_losses, replay_returns
from dreamfleet.agent.dreamer.networks.distributions import TwoHot
from dreamfleet.agent.dreamer.networks.rssm import LatentState
from dreamfleet.agent.dreamer.networks.transforms import symexp, symexp_bins, symlog
from dreamfleet.agent.dreamer.objective import actor_critic_losses, make_norms, replay_value_loss, world_losses
from dreamfleet.agent.dreamer.optimiser import make_optimiser
from dreamfleet.agent.dreamer.spaces import flatten
from dreamfleet.agent.dreamer.tuning import SHIPPED
from tests.agent.reference import INPUTS, TOLERANCE, Reference


@pytest.fixture(scope="module")
def reference():
    return Reference()


@pytest.fixture(scope="module")
def check(reference):
    return reference.compare


def observe(reference):
    """Our states and posterior logits for the recorded sequence, with the recorded samples."""
    model, obs = reference.model, reference.under("obs/")
    start = LatentState(reference["carry/deter"], _flat(reference["carry/stoch"]))
    tokens = model.encoder(obs)
    actions = flatten(reference.under("prevact/"), model.actor.fields, squash=False)
    noise = _noise_for(reference["wm/post_logit"], reference["wm/stoch"], model.rssm.unimix)
    states, logits = model.rssm.observe(start, tokens, actions, obs["is_first"], noise)
    return tokens, states, logits


def test_world_model(reference, check):
    tokens, states, logits = observe(reference)
    rssm = reference.model.rssm
    shape = reference["wm/stoch"].shape
    prior = rssm.prior_of(states.deter)
    check("wm/tokens", tokens)
    check("wm/deter", states.deter)
    check("wm/stoch", states.stoch.reshape(shape))
    check("wm/post_logit", logits.reshape(shape))
    check("wm/prior_logit", prior.reshape(shape))
    check("wm/kl", rssm.latent(logits).kl(rssm.latent(prior)))
    losses, _ = latent_losses(rssm.latent(logits), rssm.latent(prior), 1.0)
    for name in ("dyn", "rep"):
        np.testing.assert_allclose(losses[name], np.maximum(1.0, reference["wm/kl"]), rtol=TOLERANCE)


def test_heads(reference, check):
    model, obs = reference.model, reference.under("obs/")
    features = jnp.concatenate([reference["wm/deter"], _flat(reference["wm/stoch"])], -1)
    check("heads/feat", features)
    reward, value, cont = model.reward(features), model.critic(features), model.cont(features)
    check("heads/rew_logits", reward.logits)
    check("heads/rew_pred", reward.mean())
    check("heads/loss_rew", reward.loss(obs["reward"]))
    check("heads/val_logits", value.logits)
    check("heads/val_pred", value.mean())
    check("heads/con_prob", cont.prob)
    is_contdisc, horizon = reference.config.contdisc, reference.config.horizon
    target = (1.0 - obs["is_terminal"]) * (1.0 - 1.0 / horizon if is_contdisc else 1.0)
    check("heads/loss_con", cont.loss(target))
    policy = model.actor(features)
    for field in model.actor.fields:
        check(f"heads/ent_{field.key}", policy[field.key].entropy())
        if field.is_classes:
            recorded = reference[f"heads/pol_{field.key}_logits"]
            check_logits(check, f"heads/pol_{field.key}_logits", policy[field.key].logits, recorded)
        else:
            check(f"heads/pol_{field.key}_mean", policy[field.key].center)
            check(f"heads/pol_{field.key}_std", policy[field.key].std)


def test_decoder(reference, check):
    model, obs = reference.model, reference.under("obs/")
    state = LatentState(reference["wm/deter"], _flat(reference["wm/stoch"]))
    losses, predictions = model.decoder.losses(state, obs), model.decoder.predict(state)
    for field in model.decoder.vector_fields + model.decoder.image_fields:
        check(f"heads/loss_{field.key}", losses[field.key])
        if field.is_image:
            check(f"heads/rec_{field.key}", predictions[field.key])
        elif not field.is_classes:
            check(f"heads/rec_{field.key}", symlog(predictions[field.key]))


def test_losses_of_the_objective_are_those_of_the_heads(reference):
    """The sum that is trained on is made of the parts that are checked above."""
    obs = reference.under("obs/")
    start = LatentState(reference["carry/deter"], _flat(reference["carry/stoch"]))
    actions, key = reference.under("prevact/"), jax.random.key(0)
    states, losses, _ = world_losses(reference.model, start, obs, actions, key, reference.config)
    np.testing.assert_allclose(losses["reward"], reference.model.reward(states.features).loss(obs["reward"]), rtol=1e-5)
    assert losses.keys() == {"dyn", "rep", "reward", "cont", "image", "vector", "token"}


def test_imagination(reference, check):
    model = reference.model
    start = LatentState(*(_rows(x) for x in (reference["wm/deter"], _flat(reference["wm/stoch"]))))
    stoch = reference["imag/stoch"]
    after = LatentState(reference["imag/deter"], _flat(stoch))
    before = jax.tree.map(lambda first, rest: jnp.concatenate([first[:, None], rest[:, :-1]], 1), start, after)
    actions = reference.under("imag/act/")
    policy = model.actor(before.features)
    action_noise = {}
    for field in model.actor.fields:
        dist, action = policy[field.key], actions[field.key]
        if field.is_classes:
            action_noise[field.key] = _noise_for(dist.logits, jax.nn.one_hot(action, field.classes), 0.0)
        else:
            action_noise[field.key] = (action - dist.center) / dist.std
    latent_noise = _noise_for(reference["imag/logit"], stoch, model.rssm.unimix)
    noise = jax.tree.map(lambda x: x.swapaxes(0, 1), (latent_noise, action_noise))
    features, sampled, last = imagine(model.rssm, model.actor, start, noise)
    features = jnp.concatenate([features[1:], last.features[None]]).swapaxes(0, 1)
    sampled = {key: value.swapaxes(0, 1) for key, value in sampled.items()}
    deter = features[..., : model.rssm.deter]
    check("imag/deter", deter)
    check("imag/stoch", features[..., model.rssm.deter :].reshape(stoch.shape))
    check("imag/logit", model.rssm.prior_of(deter).reshape(stoch.shape))
    for key, action in actions.items():
        check(f"imag/act/{key}", sampled[key])
        np.testing.assert_allclose(sampled[key], action, rtol=TOLERANCE, atol=1e-5)


def test_actor_and_critic(reference, check):
    model, obs, config = reference.model, reference.under("obs/"), reference.config
    deter, stoch = reference["ac/feat/deter"], _flat(reference["ac/feat/stoch"])
    imagined = jnp.concatenate([deter, stoch], -1).swapaxes(0, 1)
    actions = {key: value.swapaxes(0, 1)[:-1] for key, value in reference.under("ac/act/").items()}
    losses, returns, norms, _ = actor_critic_losses(
        model, reference.slow_critic, make_norms(config), imagined[:-1], imagined[-1], actions, config
    )
    cont = model.cont(imagined).prob
    discount = 1.0 if config.contdisc else 1.0 - 1.0 / config.horizon
    check("ac/weight", (jnp.cumprod(discount * cont, 0) / discount).T)
    check("ac/ret", returns.T)
    check("ac/retnorm_lo", norms.returns.low)
    check("ac/retnorm_scale", norms.returns.scale)
    check("param/retnorm/lo/value", make_norms(config).returns.low)
    check("param/retnorm/hi/value", make_norms(config).returns.high)
    check("ac/loss_policy", losses["policy"].T)
    check("ac/loss_value", losses["value"].T)
    boot = returns[0].reshape(obs["reward"].shape)
    replayed = replay_returns(
        *(x.T for x in (obs["reward"], obs["is_last"], obs["is_terminal"], boot)),
        discount=1.0 - 1.0 / config.horizon,
        trace=config.trace,
    )
    check("ac/repl_ret", replayed.T)
    states = LatentState(reference["wm/deter"], _flat(reference["wm/stoch"]))
    loss = replay_value_loss(model, reference.slow_critic, norms.values, states, obs, boot, config)
    check("ac/loss_repval", loss)


def test_symlog_and_two_hot(reference, check):
    x = reference["fn/symlog/x"]
    check("fn/symlog/symlog", symlog(x))
    check("fn/symlog/symexp_of_x_over_100", symexp(x / 100))
    for prefix in sorted({key.rsplit("/", 1)[0] for key in reference.arrays if key.startswith("fn/twohot")}):
        head = TwoHot(reference[f"{prefix}/logits"])
        check(f"{prefix}/bins", symexp_bins(len(reference[f"{prefix}/bins"])))
        check(f"{prefix}/loss", head.loss(reference[f"{prefix}/target"]))
        check(f"{prefix}/pred", head.mean())


def test_optimiser(reference, check):
    optimiser = make_optimiser(1e-2, 3, clip=0.3, beta1=0.9, beta2=0.999, eps=1e-20)
    params = reference.under("opt/param0/")
    state = optimiser.init(params)
    step = 0
    while gradients := reference.under(f"opt/grad{step}/"):
        updates, state = optimiser.update(gradients, state, params)
        params = {key: params[key] + updates[key] for key in params}
        step += 1
        for key, value in params.items():
            check(f"opt/param{step}/{key}", value)
    assert step == 6


PARTS = (
    *(test_world_model, test_heads, test_decoder, test_imagination),
    *(test_actor_and_critic, test_symlog_and_two_hot, test_optimiser),
)


def test_every_recorded_array_is_compared_or_an_input():
    """All comparisons once more on a recording of their own, with the loops unrolled as they are shipped."""
    reference = Reference(tuning=SHIPPED)
    for part in PARTS:
        part(reference, reference.compare)
    inputs = {key for key in reference.arrays if re.fullmatch(INPUTS, key)}
    assert reference.compared | inputs == set(reference.arrays) == set(reference.meta["keys"])


def check_logits(check, key, ours, recorded):
    """Logits are the same up to a constant: ours are normalised."""
    check(key, ours + (recorded - ours).mean(-1, keepdims=True))


def _flat(stoch):
    return stoch.reshape(*stoch.shape[:-2], -1)


def _rows(x):
    return x.reshape(-1, x.shape[-1])


def _noise_for(logits, onehot, unimix):
    """Uniform noise that makes a categorical draw the given classes: the middle of each one's part of [0, 1)."""
    probs = (1.0 - unimix) * jax.nn.softmax(logits) + unimix / logits.shape[-1]
    ends = jnp.cumsum(probs, -1)
    return ((ends - probs / 2) * onehot).sum(-1)
