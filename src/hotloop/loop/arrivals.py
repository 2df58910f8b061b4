"""Noting for a trace when things come, and when they are taken."""

from hotloop.loop.control import SharedControl
from hotloop.loop.handover import Handover


class Arrivals:
    """Notes when things of one name come and are taken, as long as somebody traces the loop."""

    def __init__(self, name: str, control: SharedControl) -> None:
        self._name = name
        self._control = control
        self._waiting: dict[int, tuple[str, int]] = {}  # by identity: who made it, when it came

    def came(self, thing: object, maker: str) -> None:
        """Note that a thing is there now."""
        if self._control.handovers is not None:
            self._waiting[id(thing)] = maker, self._control.clock.now_ns()

    def taken(self, thing: object) -> None:
        """Note that a thing is taken now, if its coming was noted."""
        known = self._waiting.pop(id(thing), None)
        if known is not None and self._control.handovers is not None:
            now_ns = self._control.clock.now_ns()
            self._control.handovers.append(Handover(self._name, *known, now_ns))
