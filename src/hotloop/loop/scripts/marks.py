"""What finds the iterations of a script that marks none."""

from collections.abc import Sequence
from typing import Protocol

from hotloop.loop.stage_types import StageView


class Marks(Protocol):
    """What finds the iterations of a script that marks none."""

    @property
    def unit(self) -> str:
        """What is counted, once the iterations are found."""
        ...

    @property
    def duration_s(self) -> float | None:
        """How long an iteration takes, once they are found; None where that is not known."""
        ...

    def look(self, called: StageView, now_ns: int) -> str | None:
        """Look on; return what marks an iteration if that is known and one begins here."""
        ...

    def why_not(self) -> str:
        """Why no iterations were found so far; may be asked by another thread."""
        ...

    def starts(self, called: StageView) -> bool:
        """Whether an iteration begins with this call, once it is known what marks them."""
        ...

    @property
    def away(self) -> bool:
        """Whether the loop is in a part of its course that is not measured now."""
        ...

    def units(self) -> float:
        """The units since the last time this was asked."""
        ...

    def state(self) -> Sequence[object]:
        """What the iterations change, and can be put back."""
        ...
