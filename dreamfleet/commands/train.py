"""`dreamfleet train`: builds and checks the config, then starts or resumes the run."""

import argparse
from pathlib import Path
from typing import Any

import elements

from dreamfleet.commands.modules import check_modules
from dreamfleet.options import check_config, check_resume, format_config, load_config, option_help

FLAGS = ("preset", "seeds", "dry-run")

EXAMPLES = """\
examples:
  dreamfleet train --task gym_CartPole-v1 --steps 1e5 --logdir ~/logdir/cartpole
  dreamfleet train --preset cartpole debug --run.envs 8 --run.agent_process False
  dreamfleet train --preset cartpole --seeds 0 1 2

Run the same command with the same --logdir to resume.
Options are set with --KEY VALUE or --KEY=VALUE and override the presets."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags that are not config options."""
    parser.usage = "dreamfleet train [--preset NAME ...] [--seeds N ...] [--dry-run] [--KEY VALUE ...]"
    parser.epilog = f"{EXAMPLES}\n\n{option_help()}"
    add_preset(parser)
    parser.add_argument("--seeds", nargs="+", type=int, metavar="N", help="one run per seed, each in LOGDIR/seed_N")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved config and exit")


def add_preset(parser: argparse.ArgumentParser) -> None:
    """Declares `--preset`, which every command that builds a config has."""
    parser.add_argument(
        "--preset",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="presets, applied in order",
    )


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Trains once, or once per seed; all configs are checked before the first run starts."""
    config = load_config(words, args.preset, flags=FLAGS)
    configs = [_with_seed(config, seed) for seed in dict.fromkeys(args.seeds)] if args.seeds else [config]
    resumed = [_check(config) for config in configs]
    if args.dry_run:
        print("---\n".join(map(format_config, configs)), end="")
        return 0
    for config, is_resumed in zip(configs, resumed, strict=True):
        _train(config, is_resumed)
    return 0


def _with_seed(config: Any, seed: int) -> elements.Config:
    return config.update(seed=seed, logdir=str(Path(config.logdir) / f"seed_{seed}"))


def _check(config: Any) -> bool:
    """Raises ConfigError for an invalid config; returns whether the log directory holds a run to resume."""
    check_config(config)
    check_modules(config, "agent", "task")
    return check_resume(config, config.logdir)


def _train(config: Any, is_resumed: bool) -> None:
    from dreamfleet.launch.run import run_config

    print(_summary(config, is_resumed), flush=True)
    run_config(config)


def _summary(config: Any, is_resumed: bool) -> str:
    envs = "remote" if config.run.remote_envs else f"{config.run.envs} train, {config.run.eval_envs} eval"
    kind = "resuming" if is_resumed else "new run"
    return f"{kind}: task {config.task} | agent {config.agent} | envs {envs} | logdir {config.logdir}"
