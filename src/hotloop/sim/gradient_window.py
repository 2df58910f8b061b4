"""The steps whose counts a model's differentiator gives a gradient."""

import torch
from torch import Tensor

from hotloop.errors import SettingError, nearest
from hotloop.sim.program import Differentiator
from hotloop.sim.state import State


class GradientWindow:
    """Consecutive steps that are differentiated together; parameters do not change within.

    Values of the state may be set within: each step has those that held when it was done.
    """

    def __init__(self, state: State, differentiator: Differentiator | None) -> None:
        self._state, self._differentiator = state, differentiator
        self._first: int | None = None  # its first step; None where no window is open
        self._before: dict[str, Tensor] = {}  # series as they were before it

    @property
    def differentiator(self) -> Differentiator | None:
        """What gives counts their gradient."""
        return self._differentiator

    @property
    def can_attach(self) -> bool:
        """Whether counts get their gradient here, and not from the substeps' own graph."""
        return self._differentiator is not None

    def refuse_other_than_controls(self, path: str) -> None:
        """Refuse a value at a path by which the model's differentiator gives no gradient.

        Raises: SettingError.
        """
        if self._differentiator is None:
            return
        known = self._differentiator.controls
        if path not in known:
            raise SettingError(
                f"{path!r}: counts of this model have no gradient by it{nearest(path, known)}; "
                f"expected {' or '.join(sorted(known)) or 'parameters only'}, or a value without "
                "requires_grad"
            )

    def begin(self) -> None:
        """Continue the window; open one where none is open."""
        if self._differentiator is not None and self._first is None:
            self._first = self._state.step
            slots = self._state.slots
            self._before = {path: slot.now for path, slot in slots.items() if slot.is_series}
            self._differentiator.begin(self._first)

    def attach(self) -> None:
        """Give the series of the state their gradient, from the window's first step until now."""
        if self._differentiator is None or self._first is None:
            return
        done = self._state.step
        for path, counts in self._differentiator.counts(done - self._first).items():
            slot = self._state.slots[path]
            before, rest = self._before[path][..., : self._first], slot.home[..., done:]
            slot.now = torch.cat((before, counts.to(rest.dtype), rest), -1)

    def end(self) -> None:
        """Close the window: the next step opens another, or has no gradient."""
        self._first = None
