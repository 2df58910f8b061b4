"""A family of loops that is named on the command line: a word, a colon, and what it is about."""

from collections.abc import Callable
from dataclasses import dataclass

from hotloop.loop.loop import Loop


@dataclass(frozen=True)
class LoopFamily:
    """Loops of one kind. A module exports one, and the table of targets names the module.

    make: the loop of what follows the colon, such as "CartPole-v1".
    """

    make: Callable[[str], Loop]
