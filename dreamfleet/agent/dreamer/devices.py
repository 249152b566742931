"""Where and how JAX computes: platform, compilation cache, compiler options, and the mesh that shares a batch."""

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dreamfleet.agent.dreamer import replicas
from dreamfleet.agent.dreamer.tuning import Tuning
from dreamfleet.errors import ConfigError
from dreamfleet.options.jax import JaxOptions

# The thread that acts gets the interpreter soon, also while another one starts an update or collects its results.
SWITCH_INTERVAL_S = 5e-4
AXIS = "data"


def configure(options: JaxOptions) -> None:
    """Applies the options `jax` to this process, before its first computation."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if options.platform != "auto":
        jax.config.update("jax_platforms", {"gpu": "cuda"}.get(options.platform, options.platform))
    if options.cache:
        jax.config.update("jax_compilation_cache_dir", str(Path(options.cache).expanduser()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def compiler_options() -> dict[str, Any]:
    """Options for every compilation of ours on this platform."""
    if jax.default_backend() == "cpu" and importlib.metadata.version("jaxlib").startswith("0.10."):
        # These kernels make elementwise gradients several times slower; the option is not in every release.
        return {"xla_cpu_experimental_ynn_fusion_type": ""}
    return {}


def quick_compiler_options() -> dict[str, Any]:
    """The same for programs that run once, whose compilation takes longer than they do."""
    return {"xla_backend_optimization_level": 1} if jax.default_backend() == "cpu" else {}


def _local_devices(platform: str) -> list[Any]:
    try:
        return jax.local_devices()
    except (RuntimeError, AssertionError) as error:  # the latter where the platform's plugin is not installed
        reason = f"has no device that JAX can use here ({str(error) or 'its plugin is not installed'})"
        raise ConfigError("jax.platform", platform, reason, "install JAX for it, or use auto") from error


def compute_dtype(precision: str, platform: str) -> str:
    """The type that networks compute in on a platform; `auto` takes the one that is quick and safe there."""
    if precision != "auto":
        return precision
    return "float32" if platform == "cpu" else "bfloat16"


class Placement:
    """The devices that train and the one that acts, and how arrays lie on them."""

    def __init__(self, options: JaxOptions, tuning: Tuning):
        devices = _local_devices(options.platform)
        count = options.train_devices or len(devices)
        for key, needed in (("train_devices", count), ("policy_device", options.policy_device + 1)):
            if needed > len(devices):
                reason = f"needs {needed} devices, but there are {len(devices)}"
                raise ConfigError(f"jax.{key}", getattr(options, key), reason, "lower it")
        self.policy_device = devices[options.policy_device]
        self._local_mesh = Mesh(np.array(devices[:count]), (AXIS,))
        self._is_alone = not replicas.is_one_of_several()
        self._mesh = self._local_mesh if self._is_alone else Mesh(replicas.find_train_devices(count), (AXIS,))
        self._is_sharded = options.sharding == "sharded"
        self._min_sharded = tuning.min_sharded

    @property
    def devices(self) -> int:
        """Those of this process that train."""
        return self._local_mesh.size

    @property
    def platform(self) -> str:
        return self._mesh.devices.flat[0].platform

    @property
    def batch(self) -> NamedSharding:
        """Batches are split along their first axis."""
        return NamedSharding(self._mesh, PartitionSpec(AXIS))

    @property
    def results(self) -> tuple[NamedSharding | None, NamedSharding | None]:
        """How the rows and the metrics lie that an update returns; left to the compiler where one process has all."""
        return (None, None) if self._is_alone else (self.batch, self.whole)

    @property
    def whole(self) -> NamedSharding:
        return NamedSharding(self._mesh, PartitionSpec())

    @property
    def local_batch(self) -> NamedSharding:
        """The same for batches that no other process has a part in."""
        return NamedSharding(self._local_mesh, PartitionSpec(AXIS))

    def put_batch(self, tree: Any) -> Any:
        """Rows on their way to the devices; those of several processes make one batch."""
        return jax.device_put(tree, self.batch) if self._is_alone else replicas.put_rows(tree, self.batch)

    def put_params(self, tree: Any) -> Any:
        """Parameters and statistics on the devices."""
        return jax.device_put(tree, self.params(tree)) if self._is_alone else replicas.put_whole(tree, self.whole)

    def local(self, tree: Any) -> Any:
        """Arrays as far as this process holds them."""
        return tree if self._is_alone else replicas.take_local(tree, self._local_mesh)

    def params(self, tree: Any) -> Any:
        """The sharding of each parameter or statistic: whole, or split along its largest axis that can be."""
        return jax.tree.map(self._param, tree)

    def _param(self, leaf: Any) -> NamedSharding:
        axes = [axis for axis, size in enumerate(leaf.shape) if size % self.devices == 0]
        if not self._is_sharded or leaf.size < self._min_sharded or not axes:
            return self.whole
        split = max(axes, key=lambda axis: leaf.shape[axis])
        return NamedSharding(self._mesh, PartitionSpec(*[AXIS if axis == split else None for axis in range(leaf.ndim)]))
