"""A policy that asks an inference server, and the messages between them.

Requests travel through sockets, in one machine and between machines alike.
"""

import pickle
import socket
import struct
import time
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, TypeAlias

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from hotloop.data.layout import Tree
from hotloop.errors import WorkerError

AnyConnection: TypeAlias = "Connection[Any, Any]"
PATIENCE_S = 30.0  # a server that is gone may be replaced within so long
_RETRY_S = 0.05
# Of TCP: a machine that is silent for half a minute is asked whether it is there, three times.
_KEEP_ALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
BACKLOG = 1024  # workers that may connect at once
# The kinds of messages, to the server and from it.
JOIN, DRIVE, ACT, UPDATE, FIGURES = "join", "drive", "act", "update", "figures"
PING = "ping"
ACTED, FAILED = "acted", "failed"


class ServedPolicy:
    """A policy that asks an inference server.

    find: gives the address of the server, also of one that has taken the place of another; raises
    OSError while there is none. patience_s: for so long another is looked for when one is gone.
    version: of the policy that acted last.
    """

    def __init__(self, find: Callable[[], Any], key: bytes, patience_s: float = PATIENCE_S) -> None:
        self._find, self._key, self._patience_s = find, key, patience_s
        self._env_ids = np.zeros(0, np.int64)
        self._connection: AnyConnection | None = None
        self.version = 0

    def act_for(self, env_ids: NDArray[np.integer[Any]]) -> None:
        """Act for these envs from now on."""
        self._env_ids = np.asarray(env_ids, np.int64)

    def __call__(self, obs: Tree) -> Any:
        """Return what the server's policy returns for observations (B, ...).

        A request that was under way when a server ended is sent to the next one.
        Raises: what the policy raises there; WorkerError where no server is found for a while.
        """
        request = pickle.dumps((ACT, obs), 5)
        give_up_s: float | None = None
        while True:
            try:
                kind, *answer = self._ask(request)
                break
            except (EOFError, OSError) as gone:
                self.close()
                now = time.monotonic()
                give_up_s = give_up_s or now + self._patience_s
                if now > give_up_s:
                    raise WorkerError(
                        "inference server: expected one that answers, got none for "
                        f"{self._patience_s:g} s ({gone}); look for what ended it, or allow more "
                        "restarts"
                    ) from gone
                time.sleep(_RETRY_S)
        if kind == FAILED:
            error: Exception = cloudpickle.loads(answer[0])
            error.add_note("in the inference server")
            raise error
        acted, self.version = answer
        return acted

    def _ask(self, request: bytes) -> Any:
        if self._connection is None:
            self._connection = connect(self._find(), self._key)
            send(self._connection, JOIN, self._env_ids)
        self._connection.send_bytes(request)
        return receive(self._connection)

    def close(self) -> None:
        """Leave the server. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ServedPolicy, (self._find, self._key, self._patience_s)


def connect(address: Any, key: bytes, limit_s: float | None = None) -> AnyConnection:
    """Connect to a server.

    limit_s: whatever is sent or received there raises BlockingIOError, an OSError, when nothing
    has moved for so long; None waits for ever.
    Raises: OSError where there is none, or one of another driver.
    """
    is_tcp = isinstance(address, tuple)
    with socket.socket(socket.AF_INET if is_tcp else socket.AF_UNIX) as through:
        if limit_s is not None:
            limit = struct.pack("ll", int(limit_s), int(limit_s % 1 * 1e6))
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                through.setsockopt(socket.SOL_SOCKET, option, limit)
        if is_tcp:
            _notice_lost_machines(through)
        through.connect(address)
        connection: AnyConnection = Connection(through.detach())
    try:
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
    except (AuthenticationError, EOFError, OSError) as error:
        connection.close()
        raise OSError(f"no inference server of this driver at {address}: {error}") from error
    send_at_once(connection, address)
    return connection


def _notice_lost_machines(through: socket.socket) -> None:
    """Let a receiver fail whose other end has gone without a word, as a machine without power."""
    through.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        through.setsockopt(socket.IPPROTO_TCP, option, value)


def send(connection: AnyConnection, *message: Any) -> None:
    """Send a message. Raises: OSError where nobody reads it."""
    connection.send_bytes(pickle.dumps(message, 5))


def receive(connection: AnyConnection) -> Any:
    """Receive a message. Raises: EOFError or OSError where nobody sends one."""
    return pickle.loads(connection.recv_bytes())


def send_at_once(connection: AnyConnection, address: Any) -> None:
    """Of TCP: send what is written at once, for a large message is written in two parts."""
    if isinstance(address, tuple):
        with socket.socket(fileno=connection.fileno()) as through:
            through.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            through.detach()
