"""The usage that the documents of the system show, in a script of a user's: `seed_usage.py EXAMPLE ARGS`."""

import json
import sys
import threading
from functools import partial as bind

import elements
import portal

import embodied
from dreamfleet.testing import CountingEnv
from dreamfleet.testing.guests import GuestAgent, GuestBatches, GuestLogger, GuestReplay, GuestWrapper
from embodied.run.parallel import parallel_actor, parallel_envs, parallel_learner, parallel_logger, parallel_replay


def make_agent(config):
    return GuestAgent(actor_batch=config.actor_batch, batch_size=config.batch_size, policy_modes=("train", "eval"))


def make_replay(config, folder, mode="train"):
    return GuestReplay(config.batch_length + 1, f"{config.logdir}/{folder}")


def make_env(config, index):
    return GuestWrapper(CountingEnv(index))


def make_stream(config, replay, mode):
    return GuestBatches(replay, mode, config.batch_size, config.batch_length)


def make_logger(config):
    return GuestLogger(f"{config.logdir}/logged.jsonl")


def launcher(config, args):
    # Launch distributed training (called from main.py)
    embodied.run.parallel.combined(
        bind(make_agent, config),
        bind(make_replay, config, "replay"),
        bind(make_replay, config, "replay_eval", "eval"),
        bind(make_env, config),
        bind(make_env, config),
        bind(make_stream, config),
        bind(make_logger, config),
        args,
    )


def threads(config, args):
    others = [
        portal.Process(
            parallel_replay,
            bind(make_replay, config, "replay"),
            bind(make_replay, config, "replay_eval", "eval"),
            bind(make_stream, config),
            args,
        ),
        portal.Process(parallel_logger, bind(make_logger, config), args),
        portal.Process(parallel_envs, bind(make_env, config), bind(make_env, config), args),
    ]
    for process in others:
        process.start()

    agent = make_agent(config)
    barrier = threading.Barrier(2)
    workers = [
        portal.Thread(parallel_actor, agent, barrier, args),
        portal.Thread(parallel_learner, agent, barrier, args),
    ]
    portal.run(workers)
    print("trained", agent.trained)
    for process in others:
        process.kill()


if __name__ == "__main__":
    config = elements.Config(json.loads(sys.argv[2]))
    {"launcher": launcher, "threads": threads}[sys.argv[1]](config, config)
