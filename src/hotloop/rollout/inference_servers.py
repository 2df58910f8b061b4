"""The driver's end of an inference server: start one, send it updates, see that it answers.

A server runs in a process of this machine or in a Ray actor; the table `_SERVERS` says which for
which backend.
"""

import math
import os
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection, Listener
from multiprocessing.util import Finalize
from typing import Any, Protocol

import cloudpickle

from hotloop.errors import SettingError
from hotloop.rollout.inference import InferenceSettings, serve
from hotloop.rollout.program import Program, serve_driver
from hotloop.rollout.served_policy import (
    BACKLOG,
    DRIVE,
    FIGURES,
    PATIENCE_S,
    PING,
    UPDATE,
    AnyConnection,
    ServedPolicy,
    connect,
    receive,
    send,
)
from hotloop.rollout.worker import Update
from hotloop.rollout.worker_pool import Resources, load_ray_part

LOOK_S = 0.01  # between two looks at a server that is starting
# A start may import large packages and move a policy: no server is taken for hung before that.
START_S = 120.0
PING_S = 0.5  # between two questions whether a server answers


class ServerHome(Protocol):
    """Where a server runs. `find` gives its address, also in other processes."""

    find: Callable[[], Any]

    def start(self, key: bytes, arguments: bytes) -> None:
        """Start a server, in the place of one that has died; arguments: for `serve`."""
        ...

    def answer(self) -> bytes | None:
        """What it said of its start, once: nothing yet (None), ready (empty), or an error."""
        ...

    def ended(self) -> str:
        """How it has ended; empty while it lives."""
        ...

    def close(self) -> None:
        """End it, after it was left by the driver. Idempotent."""
        ...


class ServerOfDriver:
    """A server as the driver sees it: updates are sent to it, and it is checked that it lives.

    policy: the first one, of version 0. Raises: SettingError for a backend without servers.
    """

    def __init__(
        self,
        backend: str,
        policy: Update,
        settings: InferenceSettings,
        seed: int,
        resources: Resources,
    ) -> None:
        expect_servers(backend)
        self._settings, self._seed, self._policy = settings, seed, policy
        self._weights: Update | None = None
        self._key = secrets.token_bytes(32)
        self._home = _SERVERS[backend](settings, resources)
        self._connection: AnyConnection | None = None
        self._generation, self._closed = 0, False
        self._silent_s, self._looked_s, self._is_asked = 0.0, 0.0, False
        self._start()

    def _start(self) -> None:
        self._silent_s, self._looked_s, self._is_asked = 0.0, time.monotonic(), False
        updates = [self._policy, *([] if self._weights is None else [self._weights])]
        # Another one than of the server before: no two draw alike.
        seed = self._seed + self._generation
        self._home.start(self._key, cloudpickle.dumps((updates, self._settings, seed)))

    def client(self) -> ServedPolicy:
        """What acts in a worker."""
        timeout_s = self._settings.timeout_s or 0.0
        return ServedPolicy(self._home.find, self._key, PATIENCE_S + timeout_s)

    def update(self, update: Update) -> None:
        """Send a policy or weights, which act in all requests that are made afterwards.

        A server that is just starting is waited for: else it might answer before it knows of them.
        """
        if update.is_policy:
            self._policy, self._weights = update, None
        else:
            self._weights = update
        if self._connection is not None:
            self._send(update)
        while self._connection is None and not self.check():
            time.sleep(LOOK_S)

    def check(self) -> str:
        """Look after the server; returns how it has died or hangs, empty if it does neither.

        Raises: what its start has raised there.
        """
        if self._connection is None and (answer := self._home.answer()) is not None:
            if answer:
                error: Exception = cloudpickle.loads(answer)
                error.add_note("in the inference server")
                raise error
            self._join()
        return self._end()

    def _join(self) -> None:
        try:
            connection = connect(self._home.find(), self._key, self._settings.timeout_s)
            self._connection = connection
            # Heard before updates go this way: else a worker's request, on a connection that the
            # server already reads, could be answered before an update that was sent first.
            send(connection, DRIVE)
            self._receive()
        except (EOFError, OSError) as error:  # it has died since, or hangs: for `_end` to say
            self._note(error)
            return
        for update in (self._policy, self._weights):
            if update is not None:
                self._send(update)

    def _end(self) -> str:
        ended = self._home.ended()
        return f"it died ({ended})" if ended else self._hung()

    def has_ended(self) -> bool:
        """Return whether it answers nothing any more: it has died, hangs, or was closed."""
        return self._closed or bool(self._end())

    def replace(self) -> None:
        """Start another one with the newest policy, in the place of one that has died."""
        self._leave()
        self._generation += 1
        self._start()

    def figures(self) -> dict[str, float]:
        """What it has done since it was asked last; nothing of one that is not ready."""
        if self._connection is None or self._hung():
            return {}
        try:
            send(self._connection, FIGURES)
            while (answer := self._receive())[0] != FIGURES:
                pass
        except (EOFError, OSError) as error:
            self._note(error)
            return {}
        return dict(answer[1])

    def close(self) -> None:
        """End the server. Idempotent."""
        self._leave()
        self._closed = True
        self._home.close()

    def _send(self, update: Update) -> None:
        if self._connection is not None and not self._hung():
            try:
                send(self._connection, UPDATE, update)
            except OSError as error:
                self._note(error)

    # --- whether it answers ----------------------------------------------------------------------

    def _hung(self) -> str:
        """Say for how long it has not answered, if that is too long; else empty.

        Only time in which this end has looked counts: a driver that was busy, or stopped itself,
        first hears what was said meanwhile.
        """
        limit_s = self._settings.timeout_s
        if limit_s is None:
            return ""
        now_s = time.monotonic()
        if now_s - self._looked_s >= min(PING_S, limit_s):
            self._silent_s += min(now_s - self._looked_s, 2 * PING_S)
            self._looked_s = now_s
            self._ask_and_hear()
        if self._connection is None:
            limit_s = max(START_S, limit_s)
        return f"no answer for {limit_s:g} s" if self._silent_s > limit_s else ""

    def _ask_and_hear(self) -> None:
        if self._connection is None:
            return
        try:
            while self._connection.poll(0):
                self._receive()
            if not self._is_asked:
                self._is_asked = True
                send(self._connection, PING)
        except (EOFError, OSError) as error:
            self._note(error)

    def _receive(self) -> Any:
        assert self._connection is not None
        answer = receive(self._connection)
        self._silent_s, self._is_asked = 0.0, self._is_asked and answer[0] != PING
        return answer

    def _note(self, error: EOFError | OSError) -> None:
        """Note what its connection raised; that it has died is for `check` to say."""
        if isinstance(error, BlockingIOError):  # part of a message may be on its way
            self._silent_s = math.inf

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# --- a process of this machine -----------------------------------------------------------------


class _ServerProcess(Program):
    """The driver's end of a server's process; all that it says here is how its start went."""

    def __init__(self, threads: int) -> None:
        super().__init__(__name__, threads)

    def receive(self) -> bytes:
        """Return nothing, or a pickled error. Raises: EOFError or OSError for a dead process."""
        return self.connection.recv_bytes()


class _ProcessHome:
    """A server in a process of this machine; its socket is no entry of a folder."""

    def __init__(self, settings: InferenceSettings) -> None:
        self._threads = settings.threads
        self._address = f"\0hotloop-inference-{os.getpid()}-{secrets.token_hex(8)}"
        self.find: Callable[[], Any] = partial(str, self._address)
        self._programs: dict[int, _ServerProcess] = {}  # the one that lives
        # Before the interpreter waits for anything at its end, and when this is dropped.
        self.close = Finalize(self, _end, args=(self._programs,), exitpriority=99)

    def start(self, key: bytes, arguments: bytes) -> None:
        """Start a process."""
        _end(self._programs)
        program = self._programs[0] = _ServerProcess(self._threads)
        program.send(self._address, key, arguments)

    def answer(self) -> bytes | None:
        """What it said of its start, once."""
        arrived, _ = self._programs[0].receive_all()
        return arrived[0] if arrived else None

    def ended(self) -> str:
        """How it has ended; empty while it lives."""
        program = self._programs[0]
        return "" if program.process.poll() is None else program.end()


def _end(programs: dict[int, _ServerProcess]) -> None:
    for program in programs.values():
        program.end()  # at once: a server has nothing to close
    programs.clear()


def main() -> None:
    """The program that a server process runs."""
    serve_driver(_serve)


def _serve(connection: "Connection[Any, Any]") -> None:
    address, key, arguments = connection.recv()
    with Listener(address, backlog=BACKLOG, authkey=key) as listener:
        serve(listener, arguments, connection.send_bytes)


# --- the table -----------------------------------------------------------------------------------


def expect_servers(backend: str) -> None:
    """Refuse workers that no server can act for, with SettingError."""
    if backend not in _SERVERS:
        raise SettingError(
            f"inference server: expected workers in {' or '.join(map(repr, _SERVERS))}, got "
            f"backend {backend!r}; choose one of these, or let the policy act beside the envs"
        )


def _process(settings: InferenceSettings, _resources: Resources) -> ServerHome:
    return _ProcessHome(settings)


def _ray(settings: InferenceSettings, resources: Resources) -> ServerHome:
    home: ServerHome = load_ray_part("hotloop.rollout.inference_ray").RayHome(settings, resources)
    return home


_SERVERS: Mapping[str, Callable[[InferenceSettings, Resources], ServerHome]] = {
    "process": _process,
    "ray": _ray,
}
