"""`python -m hotloop`: the command line, where no console script is on the path."""

import sys

from hotloop.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
