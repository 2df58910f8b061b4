"""One side of `hotloop compare`, in a process of its own; started by it, not by users."""

import sys
from typing import NoReturn

from hotloop.cli.guard import guarded, leave_now
from hotloop.repeat.channel import Channel
from hotloop.results.side import run_side


def main() -> NoReturn:
    """Run a side; the argument is the number of its end of the line."""
    number = int(sys.argv[1])
    # As for a command that a user types: its own arguments are no business of the target.
    sys.argv = [sys.argv[0]]

    def verb() -> int:
        run_side(Channel.from_fd(number))
        return 0

    leave_now(guarded(verb))


if __name__ == "__main__":
    main()
