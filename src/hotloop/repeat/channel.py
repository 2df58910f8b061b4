"""The line between a comparison and one of its sides: JSON objects, one a line, over a socket.

Only one of the two sides may run at a time. A side therefore waits for an order, carries it out,
answers, and waits again; where the other end is gone, it ends.
"""

import json
import socket
from typing import Any


class Closed(Exception):
    """The other end is gone."""


class Channel:
    """One end of the line."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._file = end.makefile("rb")

    @classmethod
    def from_fd(cls, number: int) -> "Channel":
        """The end that this process has inherited under a file descriptor's number."""
        return cls(socket.socket(fileno=number))

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises: Closed."""
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            raise Closed from None

    def receive(self) -> dict[str, Any]:
        """Wait for a message. Raises: Closed."""
        try:
            line = self._file.readline()
        except OSError:
            raise Closed from None
        if not line.endswith(b"\n"):
            raise Closed
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Close this end."""
        self._file.close()
        self._socket.close()
