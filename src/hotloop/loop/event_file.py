"""A file of TensorBoard events, whose faults end no training."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hotloop.errors import SettingError

_LOG = logging.getLogger("hotloop")


class EventFile:
    """Events in a folder of TensorBoard's, through the writer of torch.

    setting: how messages call what the user gave.
    Raises: SettingError if TensorBoard is not installed, or the folder cannot be written to.
    """

    def __init__(self, folder: Path, *, setting: str = "--tensorboard") -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise SettingError(
                f"{setting} needs TensorBoard: pip install 'hotloop[tensorboard]'"
            ) from None
        try:
            self._writer: Any = SummaryWriter(folder)
        except OSError as error:
            raise SettingError(
                f"{setting}: {folder}: expected a folder to write to, got {error.strerror or error}"
            ) from None
        self._folder = folder
        self.stopped = False

    def write(self, write: Callable[[Any], object]) -> None:
        """Let `write` write with the writer.

        Events that cannot be written are given up: said once, and no error.
        """
        if self.stopped:
            return
        try:
            write(self._writer)
        except (OSError, ValueError) as error:
            self.stopped = True
            _LOG.warning(
                "events could not be written in %s (%s): training goes on without them",
                self._folder,
                error,
            )

    def close(self) -> None:
        """Close the file. Idempotent."""
        self.write(lambda writer: writer.close())
        self.stopped = True
