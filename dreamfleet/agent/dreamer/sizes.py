"""The named sizes of the model; `dreamer.size` picks one, and the single options override it."""

import dataclasses

from dreamfleet.options.dreamer import DreamerOptions, Size


@dataclasses.dataclass(frozen=True)
class Sizes:
    deter: int
    hidden: int
    stoch: int
    classes: int
    blocks: int
    depth: int
    units: int


SIZES: dict[Size, Sizes] = {
    "debug": Sizes(deter=32, hidden=16, stoch=4, classes=4, blocks=4, depth=2, units=16),
    "tiny": Sizes(deter=128, hidden=64, stoch=16, classes=8, blocks=4, depth=4, units=64),
    "1m": Sizes(deter=512, hidden=64, stoch=32, classes=4, blocks=8, depth=4, units=64),
    "12m": Sizes(deter=2048, hidden=256, stoch=32, classes=16, blocks=8, depth=16, units=256),
    "25m": Sizes(deter=3072, hidden=384, stoch=32, classes=24, blocks=8, depth=24, units=384),
    "50m": Sizes(deter=4096, hidden=512, stoch=32, classes=32, blocks=8, depth=32, units=512),
    "100m": Sizes(deter=6144, hidden=768, stoch=32, classes=48, blocks=8, depth=48, units=768),
    "200m": Sizes(deter=8192, hidden=1024, stoch=32, classes=64, blocks=8, depth=64, units=1024),
    "400m": Sizes(deter=12288, hidden=1536, stoch=32, classes=96, blocks=8, depth=96, units=1536),
}


def model_sizes(options: DreamerOptions) -> Sizes:
    """The sizes that `dreamer.size` names, with those options of `dreamer` that are not 0 in their place."""
    names = [field.name for field in dataclasses.fields(Sizes)]
    given = {name: getattr(options, name) for name in names if getattr(options, name)}
    return dataclasses.replace(SIZES[options.size], **given)
