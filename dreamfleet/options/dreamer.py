"""The section `dreamer`: DreamerV3's networks, losses and optimiser, with the published defaults."""

from dataclasses import dataclass
from typing import Literal

from dreamfleet.options.fields import option, section

Size = Literal["debug", "tiny", "1m", "12m", "25m", "50m", "100m", "200m", "400m"]
Normaliser = Literal["none", "percentiles", "meanstd"]


@dataclass(frozen=True)
class LossScales:
    """The weight of each loss."""

    reconstruction: float = option(1.0, "scale of each reconstruction loss", at_least=0)
    reward: float = option(1.0, "scale of the reward loss", at_least=0)
    cont: float = option(1.0, "scale of the continue loss", at_least=0)
    dyn: float = option(1.0, "scale of the dynamics loss (KL that trains the prior)", at_least=0)
    rep: float = option(0.1, "scale of the representation loss (KL that trains the posterior)", at_least=0)
    policy: float = option(1.0, "scale of the policy loss", at_least=0)
    value: float = option(1.0, "scale of the critic loss on imagined trajectories", at_least=0)
    replay_value: float = option(0.3, "scale of the critic loss on replayed sequences", at_least=0)


@dataclass(frozen=True)
class DreamerOptions:
    """The agent's hyper-parameters."""

    size: Size = option("12m", "model size")
    deter: int = option(
        0,
        "size of the recurrent state (deter); 0 takes it, and those down to units, from size",
        at_least=0,
    )
    hidden: int = option(0, "units of the RSSM's hidden layers", at_least=0)
    stoch: int = option(0, "number of categorical latents", at_least=0)
    classes: int = option(0, "classes per latent", at_least=0, at_most=256)
    blocks: int = option(0, "blocks of the block-diagonal GRU", at_least=0)
    depth: int = option(0, "base channels of the CNNs", at_least=0)
    units: int = option(0, "units of all other MLP layers", at_least=0)
    encoder_layers: int = option(3, "layers of the encoder MLP", at_least=0)
    decoder_layers: int = option(3, "layers of the decoder MLP", at_least=0)
    dynamics_layers: int = option(1, "block layers before the GRU gates", at_least=0)
    posterior_layers: int = option(1, "layers of the posterior (representation model)", at_least=0)
    prior_layers: int = option(2, "layers of the prior (dynamics predictor)", at_least=0)
    reward_layers: int = option(1, "layers of the reward head", at_least=0)
    cont_layers: int = option(1, "layers of the continue head", at_least=0)
    actor_layers: int = option(3, "layers of the actor", at_least=0)
    critic_layers: int = option(3, "layers of the critic", at_least=0)
    bins: int = option(255, "bins of the two-hot reward and value distributions", at_least=0)
    unimix: float = option(0.01, "uniform mixture in the categorical latents", at_least=0, at_most=1)
    free_nats: float = option(1.0, "free nats (KL below this is not penalised)", at_least=0)
    actor_scale: float = option(0.01, "scale of the actor's initial output weights", at_least=0)
    imag_length: int = option(15, "imagination horizon in steps", at_least=0)
    imag_last: int = option(0, "imagine from the last N states of each sequence; 0 from all", at_least=0)
    horizon: int = option(333, "discount horizon: gamma = 1 - 1/horizon", at_least=1)
    contdisc: bool = option(True, "fold the discount into the continue head's targets")
    trace: float = option(0.95, "lambda of the lambda-returns, TD(lambda)", at_least=0, at_most=1)
    entropy_scale: float = option(0.0003, "entropy regularisation of the actor", at_least=0)
    slow_rate: float = option(0.02, "EMA rate of the target critic", at_least=0, at_most=1)
    slow_scale: float = option(1.0, "scale of the target critic's regularisation", at_least=0)
    slow_target: bool = option(False, "bootstrap returns from the target critic")
    return_norm: Normaliser = option("percentiles", "return normalisation")
    value_norm: Normaliser = option("none", "value normalisation")
    advantage_norm: Normaliser = option("none", "advantage normalisation")
    ac_grads: bool = option(False, "backpropagate actor and critic losses into the world model")
    reward_grad: bool = option(True, "backpropagate the reward loss into the world model")
    replay_value: bool = option(True, "train the critic on replayed sequences too")
    replay_value_grad: bool = option(True, "backpropagate that loss into the world model")
    loss_scales: LossScales = section(LossScales)
    learning_rate: float = option(0.00004, "learning rate", at_least=0)
    warmup: int = option(1000, "warm-up updates", at_least=0)
    decay: int = option(0, "updates over which the learning rate decays to a tenth; 0 keeps it constant", at_least=0)
    clip: float = option(0.3, "adaptive gradient clipping (AGC): threshold", at_least=0)
    beta1: float = option(0.9, "momentum (beta 1)", at_least=0, at_most=1)
    beta2: float = option(0.999, "decay of the squared gradients (beta 2)", at_least=0, at_most=1)
    eps: float = option(1e-20, "epsilon of the optimiser", at_least=0)
    greedy_eval: bool = option(False, "take the mode of the policy in evaluation instead of a sample")
    grad_norms: bool = option(False, "report the gradient norm of each loss per network", can_change=True)
