"""All networks of the agent in one module, built from the spaces and the options `dreamer`."""

from collections.abc import Mapping

import elements
import equinox as eqx
import jax

from dreamfleet.agent.dreamer.networks.decoder import Decoder
from dreamfleet.agent.dreamer.networks.encoder import Encoder
from dreamfleet.agent.dreamer.networks.heads import ContinueHead, PolicyHead, TwoHotHead
from dreamfleet.agent.dreamer.networks.rssm import RSSM
from dreamfleet.agent.dreamer.sizes import model_sizes
from dreamfleet.agent.dreamer.spaces import action_fields
from dreamfleet.agent.dreamer.tuning import SHIPPED, Tuning
from dreamfleet.options.dreamer import DreamerOptions

ACTING = ("encoder", "rssm", "actor")  # what the policy needs


class Model(eqx.Module):
    """Everything that the optimiser trains."""

    encoder: Encoder
    rssm: RSSM
    decoder: Decoder
    reward: TwoHotHead
    cont: ContinueHead
    actor: PolicyHead
    critic: TwoHotHead

    def __init__(
        self,
        key: jax.Array,
        obs_space: Mapping[str, elements.Space],
        act_space: Mapping[str, elements.Space],
        options: DreamerOptions,
        dtype: str = "float32",
        tuning: Tuning = SHIPPED,
    ):
        keys = jax.random.split(key, 7)
        sizes = model_sizes(options)
        actions = action_fields(act_space)
        widths = {"depth": sizes.depth, "units": sizes.units}
        latents = sizes.stoch * sizes.classes
        self.encoder = Encoder(keys[0], obs_space, **widths, layers=options.encoder_layers, dtype=dtype)
        self.rssm = RSSM(
            keys[1],
            self.encoder.size,
            sum(field.flat_size for field in actions),
            deter=sizes.deter,
            hidden=sizes.hidden,
            stoch=sizes.stoch,
            classes=sizes.classes,
            blocks=sizes.blocks,
            dynamics_layers=options.dynamics_layers,
            posterior_layers=options.posterior_layers,
            prior_layers=options.prior_layers,
            unimix=options.unimix,
            dtype=dtype,
            tuning=tuning,
        )
        self.decoder = Decoder(
            keys[2],
            obs_space,
            deter=sizes.deter,
            stoch=latents,
            **widths,
            layers=options.decoder_layers,
            blocks=sizes.blocks,
        )
        features, units, bins = sizes.deter + latents, sizes.units, options.bins
        self.reward = TwoHotHead(keys[3], features, units=units, layers=options.reward_layers, bins=bins)
        self.cont = ContinueHead(keys[4], features, units=units, layers=options.cont_layers)
        self.actor = PolicyHead(
            keys[5], features, actions, units=units, layers=options.actor_layers, scale=options.actor_scale
        )
        self.critic = TwoHotHead(keys[6], features, units=units, layers=options.critic_layers, bins=bins)
