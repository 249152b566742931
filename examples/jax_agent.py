"""Double DQN in plain JAX and optax: a deep RL agent in about 120 lines, which improves on CartPole within a minute.

It implements the agent contract that `docs/own_agent.md` describes. From this directory:

    dreamfleet train --agent jax_agent:DQN --preset cartpole --run.train_ratio 256 --logdir ~/logdir/dqn
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dreamfleet import AgentOptions

HIDDEN = 128
LEARNING_RATE = 1e-3
DISCOUNT = 0.99
TARGET_RATE = 0.01  # EMA rate of the target network
EPSILON = 0.1

optimiser = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(LEARNING_RATE))


class DQN:
    """Q-network over one vector observation and one discrete action."""

    def __init__(self, obs_space: dict, act_space: dict, options: AgentOptions):
        self.num_actions = int(act_space["action"].high)
        self.seed = options.seed
        self.seed_policy(0)
        params = init_network(jax.random.key(options.seed), obs_space["vector"].shape[0], self.num_actions)
        self.state = {"params": params, "target": params, "opt": optimiser.init(params)}

    # Optional: other exploration in every life of the agent process.

    def seed_policy(self, number: int) -> None:
        self.rng = np.random.default_rng([self.seed, number])  # used by the policy thread only

    # A feed-forward agent has no recurrent state to carry from step to step.

    def init_policy(self, batch_size: int) -> tuple:
        return ()

    def init_train(self, batch_size: int) -> tuple:
        return ()

    def init_report(self, batch_size: int) -> tuple:
        return ()

    # Called in the actor's thread with a batch of observations, one per environment.

    def policy(self, carry: tuple, obs: dict, mode: str = "train") -> tuple[tuple, dict, dict]:
        # The learner's thread replaces `self.state` as a whole, so this reads one consistent set of parameters.
        action = np.asarray(select_greedy(self.state["params"], obs["vector"]))
        if mode == "train":
            is_random = self.rng.random(len(action)) < EPSILON
            action = np.where(is_random, self.rng.integers(self.num_actions, size=len(action)), action)
        return carry, {"action": action.astype(np.int32)}, {}

    # Called in the learner's thread with replayed sequences of shape (B, T, ...).

    def train(self, carry: tuple, data: dict) -> tuple[tuple, dict, dict]:
        self.state, metrics = update(self.state, select_keys(data))
        return carry, {}, {key: float(value) for key, value in metrics.items()}

    def report(self, carry: tuple, data: dict) -> tuple[tuple, dict]:
        loss, metrics = td_loss(self.state["params"], self.state["target"], select_keys(data))
        return carry, {"loss": float(loss), "value": float(metrics["value"])}

    def stream(self, source):
        return iter(source)

    def save(self) -> dict:
        return {str(i): np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(self.state))}

    def load(self, data: dict, regex: str | None = None) -> None:
        leaves = [jnp.asarray(data[str(i)]) for i in range(len(data))]
        self.state = jax.tree.unflatten(jax.tree.structure(self.state), leaves)


def select_keys(data: dict) -> dict:
    return {key: data[key] for key in ("vector", "action", "reward", "is_first", "is_terminal")}


def init_network(key: jax.Array, inputs: int, outputs: int) -> list[dict]:
    sizes = [inputs, HIDDEN, HIDDEN, outputs]
    init = jax.nn.initializers.he_normal()
    keys = jax.random.split(key, len(sizes) - 1)
    shapes = zip(keys, sizes, sizes[1:], strict=False)
    return [{"kernel": init(key, (low, high)), "bias": jnp.zeros(high)} for key, low, high in shapes]


def apply_network(params: list[dict], x: jax.Array) -> jax.Array:
    *hidden, last = params
    for layer in hidden:
        x = jax.nn.relu(x @ layer["kernel"] + layer["bias"])
    return x @ last["kernel"] + last["bias"]


@jax.jit
def select_greedy(params: list[dict], vector: jax.Array) -> jax.Array:
    return apply_network(params, vector).argmax(-1)


@jax.jit
def td_loss(params: list[dict], target: list[dict], data: dict) -> tuple[jax.Array, dict]:
    """Huber loss of r' + discount * Q_target(s', argmax_a Q(s', a)) - Q(s, a), within episodes."""
    values = apply_network(params, data["vector"])  # (B, T, actions)
    taken = jnp.take_along_axis(values[:, :-1], data["action"][:, :-1, None], -1)[..., 0]
    best = values[:, 1:].argmax(-1, keepdims=True)
    following = jnp.take_along_axis(apply_network(target, data["vector"][:, 1:]), best, -1)[..., 0]
    # A row holds an observation, the reward received with it, and the action taken in it.
    returns = data["reward"][:, 1:] + DISCOUNT * jnp.where(data["is_terminal"][:, 1:], 0.0, following)
    same_episode = ~data["is_first"][:, 1:]
    losses = optax.huber_loss(taken, jax.lax.stop_gradient(returns))
    loss = (losses * same_episode).sum() / jnp.maximum(same_episode.sum(), 1)
    return loss, {"loss": loss, "value": taken.mean()}


@jax.jit  # without donation: the policy may be reading the old parameters
def update(state: dict, data: dict) -> tuple[dict, dict]:
    grads, metrics = jax.grad(td_loss, has_aux=True)(state["params"], state["target"], data)
    updates, opt = optimiser.update(grads, state["opt"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    target = optax.incremental_update(params, state["target"], TARGET_RATE)
    return {"params": params, "target": target, "opt": opt}, metrics
