"""Several processes that train one agent: each has the devices of its machine, and all of them share a batch.

Parameters are whole on every device, so that all a process needs to act, report and save is on its own ones.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dreamfleet.agent.contract import ReplicaPlace
from dreamfleet.errors import ConfigError
from dreamfleet.options.jax import JaxOptions

# For JAX's own watch, which aborts all processes when one is silent, or leaves while another still saves. The gang
# notices losses within seconds, and says whom it has lost.
PATIENCE_S = 24 * 3600
PIECE = 1 << 24  # numbers that are shared at once


def join(place: ReplicaPlace, options: JaxOptions) -> None:
    """Makes this process, with its configured JAX, one of several before it computes; returns when all are there."""
    if options.sharding != "replicated":
        reason = "spreads parameters over devices, but every replica needs all of them"
        raise ConfigError("jax.sharding", options.sharding, reason, "set it to replicated, or run.replicas to 1")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        place.coordinator,
        place.replicas,
        place.replica,
        cluster_detection_method="deactivate",
        coordinator_bind_address=place.listen or None,
        heartbeat_timeout_seconds=PATIENCE_S,
        shutdown_timeout_seconds=PATIENCE_S,
    )


def is_one_of_several() -> bool:
    return jax.process_count() > 1


def find_train_devices(count: int) -> list[Any]:
    """The first devices of each process, in the order of the replicas."""
    groups = [[d for d in jax.devices() if d.process_index == index] for index in range(jax.process_count())]
    return [device for group in groups for device in group[:count]]


def put_rows(tree: Any, sharding: NamedSharding) -> Any:
    """The rows of this process as its part of a batch of all."""
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x)), tree)


def put_whole(tree: Any, sharding: NamedSharding) -> Any:
    """Arrays that every process has, which is not checked: that would need all of them."""

    def put(x: Any) -> jax.Array:
        value = np.asarray(x)
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])

    return jax.tree.map(put, tree)


def take_local(tree: Any, mesh: Mesh) -> Any:
    """What this process holds of arrays, on its own mesh, without a copy: whole parameters, and its own rows."""

    def take(x: Any) -> Any:
        if not isinstance(x, jax.Array) or x.is_fully_addressable:
            return x
        shape, spec = x.shape, PartitionSpec()
        if not x.is_fully_replicated:
            shape, spec = (x.shape[0] // jax.process_count(), *x.shape[1:]), PartitionSpec(*mesh.axis_names)
        shards = [shard.data for shard in x.addressable_shards]
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(mesh, spec), shards)

    return jax.tree.map(take, tree)


def share(tree: Any) -> Any:
    """What the first process has, in all of them; every process calls this with arrays of the same shapes.

    It is the sum of what the first has and of zeros, in pieces of one size, for which one small program is compiled:
    processes that wait for each other in the midst of an exchange give up after half a minute.
    """
    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, tree))
    count = sum(leaf.nbytes for leaf in leaves)
    size = min(PIECE, -(-count // 4))
    words = np.zeros(-(-count // (4 * size)) * size, np.int32)
    if jax.process_index() == 0:
        words.view(np.uint8)[:count] = np.frombuffer(b"".join(leaf.tobytes() for leaf in leaves), np.uint8)
    mesh = Mesh(find_train_devices(1), ("replicas",))
    rows, whole = NamedSharding(mesh, PartitionSpec("replicas")), NamedSharding(mesh, PartitionSpec())
    add = jax.jit(lambda x: x.sum(0, dtype=np.int32), out_shardings=whole)
    shared = [
        np.asarray(add(put_rows(words[None, start : start + size], rows))) for start in range(0, len(words), size)
    ]
    data, end, result = np.concatenate(shared).view(np.uint8), 0, []
    for leaf in leaves:
        start, end = end, end + leaf.nbytes
        result.append(data[start:end].copy().view(leaf.dtype).reshape(leaf.shape))
    return jax.tree.unflatten(structure, result)
