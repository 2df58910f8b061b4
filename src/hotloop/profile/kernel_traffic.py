"""What the kernel has counted: of this process's TCP sockets, and of all that this machine sends.

Libraries that send from compiled code are in these sums, so they say how much of it Python's own
calls explain. A socket that is opened and closed by such a library between two readings is missing.
"""

import os
import socket
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotloop.profile.replaced import Replaced, Replacement
from hotloop.profile.socket_facts import Moved, tcp_bytes

_DESCRIPTORS, _NETSTAT = Path("/proc/self/fd"), Path("/proc/net/netstat")


@dataclass
class KernelTraffic:
    """Bytes in an iteration, as the kernel counts.

    sockets: TCP sockets of this process that moved something. namespace_sent, namespace_received:
    of all processes that share the network, with the headers of packets; None where not told.
    """

    sockets: int
    tcp_sent: float
    tcp_received: float
    namespace_sent: float | None
    namespace_received: float | None


class KernelCounter:
    """Adds up what the kernel counts between each `start` and `stop`."""

    def __init__(self) -> None:
        self._moved: dict[int, Moved] = defaultdict(lambda: Moved(0, 0))
        self._namespace: Moved | None = Moved(0, 0)
        self._before: tuple[dict[int, Moved], Moved | None] | None = None
        self._closed: dict[int, Moved] = {}
        self._replaced = Replaced([Replacement(socket.socket, "close", self._closing)])

    @staticmethod
    def available() -> bool:
        """Whether this kernel tells what each socket of a process has moved: Linux does."""
        return _DESCRIPTORS.is_dir()

    def start(self) -> None:
        """Read all counters."""
        self._closed = {}
        self._before = _tcp_sockets(), _namespace()
        self._replaced.start()

    def stop(self) -> None:
        """Read them again, and add the difference; may be called twice."""
        before, self._before = self._before, None
        if before is None:
            return
        now = _namespace()
        for number, moved in (self._closed | _tcp_sockets()).items():
            grown = _grown(before[0].get(number, Moved(0, 0)), moved)
            self._moved[number] = _sum(self._moved[number], grown)
        self._replaced.stop()
        if now is None or before[1] is None or self._namespace is None:
            self._namespace = None
        else:
            self._namespace = _sum(self._namespace, _grown(before[1], now))

    def traffic(self, iterations: int) -> KernelTraffic:
        """The sums, of an iteration."""
        moved = [each for each in self._moved.values() if any(each)]
        around = self._namespace
        return KernelTraffic(
            sockets=len(moved),
            tcp_sent=sum(each.sent for each in moved) / iterations,
            tcp_received=sum(each.received for each in moved) / iterations,
            namespace_sent=None if around is None else around.sent / iterations,
            namespace_received=None if around is None else around.received / iterations,
        )

    def _closing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Read a socket's counters before it is gone."""

        def close(closed: socket.socket) -> Any:
            read = _numbered(closed.fileno())
            if read is not None:
                self._closed[read[0]] = read[1]
            return original(closed)

        return close


def _tcp_sockets() -> dict[int, Moved]:
    """What each TCP socket of this process has moved, by its number."""
    found = {}
    for entry in _DESCRIPTORS.iterdir():
        read = _numbered(int(entry.name))
        if read is not None:
            found[read[0]] = read[1]
    return found


def _numbered(descriptor: int) -> tuple[int, Moved] | None:
    """The kernel's number of a TCP socket, and what it has moved; None for anything else."""
    moved = tcp_bytes(descriptor)
    if moved is None:
        return None
    try:
        return os.fstat(descriptor).st_ino, moved
    except OSError:
        return None  # closed meanwhile, by another thread


def _grown(before: Moved, after: Moved) -> Moved:
    return Moved(after.sent - before.sent, after.received - before.received)


def _sum(one: Moved, other: Moved) -> Moved:
    return Moved(one.sent + other.sent, one.received + other.received)


def _namespace() -> Moved | None:
    """Bytes sent and received by all that shares this network."""
    try:
        lines = _NETSTAT.read_text().splitlines()
    except OSError:
        return None
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        if names.startswith("IpExt:"):
            told = dict(zip(names.split()[1:], values.split()[1:], strict=True))
            return Moved(int(told["OutOctets"]), int(told["InOctets"]))
    return None
