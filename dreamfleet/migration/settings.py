"""The reference's options as ours."""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from dreamfleet.errors import ConfigError
from dreamfleet.options import load_options
from dreamfleet.options.fields import flatten

SAME = (
    *("task", "seed", "batch_size", "batch_length", "report_length", "consec_train", "consec_report", "replay_context"),
    *("run.steps", "run.duration", "run.train_ratio", "run.log_every", "run.report_every", "run.save_every"),
    *("run.envs", "run.eval_envs", "run.report_batches", "run.episode_timeout", "run.actor_threads"),
    *("run.usage.psutil", "run.usage.nvsmi", "run.usage.gputil", "run.usage.malloc", "run.usage.gc"),
    *("replay.online", "logger.fps", "env.dmc.repeat", "env.dmc.proprio", "env.dmc.image", "env.dmc.camera"),
    *(
        f"env.{suite}.{key}"
        for suite in ("atari", "atari100k")
        for key in ("repeat", "sticky", "gray", "lives", "noops")
    ),
)
RENAMED = {
    "replay.size": "replay.capacity",
    "replay.fracs.uniform": "replay.uniform",
    "replay.fracs.priority": "replay.priority",
    "replay.fracs.recency": "replay.recency",
    "replay.prio.exponent": "replay.priority_exponent",
    "replay.prio.maxfrac": "replay.priority_max",
    "replay.prio.initial": "replay.priority_initial",
    "replay.prio.zero_on_sample": "replay.priority_zero",
    "replay.recexp": "replay.recency_exponent",
    "jax.compute_dtype": "jax.precision",
    "agent.dyn.rssm.deter": "dreamer.deter",
    "agent.dyn.rssm.hidden": "dreamer.hidden",
    "agent.dyn.rssm.stoch": "dreamer.stoch",
    "agent.dyn.rssm.classes": "dreamer.classes",
    "agent.dyn.rssm.blocks": "dreamer.blocks",
    "agent.dyn.rssm.unimix": "dreamer.unimix",
    "agent.dyn.rssm.free_nats": "dreamer.free_nats",
    "agent.dyn.rssm.imglayers": "dreamer.prior_layers",
    "agent.dyn.rssm.obslayers": "dreamer.posterior_layers",
    "agent.dyn.rssm.dynlayers": "dreamer.dynamics_layers",
    "agent.enc.simple.depth": "dreamer.depth",
    "agent.enc.simple.units": "dreamer.units",
    "agent.enc.simple.layers": "dreamer.encoder_layers",
    "agent.dec.simple.layers": "dreamer.decoder_layers",
    "agent.rewhead.layers": "dreamer.reward_layers",
    "agent.rewhead.bins": "dreamer.bins",
    "agent.conhead.layers": "dreamer.cont_layers",
    "agent.policy.layers": "dreamer.actor_layers",
    "agent.policy.outscale": "dreamer.actor_scale",
    "agent.value.layers": "dreamer.critic_layers",
    "agent.opt.lr": "dreamer.learning_rate",
    "agent.opt.agc": "dreamer.clip",
    "agent.opt.eps": "dreamer.eps",
    "agent.opt.beta1": "dreamer.beta1",
    "agent.opt.beta2": "dreamer.beta2",
    "agent.opt.warmup": "dreamer.warmup",
    "agent.imag_last": "dreamer.imag_last",
    "agent.imag_length": "dreamer.imag_length",
    "agent.horizon": "dreamer.horizon",
    "agent.contdisc": "dreamer.contdisc",
    "agent.ac_grads": "dreamer.ac_grads",
    "agent.reward_grad": "dreamer.reward_grad",
    "agent.repval_loss": "dreamer.replay_value",
    "agent.repval_grad": "dreamer.replay_value_grad",
    "agent.report_gradnorms": "dreamer.grad_norms",
    "agent.imag_loss.lam": "dreamer.trace",
    "agent.imag_loss.actent": "dreamer.entropy_scale",
    "agent.imag_loss.slowreg": "dreamer.slow_scale",
    "agent.imag_loss.slowtar": "dreamer.slow_target",
    "agent.slowvalue.rate": "dreamer.slow_rate",
    "agent.loss_scales.rec": "dreamer.loss_scales.reconstruction",
    "agent.loss_scales.rew": "dreamer.loss_scales.reward",
    "agent.loss_scales.con": "dreamer.loss_scales.cont",
    "agent.loss_scales.dyn": "dreamer.loss_scales.dyn",
    "agent.loss_scales.rep": "dreamer.loss_scales.rep",
    "agent.loss_scales.policy": "dreamer.loss_scales.policy",
    "agent.loss_scales.value": "dreamer.loss_scales.value",
    "agent.loss_scales.repval": "dreamer.loss_scales.replay_value",
}
NONE = "no such option here"
FILTERS = {"pillow": "bilinear", "opencv": "area"}
NORMS = {"perc": "percentiles", "meanstd": "meanstd", "none": "none"}
CHANGED: dict[str, tuple[str, Callable[[Any], Any]]] = {  # with what becomes of the value
    "run.actor_batch": ("run.actor_batch", lambda value: max(0, int(value))),
    "jax.platform": ("jax.platform", lambda value: {"cuda": "gpu"}.get(value, value)),
    "agent.retnorm.impl": ("dreamer.return_norm", NORMS.__getitem__),
    "agent.valnorm.impl": ("dreamer.value_norm", NORMS.__getitem__),
    "agent.advnorm.impl": ("dreamer.advantage_norm", NORMS.__getitem__),
    "env.atari.actions": ("env.atari.actions", lambda value: {"all": "full"}.get(value, value)),
    "env.atari100k.actions": ("env.atari100k.actions", lambda value: {"all": "full"}.get(value, value)),
    **{
        f"env.{suite}.resize": (f"env.{suite}.resize", FILTERS.__getitem__)
        for suite in ("atari", "atari100k", "procgen")
    },
    **{
        f"env.{suite}.size": (f"env.{suite}.size", lambda value: value[0] if value[0] == value[1] else value)
        for suite in ("atari", "atari100k", "dmc", "crafter", "procgen")
    },
}
OURS = {key: (key, lambda value: value) for key in SAME}
OURS |= {theirs: (ours, lambda value: value) for theirs, ours in RENAMED.items()}
OURS |= CHANGED


def translate_options(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Our options that differ from their defaults, by key; and what could not be taken, with the reason."""
    taken: dict[str, Any] = {}
    left: dict[str, str] = {}
    defaults = flatten(load_options())
    for theirs, value in _flat(config):
        if theirs not in OURS:
            reason = "belongs to the old run, or to its machines: give it anew" if theirs in defaults else NONE
            left[theirs] = f"{value!r}: {reason}"
            continue
        ours, convert = OURS[theirs]
        try:
            is_finite = not isinstance(value, float) or math.isfinite(value)
            converted = flatten(load_options({ours: convert(value) if is_finite else value}))[ours]
        except (ConfigError, LookupError, TypeError, ValueError) as error:
            left[theirs] = f"{value!r}: {error}"
        else:
            if converted != defaults[ours]:
                taken[ours] = converted
    return taken, left


def read_config(path: Path) -> dict[str, Any]:
    """The reference's config.yaml; raises ConfigError for what is none."""
    try:
        config = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except (OSError, YAMLError, UnicodeDecodeError) as error:
        raise ConfigError("config", str(path), f"cannot be read ({error})", "check the directory") from None
    if not isinstance(config, dict):
        raise ConfigError("config", str(path), "holds no options", "name a log directory of danijar/dreamerv3")
    return config


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
