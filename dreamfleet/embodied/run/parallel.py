"""Import paths of the reference: `embodied.run.parallel` is `dreamfleet.parallel`."""

from dreamfleet.parallel import *  # noqa: F403
from dreamfleet.parallel import __all__ as __all__
