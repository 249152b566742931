"""Import paths of the reference: `embodied.run.parallel` is `dreamfleet.parallel`."""

from embodied import run as run
