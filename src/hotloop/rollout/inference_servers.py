"""The driver's end of an inference server: start one, send it updates, notice when it dies.

A server runs in a process of this machine or in a Ray actor; the table `_SERVERS` says which for
which backend.
"""

import contextlib
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection, Listener
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Protocol

import cloudpickle

from hotloop.errors import SettingError
from hotloop.rollout.inference import InferenceSettings, serve
from hotloop.rollout.program import Program, serve_driver
from hotloop.rollout.served_policy import (
    BACKLOG,
    DRIVE,
    FIGURES,
    UPDATE,
    AnyConnection,
    ServedPolicy,
    connect,
    receive,
    send,
)
from hotloop.rollout.worker import Update
from hotloop.rollout.worker_pool import Resources, load_ray_part

START_S = 0.01  # between two looks at a server that is starting


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
        self._start()

    def _start(self) -> None:
        updates = [self._policy, *([] if self._weights is None else [self._weights])]
        # Another one than of the server before: no two draw alike.
        seed = self._seed + self._generation
        self._home.start(self._key, cloudpickle.dumps((updates, self._settings, seed)))

    def client(self) -> ServedPolicy:
        """What acts in a worker."""
        return ServedPolicy(self._home.find, self._key)

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
            time.sleep(START_S)

    def check(self) -> str:
        """Look after the server; returns how it has died, empty if it has not.

        Raises: what its start has raised there.
        """
        if self._connection is None and (answer := self._home.answer()) is not None:
            if answer:
                error: Exception = cloudpickle.loads(answer)
                error.add_note("in the inference server")
                raise error
            with contextlib.suppress(OSError):  # it has died since, which is seen below
                self._connection = connect(self._home.find(), self._key)
                send(self._connection, DRIVE)
                for update in (self._policy, self._weights):
                    if update is not None:
                        self._send(update)
        return self._home.ended()

    def has_ended(self) -> bool:
        """Return whether it has died, or was closed."""
        return self._closed or bool(self._home.ended())

    def replace(self) -> None:
        """Start another one with the newest policy, in the place of one that has died."""
        self._leave()
        self._generation += 1
        self._start()

    def figures(self) -> dict[str, float]:
        """What it has done since it was asked last; nothing of one that is not ready."""
        if self._connection is None:
            return {}
        try:
            send(self._connection, FIGURES)
            [figures] = receive(self._connection)
        except (EOFError, OSError):
            return {}
        return dict(figures)

    def close(self) -> None:
        """End the server. Idempotent."""
        self._leave()
        self._closed = True
        self._home.close()

    def _send(self, update: Update) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):  # that it has died is for `check` to say
                send(self._connection, UPDATE, update)

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
    """A server in a process of this machine; on Linux its socket is no entry of a folder."""

    def __init__(self, settings: InferenceSettings) -> None:
        self._threads = settings.threads
        name = f"hotloop-inference-{os.getpid()}-{secrets.token_hex(8)}"
        folder = Path(tempfile.gettempdir())
        self._address = f"\0{name}" if sys.platform == "linux" else str(folder / name)
        self.find: Callable[[], Any] = partial(str, self._address)
        self._programs: dict[int, _ServerProcess] = {}  # the one that lives
        # Before the interpreter waits for anything at its end, and when this is dropped.
        self.close = Finalize(self, _end, args=(self._programs, self._address), exitpriority=99)

    def start(self, key: bytes, arguments: bytes) -> None:
        """Start a process."""
        _end(self._programs, self._address)
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


def _end(programs: dict[int, _ServerProcess], address: str) -> None:
    for program in programs.values():
        program.end()  # at once: a server has nothing to close
    programs.clear()
    if not address.startswith("\0"):
        Path(address).unlink(missing_ok=True)


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
