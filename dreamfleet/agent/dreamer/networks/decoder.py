"""From states back to observations: one MLP for all vectors and a transposed network for all images."""

import math
from collections.abc import Mapping

import elements
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dreamfleet.agent.dreamer.networks.distributions import symlog_error
from dreamfleet.agent.dreamer.networks.encoder import DEPTH_FACTORS
from dreamfleet.agent.dreamer.networks.heads import ClassesOut
from dreamfleet.agent.dreamer.networks.images import UpConv, depth_to_space, space_to_depth
from dreamfleet.agent.dreamer.networks.layers import MLP, BlockLinear, Dense, Linear, RMSNorm
from dreamfleet.agent.dreamer.networks.rssm import LatentState
from dreamfleet.agent.dreamer.networks.transforms import symexp
from dreamfleet.agent.dreamer.spaces import Field, image_fields, vector_fields
from dreamfleet.base.dimensions import IMAGE_FACTOR


class UpLayer(eqx.Module):
    """Upsampling with convolution, norm over channels and SiLU: twice the resolution."""

    conv: UpConv
    norm: RMSNorm

    def __init__(self, key: jax.Array, inputs: int, outputs: int):
        self.conv = UpConv(key, inputs, outputs)
        self.norm = RMSNorm(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.nn.silu(self.norm(self.conv(x)))


class ImageDecoder(eqx.Module):
    """Images (N, H, W, C) in [0, 1], in space-to-depth form, from deter and stoch (N, ...)."""

    from_deter: BlockLinear
    from_stoch: Dense
    stoch_out: Linear
    norm: RMSNorm
    layers: list[UpLayer]
    out: UpConv
    shape: tuple[int, int, int] = eqx.field(static=True)  # height, width and channels where the layers begin

    def __init__(
        self,
        key: jax.Array,
        size: tuple[int, ...],
        channels: int,
        deter: int,
        stoch: int,
        depth: int,
        units: int,
        blocks: int,
    ):
        deter_key, stoch_key, out_key, *keys = jax.random.split(key, 3 + len(DEPTH_FACTORS))
        depths = [depth * factor for factor in DEPTH_FACTORS[::-1]]
        self.shape = (size[0] // IMAGE_FACTOR, size[1] // IMAGE_FACTOR, depths[0])
        flat = math.prod(self.shape)
        self.from_deter = BlockLinear(deter_key, blocks, deter, flat)
        self.from_stoch = Dense(stoch_key, stoch, 2 * units)
        self.stoch_out = Linear(out_key, 2 * units, flat)
        self.norm = RMSNorm(depths[0])
        self.layers = [UpLayer(k, i, o) for k, i, o in zip(keys, depths[:-1], depths[1:], strict=False)]
        self.out = UpConv(keys[-1], depths[-1], channels)

    def __call__(self, deter: jax.Array, stoch: jax.Array) -> jax.Array:
        height, width, channels = self.shape
        blocks = len(self.from_deter.kernel)
        x = self.from_deter(deter.reshape(len(deter), blocks, -1).swapaxes(0, 1))
        x = x.reshape(blocks, -1, height, width, channels // blocks)
        x = jnp.moveaxis(x, 0, 3).reshape(-1, *self.shape)
        x = x + self.stoch_out(self.from_stoch(stoch)).reshape(x.shape)
        x = jax.nn.silu(self.norm(x))
        for layer in self.layers:
            x = layer(x)
        return jax.nn.sigmoid(self.out.cells(x).astype(jnp.float32))


class Decoder(eqx.Module):
    """Predicts every observation from a state and compares it with what was observed."""

    vectors: MLP | None
    outputs: dict[str, Linear | ClassesOut]
    images: ImageDecoder | None
    vector_fields: tuple[Field, ...] = eqx.field(static=True)
    image_fields: tuple[Field, ...] = eqx.field(static=True)

    def __init__(
        self,
        key: jax.Array,
        obs_space: Mapping[str, elements.Space],
        *,
        deter: int,
        stoch: int,
        depth: int,
        units: int,
        layers: int,
        blocks: int,
    ):
        self.vector_fields, self.image_fields = vector_fields(obs_space), image_fields(obs_space)
        mlp_key, image_key, *keys = jax.random.split(key, 2 + len(self.vector_fields))
        self.vectors = MLP(mlp_key, stoch + deter, units, layers) if self.vector_fields else None
        self.outputs = {
            field.key: ClassesOut(k, units, field) if field.is_classes else Linear(k, units, field.flat_size)
            for k, field in zip(keys, self.vector_fields, strict=True)
        }
        self.images = None
        if self.image_fields:
            channels = sum(field.shape[2] for field in self.image_fields)
            size = self.image_fields[0].shape[:2]
            self.images = ImageDecoder(image_key, size, channels, deter, stoch, depth, units, blocks)

    def losses(self, state: LatentState, obs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """The reconstruction loss of every observation, with the batch shape of the state."""
        batch = state.deter.shape[:-1]
        outputs, cells = self._decode(state)
        losses = {}
        for field in self.vector_fields:
            target = obs[field.key].reshape(-1, *field.shape)
            if field.is_classes:
                losses[field.key] = outputs[field.key].loss(field.to_classes(target))
            else:
                losses[field.key] = symlog_error(outputs[field.key], target.reshape(len(target), -1), 1)
        for field in self.image_fields:
            target = space_to_depth(obs[field.key].reshape(-1, *field.shape)).astype(jnp.float32) / 255
            losses[field.key] = jnp.square(cells[field.key] - target).sum((1, 2, 3))
        return {key: loss.reshape(batch) for key, loss in losses.items()}

    def predict(self, state: LatentState) -> dict[str, jax.Array]:
        """The most likely observations: images in [0, 1], numbers in their own scale, classes as probabilities."""
        batch = state.deter.shape[:-1]
        outputs, cells = self._decode(state)
        result = {}
        for field in self.vector_fields:
            out = outputs[field.key]
            if field.is_classes:
                result[field.key] = out.probs.reshape(*batch, *field.shape, field.classes)
            else:
                result[field.key] = symexp(out.astype(jnp.float32)).reshape(*batch, *field.shape)
        for field in self.image_fields:
            result[field.key] = depth_to_space(cells[field.key]).reshape(*batch, *field.shape)
        return result

    def _decode(self, state: LatentState) -> tuple[dict, dict[str, jax.Array]]:
        """Outputs of the vector fields and, in space-to-depth form, of the image fields, for all states in a row."""
        deter, stoch = (x.reshape(-1, x.shape[-1]) for x in (state.deter, state.stoch))
        outputs = {}
        if self.vectors:
            hidden = self.vectors(jnp.concatenate([stoch, deter], -1))
            outputs = {field.key: self.outputs[field.key](hidden) for field in self.vector_fields}
        return outputs, self._split_images(self.images(deter, stoch)) if self.images else {}

    def _split_images(self, cells: jax.Array) -> dict[str, jax.Array]:
        cells = cells.reshape(*cells.shape[:-1], 4, -1)
        ends = np.cumsum([field.shape[2] for field in self.image_fields])
        parts = jnp.split(cells, ends[:-1], -1)
        shape = cells.shape[:-2]
        return {field.key: part.reshape(*shape, -1) for field, part in zip(self.image_fields, parts, strict=True)}
