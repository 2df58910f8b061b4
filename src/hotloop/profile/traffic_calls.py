"""The functions through which Python code sends, receives and waits, with how much a call moves.

One table: what is not in it is not seen. Each entry names a function where callers look it up, and
reads the bytes from its arguments and its result.
"""

import multiprocessing.connection
import os
import select
import selectors
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from multiprocessing import shared_memory
from typing import Any, NamedTuple

from hotloop.profile.descriptors import Descriptors

SEVERAL, SHARED = "several at once", "shared memory"

# Of the arguments: what the call is about, or None where that is no way between processes.
KindOf = Callable[[Sequence[Any]], str | None]
# Of the arguments and the result: bytes.
Size = Callable[[Sequence[Any], Any], int]


class Call(NamedTuple):
    """A function that sends, receives or waits. owner: the module or class that has it."""

    owner: Any
    name: str
    kind: KindOf
    sent: Size
    received: Size


def calls_of_python(descriptors: Descriptors) -> list[Call]:
    """The table, for what is loaded now."""

    def of_socket(args: Sequence[Any]) -> str | None:
        return descriptors.kind(args[0].fileno())

    def of_tls(args: Sequence[Any]) -> str | None:
        kind = of_socket(args)
        return None if kind is None else f"{kind}, TLS"

    def of_descriptor(args: Sequence[Any]) -> str | None:
        return descriptors.kind(args[0])

    def of_connection(args: Sequence[Any]) -> str | None:
        return descriptors.kind(args[0].fileno())

    plain, tls = socket.socket, ssl.SSLSocket
    connection = multiprocessing.connection.Connection
    return [
        *(Call(plain, name, of_socket, _none, _length) for name in ("recv", "recv_into")),
        *(Call(plain, name, of_socket, _none, _first) for name in _WITH_ADDRESS),
        *(Call(plain, name, of_socket, _length, _none) for name in _SENDING),
        Call(plain, "sendall", of_socket, _data, _none),
        *(Call(plain, name, of_socket, _none, _none) for name in ("accept", "connect")),
        Call(tls, "read", of_tls, _none, _length),
        *(Call(tls, name, of_tls, _length, _none) for name in ("send", "write")),
        Call(tls, "do_handshake", of_tls, _none, _none),
        *(Call(os, name, of_descriptor, _none, _length) for name in ("read", "readv")),
        *(Call(os, name, of_descriptor, _length, _none) for name in _WRITING),
        Call(connection, "_send", of_connection, _data, _none),
        Call(connection, "_recv", of_connection, _none, _written),
        *(Call(owner, name, _several, _none, _none) for owner, name in _waits()),
        Call(shared_memory.SharedMemory, "__init__", _shared, _none, _segment),
        *_tensors(),
    ]


_WITH_ADDRESS = ("recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into")
_SENDING = ("send", "sendto", "sendmsg", "sendfile")
_WRITING = tuple(name for name in ("write", "writev", "sendfile") if hasattr(os, name))


def _waits() -> list[tuple[Any, str]]:
    """Where Python waits for several descriptors; event loops wait for their timers there too."""
    found: list[tuple[Any, str]] = [(multiprocessing.connection, "wait"), (select, "select")]
    for name in ("EpollSelector", "PollSelector", "SelectSelector", "KqueueSelector"):
        if hasattr(selectors, name):
            found.append((getattr(selectors, name), "select"))
    return found


def _tensors() -> list[Call]:
    """Where tensors in shared memory arrive from another process, if torch is loaded."""
    module = sys.modules.get("torch.multiprocessing.reductions")
    names = ("rebuild_storage_fd", "rebuild_storage_filename")
    sizes: tuple[Size, ...] = (lambda args, _result: args[2], lambda args, _result: args[3])
    return [
        Call(module, name, _shared, _none, size)
        for name, size in zip(names, sizes, strict=True)
        if hasattr(module, name)
    ]


def _several(_args: Sequence[Any]) -> str:
    return SEVERAL


def _shared(_args: Sequence[Any]) -> str:
    return SHARED


# --- bytes of a call -----------------------------------------------------------------------------


def _none(_args: Sequence[Any], _result: Any) -> int:
    return 0


def _length(_args: Sequence[Any], result: Any) -> int:
    """What was returned: bytes, or their number."""
    return result if isinstance(result, int) else len(result)


def _first(args: Sequence[Any], result: Any) -> int:
    """The same, with an address or flags after it."""
    return _length(args, result[0])


def _data(args: Sequence[Any], _result: Any) -> int:
    """What was to be sent, all of it."""
    return memoryview(args[1]).nbytes


def _written(_args: Sequence[Any], result: Any) -> int:
    """What was read into a buffer in memory."""
    return len(result.getbuffer())


def _segment(args: Sequence[Any], _result: Any) -> int:
    """A segment of shared memory that was opened."""
    return int(args[0].size)
