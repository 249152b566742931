"""From observations to tokens: an MLP for vectors and a convolutional network for images."""

from collections.abc import Mapping

import elements
import equinox as eqx
import jax
import jax.numpy as jnp

from dreamfleet.agent.dreamer.networks.images import ConvPool
from dreamfleet.agent.dreamer.networks.layers import MLP, RMSNorm
from dreamfleet.agent.dreamer.spaces import Field, flatten, image_fields, vector_fields
from dreamfleet.base.dimensions import IMAGE_FACTOR

DEPTH_FACTORS = (2, 3, 4, 4)


class ConvLayer(eqx.Module):
    """Convolution with pooling, norm over channels and SiLU: half the resolution."""

    conv: ConvPool
    norm: RMSNorm

    def __init__(self, key: jax.Array, inputs: int, outputs: int):
        self.conv = ConvPool(key, inputs, outputs)
        self.norm = RMSNorm(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.nn.silu(self.norm(self.conv(x)))


class Encoder(eqx.Module):
    """Maps observations of any batch shape to tokens of `size` numbers: vector part, then image part."""

    vectors: MLP | None
    images: list[ConvLayer]
    vector_fields: tuple[Field, ...] = eqx.field(static=True)
    image_fields: tuple[Field, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)
    dtype: str = eqx.field(static=True)

    def __init__(
        self,
        key: jax.Array,
        obs_space: Mapping[str, elements.Space],
        *,
        depth: int,
        units: int,
        layers: int,
        dtype: str,
    ):
        vector_key, *image_keys = jax.random.split(key, 1 + len(DEPTH_FACTORS))
        self.vector_fields, self.image_fields = vector_fields(obs_space), image_fields(obs_space)
        self.dtype = dtype
        inputs = sum(field.flat_size for field in self.vector_fields)
        self.vectors = MLP(vector_key, inputs, units, layers) if inputs else None
        self.size = units if inputs else 0
        self.images = []
        if self.image_fields:
            channels = sum(field.shape[2] for field in self.image_fields)
            sizes = [channels, *(depth * factor for factor in DEPTH_FACTORS)]
            self.images = [ConvLayer(k, i, o) for k, i, o in zip(image_keys, sizes[:-1], sizes[1:], strict=True)]
            height, width = self.image_fields[0].shape[:2]
            self.size += (height // IMAGE_FACTOR) * (width // IMAGE_FACTOR) * sizes[-1]

    def __call__(self, obs: Mapping[str, jax.Array]) -> jax.Array:
        batch = obs["is_first"].shape
        tokens = []
        if self.vectors:
            x = flatten(obs, self.vector_fields, squash=True).astype(self.dtype)
            tokens.append(self.vectors(x.reshape(-1, x.shape[-1])))
        if self.images:
            x = jnp.concatenate([obs[field.key] for field in self.image_fields], -1)
            x = x.astype(self.dtype) / 255 - 0.5
            x = x.reshape(-1, *x.shape[-3:])
            for layer in self.images:
                x = layer(x)
            tokens.append(x.reshape(x.shape[0], -1))
        return jnp.concatenate(tokens, -1).reshape(*batch, self.size)
