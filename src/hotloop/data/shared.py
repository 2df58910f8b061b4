"""Memory that several processes map, without a name.

It has no entry in the file system: when the last process that maps it ends, even by SIGKILL, it
is gone. A process that did not inherit it receives its descriptor through a connection.
"""

import mmap
import os
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle

from hotloop.loop.memory import open_memory


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
