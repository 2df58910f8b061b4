"""What one part of a loop makes and another one takes, noted while a trace is taken."""

from typing import NamedTuple


class Handover(NamedTuple):
    """One thing that waited to be taken: when it came, and when it was taken, on the loop's clock.

    name: what it is, such as "fragment"; maker: who made it, such as "worker 3".
    """

    name: str
    maker: str
    came_ns: int
    taken_ns: int
