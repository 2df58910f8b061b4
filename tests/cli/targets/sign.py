"""How a loop knows that it is in the middle of a measurement, however fast the machine is."""

from pathlib import Path

from hotloop.loop.arm import Kind
from hotloop.loop.control import process_control


class Sign:
    """Makes the file `measuring` when some blocks have been measured since the recording."""

    def __init__(self, blocks: int = 4) -> None:
        self.given = False
        self._control = process_control()
        self._recorded_at = -1
        self._blocks = blocks

    def look(self) -> bool:
        """Whether it is given; called once an iteration."""
        if self._control.modes[0] == Kind.RECORD:
            self._recorded_at = self._control.epoch
        elif not self.given and 0 <= self._recorded_at <= self._control.epoch - self._blocks:
            self.given = True
            Path("measuring").touch()
        return self.given
