"""Where an operation comes from, noted while operations are counted: stage, part, pass, line.

An operation of the backward pass is of the part and the line whose forward operation made its node
of the graph: the nodes have numbers, counted up, and the number of the newest one is known while
the forward operation runs.
"""

import threading
from typing import Any, NamedTuple

from hotloop.loop.values import torch_if_loaded
from hotloop.profile.call_site import CallSite, call_site
from hotloop.profile.parts import OUTSIDE, Part
from hotloop.profile.under_way import stages_under_way

FORWARD, BACKWARD, OPTIMISER = "forward", "backward", "optimiser"


class Origin(NamedTuple):
    """stages: those under way, the outermost first; pass_name: forward, backward or optimiser."""

    stages: tuple[str, ...]
    part: Part
    pass_name: str
    site: CallSite


class Origins:
    """Called after an operation, tells where it came from; `entered` and `left` tell of parts."""

    def __init__(self) -> None:
        self._stacks = threading.local()
        self._forward: dict[int, tuple[Part, CallSite]] = {}
        self._stages: tuple[str, ...] = ()  # of the thread that counts, for those of autograd
        self._thread = 0

    def start(self) -> None:
        """Note which thread it is that counts."""
        self._thread = threading.get_ident()

    def entered(self, part: Part) -> None:
        """Note that a call of a part begins on this thread."""
        self._stack().append((part, _node() is not None))

    def left(self, part: Part) -> None:
        """Note that a call of a part has ended on this thread."""
        stack = self._stack()
        while stack and stack.pop()[0] != part:
            pass  # what an error has ended without a word

    def __call__(self) -> Origin:
        """The origin of the operation that has just run on this thread."""
        if threading.get_ident() == self._thread:
            self._stages = stages_under_way()
        node, stack = _node(), self._stack()
        part, is_recomputed = stack[-1] if stack else (OUTSIDE, False)
        if node is not None and not is_recomputed:
            part, site = self._forward.get(node._sequence_nr(), (OUTSIDE, None))
            return Origin(self._stages, part, BACKWARD, site or call_site())
        site = call_site()
        # The first operation after a node was made is the one that has made it.
        self._forward.setdefault(_next_number() - 1, (part, site))
        pass_name = OPTIMISER if part.is_optimiser else FORWARD
        return Origin(self._stages, part, pass_name, site)

    def _stack(self) -> list[tuple[Part, bool]]:
        found: list[tuple[Part, bool]] = self._stacks.__dict__.setdefault("parts", [])
        return found


def _node() -> Any:
    """The node of the graph whose backward is under way on this thread, or None."""
    torch: Any = torch_if_loaded()
    return torch._C._current_autograd_node()


def _next_number() -> int:
    """The number that the next node of the graph gets on this thread."""
    torch: Any = torch_if_loaded()
    number: int = torch.autograd._get_sequence_nr()
    return number
