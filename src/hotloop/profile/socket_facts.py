"""What the kernel says of a socket by its descriptor alone, whoever has opened it.

Python's own socket objects are not made for this: making one may change how the socket waits.
"""

import ctypes
import socket
import struct
from typing import NamedTuple

# Linux's numbers; Python has no names for them.
_SO_DOMAIN, _ADDRESS_BYTES, _INFO_BYTES = 39, 128, 256
# Where a struct tcp_info has its sums, as in linux/tcp.h; older kernels tell less.
_ACKED, _RECEIVED, _SENT, _SENT_AGAIN = 120, 128, 200, 208
_libc = ctypes.CDLL(None)


class Moved(NamedTuple):
    """Bytes sent, without what was sent again, and received."""

    sent: int
    received: int


def family_of(descriptor: int) -> int | None:
    """The family of addresses, such as AF_UNIX; None for what is no socket."""
    found = _option(descriptor, socket.SOL_SOCKET, _SO_DOMAIN, 4)
    return None if found is None else int(struct.unpack("i", found)[0])


def is_stream(descriptor: int) -> bool:
    """Whether it is a connection, and no socket of single messages."""
    found = _option(descriptor, socket.SOL_SOCKET, socket.SO_TYPE, 4)
    return found is not None and struct.unpack("i", found)[0] == socket.SOCK_STREAM


def is_to_this_machine(descriptor: int) -> bool | None:
    """Whether an internet socket is connected to its own machine; None if to nothing."""
    here, there = (_address(descriptor, name) for name in ("getsockname", "getpeername"))
    if there is None:
        return None
    return there in (here, _LOOPBACK) or there.startswith(b"\x7f")


def tcp_bytes(descriptor: int) -> Moved | None:
    """What a TCP socket has moved; None for anything else."""
    if family_of(descriptor) not in (socket.AF_INET, socket.AF_INET6):
        return None
    info = _option(descriptor, socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if info is None or len(info) < _RECEIVED + 8:
        return None
    (received,) = struct.unpack_from("Q", info, _RECEIVED)
    if len(info) < _SENT_AGAIN + 8:
        (acked,) = struct.unpack_from("Q", info, _ACKED)
        return Moved(acked, received)
    sent, again = struct.unpack_from("QQ", info, _SENT)
    return Moved(sent - again, received)


_LOOPBACK = b"\0" * 15 + b"\x01"
_MAPPED = b"\0" * 10 + b"\xff\xff"  # before an address of version 4 in one of version 6


def _address(descriptor: int, function: str) -> bytes | None:
    """The address of one end of an internet socket, without its port."""
    buffer, size = ctypes.create_string_buffer(_ADDRESS_BYTES), ctypes.c_uint(_ADDRESS_BYTES)
    if getattr(_libc, function)(descriptor, buffer, ctypes.byref(size)):
        return None
    (family,) = struct.unpack_from("H", buffer.raw)
    if family == socket.AF_INET:
        return buffer.raw[4:8]
    return buffer.raw[8:24].removeprefix(_MAPPED) if family == socket.AF_INET6 else None


def _option(descriptor: int, level: int, option: int, most: int) -> bytes | None:
    buffer, size = ctypes.create_string_buffer(most), ctypes.c_uint(most)
    if _libc.getsockopt(descriptor, level, option, buffer, ctypes.byref(size)):
        return None
    return buffer.raw[: size.value]
