"""The arguments of the roles: what is required, and what every other key is when it is not given."""

import os
from pathlib import Path

import elements

from dreamfleet.errors import ConfigError

DEFAULTS = {
    "logdir": "~/logdir/{timestamp}",
    "seed": 0,
    "steps": 0,
    "action_repeat": 1,  # frames that the environment takes in one step
    "duration": 0.0,
    "transport": "auto",
    "portal_meta": False,
    "is_joined": False,  # the role was started apart from its fleet, with a log directory of its own
    "train_ratio": 32.0,
    "report_length": 32,
    "replay_context": 1,
    "consec_train": 1,
    "consec_report": 1,
    "envs_per_worker": 1,
    "actor_wait_ms": 5.0,
    "backlog": 64,
    "act_timeout": 600.0,
    "env_timeout": 300.0,
    "episode_timeout": 180.0,
    "prefetch": 2,
    "keep": 3,
    "leg": 0,
    "restart": True,
    "max_restarts": 5,
    "heartbeat_timeout": 60.0,
    "log_full": False,
    "log_every": 10.0,
    "report_every": 300.0,
    "save_every": 900.0,
    "report_batches": 1,
    "from_checkpoint": "",
    "from_checkpoint_regex": ".*",
    "envs": 1,
    "eval_envs": 0,
    "remote_envs": False,
    "remote_replay": False,
    "remote_logger": False,
    "agent_process": True,
    "actor_batch": 0,
    "actor_threads": 1,
}


def with_defaults(args: elements.Config) -> elements.Config:
    """The arguments with every missing key filled in and the log directory made concrete."""
    merged = {**DEFAULTS, **dict(args)}
    merged["logdir"] = expand_logdir(merged["logdir"])
    return elements.Config(merged)


def expand_logdir(logdir: str) -> str:
    """Fills in the home directory and `{timestamp}`."""
    return str(Path(str(logdir).replace("{timestamp}", elements.timestamp())).expanduser())


def key_file(args: elements.Config) -> str:
    """Where the run's key is: DREAMFLEET_KEY_FILE, else `run.key` in the log directory."""
    return os.environ.get("DREAMFLEET_KEY_FILE") or str(Path(args.logdir) / "run.key")


def inference_batch(args: elements.Config) -> int:
    """Observations in one inference batch: `actor_batch`, or half of the environments, never more than are known."""
    batch = args.actor_batch if args.actor_batch > 0 else max(args.envs // 2, args.envs_per_worker)
    return max(1, batch if args.remote_envs else min(batch, args.envs + args.eval_envs))


def sequence_length(args: elements.Config) -> int:
    """Rows in a sampled sequence: the training chunks and their context; reports must fit into it."""
    length = args.consec_train * args.batch_length + args.replay_context
    report = args.consec_report * args.report_length + args.replay_context
    if report > length:
        raise ConfigError(
            "report_length",
            args.report_length,
            f"needs {report} rows, but a sampled sequence has {length}",
            "lower report_length or consec_report, or raise batch_length or consec_train",
        )
    return length
