"""A stretch of steps whose counts can be differentiated, for models that bring a differentiator."""

import torch
from torch import Tensor

from hotloop.errors import SettingError, nearest
from hotloop.sim.program import Differentiator
from hotloop.sim.state import State


class Span:
    """From the first step with a gradient to the last: parameters do not change within.

    Values that were set may: each step has those that stood when it was done.
    """

    def __init__(self, state: State, differentiator: Differentiator | None) -> None:
        self._state, self._differentiator = state, differentiator
        self._first: int | None = None  # step; None between spans
        self._before: dict[str, Tensor] = {}

    @property
    def differentiator(self) -> Differentiator | None:
        """What gives counts their gradient."""
        return self._differentiator

    @property
    def can_attach(self) -> bool:
        """Whether counts get their gradient here, and not from the substeps' own graph."""
        return self._differentiator is not None

    def refuse_other_than_controls(self, path: str) -> None:
        """Raise where the model's differentiator gives no gradient by the value at a path.

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
        """Go on with the span; start one where none is."""
        if self._differentiator is not None and self._first is None:
            self._first = self._state.step
            slots = self._state.slots
            self._before = {path: slot.now for path, slot in slots.items() if slot.is_series}
            self._differentiator.begin(self._first)

    def attach(self) -> None:
        """Give the series of the state their gradient, from the span's first step until now."""
        if self._differentiator is None or self._first is None:
            return
        done = self._state.step
        for path, counts in self._differentiator.counts(done - self._first).items():
            slot = self._state.slots[path]
            before, rest = self._before[path][..., : self._first], slot.home[..., done:]
            slot.now = torch.cat((before, counts.to(rest.dtype), rest), -1)

    def end(self) -> None:
        """What comes next is another span, or has no gradient."""
        self._first = None
