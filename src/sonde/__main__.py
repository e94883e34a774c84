"""`python -m sonde` is the `sonde` program."""

import sys

from sonde.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
