"""How a loop knows that it is in the middle of a measurement, however fast the machine is."""

from pathlib import Path

from hotloop.loop.arm import Kind
from hotloop.loop.board import process_board


class Sign:
    """Makes the file `measuring` when some blocks have been measured since the recording."""

    def __init__(self, blocks: int = 4) -> None:
        self.given = False
        self._board = process_board()
        self._recorded_at = -1
        self._blocks = blocks

    def look(self) -> bool:
        """Whether it is given; called once an iteration."""
        if self._board.modes[0] == Kind.RECORD:
            self._recorded_at = self._board.epoch
        elif not self.given and 0 <= self._recorded_at <= self._board.epoch - self._blocks:
            self.given = True
            Path("measuring").touch()
        return self.given
