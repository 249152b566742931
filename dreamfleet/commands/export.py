"""`dreamfleet export`: writes a trained policy as files that need jax and numpy, but no dreamfleet."""

import argparse
import contextlib
import sys
from pathlib import Path

from dreamfleet.commands.eval import add_run_arguments
from dreamfleet.commands.modules import check_modules
from dreamfleet.errors import ConfigError

FLAGS = ("out", "checkpoint")

EXAMPLES = """\
examples:
  dreamfleet export ~/logdir/cartpole --out policy/
  dreamfleet export ~/logdir/cartpole --out policy.zip --dreamer.greedy_eval True

The result is used with the file load_policy.py in it, by any Python that has jax and numpy:

  from load_policy import load
  policy = load("policy/")
  policy.reset()
  act = policy(obs)

Observations and actions are the ones that the agent was trained with; policy.spec lists them.
Needs the extra export: pip install 'dreamfleet[export]'."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the run and where to write."""
    parser.usage = "dreamfleet export LOGDIR --out DIR|FILE.zip [--checkpoint PATH] [--KEY VALUE ...]"
    parser.epilog = EXAMPLES
    add_run_arguments(parser)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="PATH", help="a directory, or a file whose name ends in .zip"
    )


def run(args: argparse.Namespace, words: list[str]) -> int:
    """Exports the policy in eval mode and says what is there."""
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
            remedy = "give it export_policy(mode), as dreamfleet/agent/contract.py describes"
            raise ConfigError("agent", options.agent, "cannot export its policy", remedy)
        env = make_eval_env(saved.options)(0)
        obs_space = {name: space for name, space in env.obs_space.items() if not name.startswith("log/")}
        act_space = dict(env.act_space)
        env.close()
        program = agent.export_policy("eval")
    details = {"task": options.task, "agent": options.agent, "step": saved.checkpoint.step}
    size = write_artefact(out, program, obs_space, act_space, details)
    weights = sum(array.size for array in program.weights.values())
    print(f"{out}: {weights:,} weights, step {saved.checkpoint.step:,}, {size / 1e6:.1f} MB")
    print(f"observations  {_list({name: obs_space[name] for name in program.obs_keys if name != 'is_first'})}")
    print(f"actions       {_list({name: space for name, space in act_space.items() if name != 'reset'})}")
    return 0


def _list(spaces: dict) -> str:
    return ", ".join(f"{name} {space.dtype.name}{list(space.shape) or ''}" for name, space in spaces.items())
