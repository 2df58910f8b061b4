"""Memory that several processes map, without a name.

It has no entry in the file system: when the last process that maps it ends, even by SIGKILL, it
is gone. A process that did not inherit it receives its descriptor through a connection.
"""

import mmap
import os
import struct
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle

from hotloop.loop.memory import FileLock, open_memory


class SharedBlock:
    """`nbytes` of zeros in `buffer`, while some process keeps the block or an array on it.

    Raises: OSError where memory or descriptors run out.
    """

    def __init__(self, nbytes: int, *, fd: int | None = None) -> None:
        self.nbytes = max(nbytes, 1)
        self.fd = open_memory("hotloop") if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, self.nbytes)
        # An array on the map keeps it alive; closing only ends what this object itself holds.
        self.buffer = mmap.mmap(self.fd, self.nbytes)

    def send(self, connection: Connection, pid: int) -> None:
        """Let the process at the other end of a connection map the block, by `receive`."""
        connection.send(self.nbytes)
        send_handle(connection, self.fd, pid)

    @classmethod
    def receive(cls, connection: Connection) -> "SharedBlock":
        """Map the block that the other end sends."""
        nbytes = connection.recv()
        return cls(nbytes, fd=recv_handle(connection))

    def close(self) -> None:
        """Give the descriptor back; arrays on the block stay good. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            self.close()


class LatestMessage:
    """The latest of many messages: one process writes them, others read when they like.

    A message that was not read before the next was written is lost. Nobody waits for longer than a
    copy takes, and a reader that is killed leaves no lock.
    """

    _HEAD = struct.Struct("qq")  # version and length, before the message itself

    def __init__(self, block: SharedBlock) -> None:
        self.block = block
        self._lock = FileLock(block.fd)

    @classmethod
    def with_room(cls, nbytes: int) -> "LatestMessage":
        """Make one for messages of up to `nbytes`; its version is 0. Raises: as `SharedBlock`."""
        return cls(SharedBlock(cls._HEAD.size + nbytes))

    @property
    def room(self) -> int:
        """Bytes that a message may have."""
        return self.block.nbytes - self._HEAD.size

    def write(self, message: bytes, version: int) -> None:
        """Put a message of at most `room` bytes in the place of the one before."""
        start, length = self._HEAD.size, len(message)
        with self._lock.held():
            self._HEAD.pack_into(self.block.buffer, 0, version, length)
            self.block.buffer[start : start + length] = message

    def read(self, after: int) -> bytes | None:
        """Return the message, or None if its version is not above `after`."""
        if self._HEAD.unpack_from(self.block.buffer, 0)[0] <= after:
            return None
        start = self._HEAD.size
        with self._lock.held():
            _, length = self._HEAD.unpack_from(self.block.buffer, 0)
            return self.block.buffer[start : start + length]
