"""Dreamer's policy as a serialised program that runs without this package."""

from collections.abc import Mapping, Sequence

import elements
import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from dreamfleet.agent.contract import PolicyProgram
from dreamfleet.agent.dreamer import acting
from dreamfleet.agent.dreamer.acting import Acting, PolicyCarry
from dreamfleet.agent.dreamer.names import named_leaves
from dreamfleet.agent.dreamer.spaces import Arrays

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
ACTIONS = "actions/"


def export_policy(
    part: Acting, obs_space: Mapping[str, elements.Space], keys: Sequence[str], seed: int, is_greedy: bool
) -> PolicyProgram:
    """The policy for batches of any size; `keys` are the observations that it looks at."""
    named, structure = named_leaves(part), jax.tree.structure(part)
    initial = _pack(acting.initial_policy_carry(part, 1))

    def act(weights: Arrays, carry: Arrays, obs: Arrays, seed: jax.Array, call: jax.Array) -> tuple[Arrays, Arrays]:
        part = jax.tree.unflatten(structure, [weights[name] for name in named])
        key = jax.random.fold_in(jax.random.key(seed), call)
        next_carry, acts, _ = acting.act(part, _unpack(carry), obs, obs["is_first"], key, is_greedy)
        return _pack(next_carry), acts

    (rows,) = export.symbolic_shape("rows")
    scalar = jax.ShapeDtypeStruct((), jnp.uint32)
    exported = export.export(jax.jit(act), platforms=PLATFORMS)(
        {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in named.items()},
        {name: jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype) for name, leaf in initial.items()},
        {key: jax.ShapeDtypeStruct((rows, *obs_space[key].shape), obs_space[key].dtype) for key in keys},
        scalar,
        scalar,
    )
    weights, carry = jax.tree.map(np.asarray, (named, initial))
    return PolicyProgram(bytes(exported.serialize()), weights, carry, list(keys), seed, PLATFORMS)


def _pack(carry: PolicyCarry) -> Arrays:
    actions = {ACTIONS + key: value for key, value in carry.actions.items()}
    return {"deter": carry.deter, "stoch": carry.stoch, **actions}


def _unpack(arrays: Arrays) -> PolicyCarry:
    actions = {key.removeprefix(ACTIONS): value for key, value in arrays.items() if key.startswith(ACTIONS)}
    return PolicyCarry(arrays["deter"], arrays["stoch"], actions)
