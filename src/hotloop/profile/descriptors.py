"""What a file descriptor leads to: a pipe, a socket of this machine or to another one, or no way
between processes.
"""

import os
import socket
import stat

from hotloop.profile.socket_facts import family_of, is_stream, is_to_this_machine

TCP_LOCAL, TCP_REMOTE = "TCP, this machine", "TCP, another machine"
TCP_UNCONNECTED, UDP = "TCP, not connected", "UDP"
UNIX, PIPE, WAKE_UP, OTHER = "unix socket", "pipe", "wake-up", "other socket"
_MOST_KNOWN = 10_000


class Descriptors:
    """Tells what descriptors lead to; each pipe and socket is looked at once.

    The kernel numbers them, and does not use a number again.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], str] = {}

    def kind(self, descriptor: int) -> str | None:
        """One of the names above; None for files and what else is no way between processes."""
        try:
            about = os.fstat(descriptor)
        except OSError:
            return None
        if stat.S_IFMT(about.st_mode) == 0:
            return WAKE_UP  # an event of the kernel; all of them have one number
        if not stat.S_ISSOCK(about.st_mode):
            return PIPE if stat.S_ISFIFO(about.st_mode) else None
        key = about.st_dev, about.st_ino
        kind = self._known.get(key)
        if kind is None:
            kind = _kind_of_socket(descriptor)
            if kind != TCP_UNCONNECTED:
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[key] = kind
        return kind


def _kind_of_socket(descriptor: int) -> str:
    family = family_of(descriptor)
    if family == socket.AF_UNIX:
        return UNIX
    if family not in (socket.AF_INET, socket.AF_INET6):
        return OTHER
    if not is_stream(descriptor):
        return UDP
    is_local = is_to_this_machine(descriptor)
    if is_local is None:
        return TCP_UNCONNECTED
    return TCP_LOCAL if is_local else TCP_REMOTE
