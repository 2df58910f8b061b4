"""A connection between two processes whose messages carry their arrays through shared memory.

What goes through the pipe is small. A block of memory is used again for another message when the
receiver has dropped every array of the one before, which it says with its own next message.
"""

import pickle
import weakref
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from hotloop.data.shared import SharedBlock

SPARE = 1.25  # of a new block, to the message that it is made for: the next one may be larger
_ALIGNMENT_BYTES = 64


class ArrayConnection:
    """One end. Both ends know each other's process, so that they can send memory.

    connection: the pipe, for nothing else. pid: of the process at the other end.
    """

    def __init__(self, connection: "Connection[Any, Any]", pid: int) -> None:
        self._connection, self._pid = connection, pid
        self._own: dict[int, SharedBlock] = {}  # that this end writes
        self._free: list[int] = []
        self._theirs: dict[int, SharedBlock] = {}  # that this end reads
        self._dropped: deque[int] = deque()  # appended to by the finalizers of dropped arrays

    def send(self, message: object) -> None:
        """Send an object that can be pickled; contiguous arrays in it are copied once.

        Raises: OSError where the other end is closed or its process has died.
        """
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(message, 5, buffer_callback=buffers.append)
        contents = [buffer.raw() for buffer in buffers]
        starts, end = [], 0
        for content in contents:
            starts.append(end)
            end += -(-content.nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        slot = self._slot(end) if end else None
        parts = [(at, at + part.nbytes) for at, part in zip(starts, contents, strict=True)]
        if slot is not None:
            memory = memoryview(self._own[slot].buffer)
            for (start, stop), content in zip(parts, contents, strict=True):
                memory[start:stop] = content
        dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
        self._connection.send((pickled, slot, parts, dropped))

    def receive(self) -> Any:
        """Return the next message; its arrays may be kept, and changed.

        Raises: EOFError or OSError where the other end is closed or its process has died.
        """
        message = self._connection.recv()
        while len(message) == 1:
            block = SharedBlock.receive(self._connection)
            block.close()  # the map stays
            self._theirs[message[0]] = block
            message = self._connection.recv()
        pickled, slot, parts, dropped = message
        self._free += dropped
        if slot is None:
            return pickle.loads(pickled, buffers=[bytearray() for _ in parts])
        # Every array of the message keeps a reference to this one.
        root = np.frombuffer(self._theirs[slot].buffer, np.uint8)
        weakref.finalize(root, self._dropped.append, slot).atexit = False
        memory = root.data
        return pickle.loads(pickled, buffers=[memory[start:stop] for start, stop in parts])

    def _slot(self, nbytes: int) -> int:
        """Take a block that is free and has room; one that is too small makes way for a larger."""
        for place, slot in enumerate(self._free):
            if self._own[slot].nbytes >= nbytes:
                return self._free.pop(place)
        slot = self._free.pop() if self._free else len(self._own)
        self._own[slot] = block = SharedBlock(round(SPARE * nbytes))
        self._connection.send((slot,))
        block.send(self._connection, self._pid)
        block.close()  # the map stays
        return slot
