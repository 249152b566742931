"""Import paths of the reference: `embodied.run.parallel` is `dreamfleet.parallel`."""

from embodied.run import parallel as parallel
