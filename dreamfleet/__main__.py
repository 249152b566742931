"""`python -m dreamfleet` is the command `dreamfleet`."""

import sys

from dreamfleet.cli import main

if __name__ == "__main__":
    sys.exit(main())
