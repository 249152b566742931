"""`dreamfleet export`: exports a policy to files that need only jax and numpy."""

import argparse
import contextlib
import sys
from pathlib import Path

from dreamfleet.base.keys import without_logs
from dreamfleet.commands.eval import add_run_arguments
from dreamfleet.errors import ConfigError
from dreamfleet.launch.modules import check_modules

FLAGS = ("out", "checkpoint")

EXAMPLES = """\
examples:
  dreamfleet export ~/logdir/cartpole --out policy/
  dreamfleet export ~/logdir/cartpole --out policy.zip --dreamer.greedy_eval True

Load it with the included load_policy.py; only jax and numpy are required:

  from load_policy import load
  policy = load("policy/")
  policy.reset()
  act = policy(obs)

Observations and actions are those of training; policy.spec lists them.
Exporting requires the extra export."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the run and the output."""
    parser.usage = "dreamfleet export LOGDIR --out DIR|FILE.zip [--checkpoint best|latest|NAME] [--KEY VALUE ...]"
    parser.epilog = EXAMPLES
    add_run_arguments(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="output directory, or a .zip file")


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Exports the policy in eval mode and prints a summary."""
    from dreamfleet.agent.contract import ExportingAgent
    from dreamfleet.launch.trained import load_run, make_eval_env, make_trained_agent
    from dreamfleet.results.artefact import VENDORED, check_target, write_artefact
    from dreamfleet.results.extras import load_extra

    load_extra(VENDORED, "export", "export")
    out = args.out.expanduser().absolute()
    check_target(out)
    saved = load_run(args.logdir, words, args.checkpoint, FLAGS)
    options = saved.options
    check_modules(saved.options, "agent", "task")
    with contextlib.redirect_stdout(sys.stderr):
        agent = make_trained_agent(saved)
        if not isinstance(agent, ExportingAgent):
            remedy = "implement export_policy(mode), see dreamfleet/agent/contract.py"
            raise ConfigError("agent", options.agent, "does not support export", remedy)
        env = make_eval_env(saved.options)(0)
        obs_space = without_logs(env.obs_space)
        act_space = dict(env.act_space)
        env.close()
        program = agent.export_policy("eval")
    details = {"task": options.task, "agent": options.agent, "step": saved.checkpoint.step}
    size = write_artefact(out, program, obs_space, act_space, details)
    weights = sum(array.size for array in program.weights.values())
    print(f"{out}: {weights:,} parameters, step {saved.checkpoint.step:,}, {size / 1e6:.1f} MB")
    print(f"observations  {_list({name: obs_space[name] for name in program.obs_keys if name != 'is_first'})}")
    print(f"actions       {_list({name: space for name, space in act_space.items() if name != 'reset'})}")
    return 0


def _list(spaces: dict) -> str:
    return ", ".join(f"{name} {space.dtype.name}{list(space.shape) or ''}" for name, space in spaces.items())
