"""One policy for the envs of many workers: an inference server.

A worker sends the observations of its envs and waits for their actions; the server computes for
the requests of many workers at once. It waits for more requests until a batch is large enough,
until every worker waits, or until the oldest request has waited for a while; so no slow worker
holds the others. Every answer says which version of the policy it is of.

What asks it stands in `served_policy.py`, how one is started and watched in `inference_servers.py`.
"""

import contextlib
import math
import pickle
import queue
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from hotloop.data.layout import Tree, leaves, tree_map
from hotloop.errors import SettingError, expect_positive
from hotloop.rollout.served_policy import (
    ACT,
    ACTED,
    DRIVE,
    FAILED,
    FIGURES,
    JOIN,
    PING,
    UPDATE,
    AnyConnection,
    receive,
    send,
    send_at_once,
)
from hotloop.rollout.worker import Failure, TakesEnvs, TakesSeed, TakesWeights, Update


@dataclass(frozen=True)
class InferenceSettings:
    """Settings of an inference server.

    batch_rows: a batch of so many observations waits no longer, and has no more unless a worker
    has more envs; None: no limit.
    deadline_s: for so long a request waits for others, rounded up to a millisecond.
    device: where the policy acts; another one than "cpu" needs a policy with `on(device)`.
    threads: of numerical libraries.
    timeout_s: a server that has not answered its driver for so long counts as dead, which it asks
    between two batches: longer than the slowest batch takes. None waits for ever.

    Raises: SettingError.
    """

    batch_rows: int | None = None
    deadline_s: float = 0.001
    device: str = "cpu"
    threads: int = 1
    timeout_s: float | None = 60.0

    def __post_init__(self) -> None:
        expect_positive("inference server: batch_rows", self.batch_rows)
        expect_positive("inference server: threads", self.threads)
        expect_positive("inference server: timeout_s", self.timeout_s)
        if not 0 < self.deadline_s < math.inf:
            raise SettingError(
                "inference server: deadline_s: expected a time above 0, for which a request waits "
                f"for others, got {self.deadline_s}; the shortest that acts is 0.001"
            )


@dataclass
class _Worker:
    """What a server knows of a worker."""

    connection: AnyConnection
    env_ids: NDArray[np.int64]


@dataclass(frozen=True)
class _Request:
    worker: _Worker
    obs: Tree
    since_s: float

    @property
    def rows(self) -> int:
        return len(self.worker.env_ids)


@dataclass
class _Sums:
    """What a server has done since it was asked last."""

    since_s: float
    batches: int = 0
    rows: int = 0
    requests: int = 0
    waited_s: float = 0.0  # of all requests, until their batch began
    busy_s: float = 0.0

    def figures(self, now_s: float) -> dict[str, float]:
        """Means: rows of a batch, seconds that a request waited, share of the time at work."""
        return {
            "server_batch_rows": self.rows / max(1, self.batches),
            "server_wait_s": self.waited_s / max(1, self.requests),
            "server_busy": self.busy_s / max(1e-9, now_s - self.since_s),
        }


class InferenceServer:
    """Answers the requests of all workers that connect; `serve` returns when the driver leaves.

    listener: where workers and the driver connect. updates: the policy that acts, and weights for
    it if there are newer ones. seed: of its draws.
    Raises: what unpickling the policy raises; SettingError for a device that it does not know.
    """

    def __init__(
        self,
        listener: Listener,
        updates: Sequence[Update],
        settings: InferenceSettings,
        seed: int,
    ) -> None:
        self._listener, self._device, self._seed = listener, settings.device, seed
        self._rows = math.inf if settings.batch_rows is None else settings.batch_rows
        self._deadline_s = settings.deadline_s
        self._policy: Any = None
        self._version = -1
        for update in updates:
            self._update(update)
        self._workers: dict[AnyConnection, _Worker] = {}
        self._driver: AnyConnection | None = None
        self._waiting: deque[_Request] = deque()
        self._new: queue.SimpleQueue[AnyConnection] = queue.SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._wakes, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._left = False
        self._sums = _Sums(time.monotonic())

    def serve(self) -> None:
        """Answer until the driver leaves."""
        threading.Thread(target=self._accept, name="hotloop-accept", daemon=True).start()
        with self._selector, self._woken, self._wakes:
            while not self._left:
                self._serve_once()
            for connection in list(self._workers):
                self._drop(connection)

    def _serve_once(self) -> None:
        for key, _ in self._selector.select(self._patience()):
            if key.fileobj is self._woken:
                self._welcome()
            elif isinstance(key.fileobj, Connection):
                self._read(key.fileobj)
        self._hear_driver()
        if self._is_due():
            self._answer()

    # --- who asks ------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                self._new.put(self._listener.accept())
            except (AuthenticationError, EOFError, ConnectionError):
                continue  # a stranger, or one that left again
            except OSError:
                return  # closed
            with contextlib.suppress(OSError):  # the server has ended
                self._wakes.send(b"1")

    def _welcome(self) -> None:
        self._woken.recv(1)
        connection = self._new.get()
        send_at_once(connection, self._listener.address)
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: AnyConnection) -> None:
        try:
            kind, *rest = receive(connection)
            if kind == ACT:
                worker = self._workers[connection]
                self._waiting.append(_Request(worker, rest[0], time.monotonic()))
            elif kind == UPDATE:
                self._update(rest[0])
            elif kind == FIGURES:
                now_s = time.monotonic()
                figures, self._sums = self._sums.figures(now_s), _Sums(now_s)
                send(connection, FIGURES, figures)
            elif kind == PING:
                send(connection, PING)
            elif kind == JOIN:
                self._workers[connection] = _Worker(connection, rest[0])
            else:
                self._driver = connection
                send(connection, DRIVE)
        except (EOFError, OSError):
            self._drop(connection)

    def _hear_driver(self) -> None:
        """Read all that the driver has sent: an update may lie behind other messages, and a request
        that was made after it is answered by it.
        """
        while (driver := self._driver) is not None and not self._left:
            try:
                if not driver.poll(0):
                    return
            except OSError:
                self._drop(driver)
                return
            self._read(driver)

    def _drop(self, connection: AnyConnection) -> None:
        """Forget who left; what it asked for is not computed."""
        self._left = self._left or connection is self._driver
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        self._workers.pop(connection, None)
        self._waiting = deque(r for r in self._waiting if r.worker.connection is not connection)
        connection.close()

    def _update(self, update: Update) -> None:
        """Act by a policy or weights from the next batch on, unless the present ones are newer."""
        if update.version <= self._version:
            return
        if update.is_policy:
            self._policy = self._placed(update)
        else:
            assert isinstance(self._policy, TakesWeights)  # the collector refuses others
            self._policy.load_weights(cloudpickle.loads(update.payload))
        self._version = update.version

    def _placed(self, update: Update) -> Any:
        policy = cloudpickle.loads(update.payload)
        if self._device != "cpu":
            if not hasattr(policy, "on"):
                raise SettingError(
                    "inference server: device: expected 'cpu', as the policy, a "
                    f"{type(policy).__qualname__}, has no method on(device), got {self._device!r}"
                )
            policy = policy.on(self._device)
        if isinstance(policy, TakesSeed):
            seeds = np.random.SeedSequence((self._seed, update.version))
            policy.seed(int(seeds.generate_state(1)[0]))
        return policy

    # --- batches -------------------------------------------------------------------------------

    def _patience(self) -> float | None:
        """For how long more requests are waited for; None: until there is one."""
        if not self._waiting:
            return None
        return max(0.0, self._waiting[0].since_s + self._deadline_s - time.monotonic())

    def _is_due(self) -> bool:
        waiting = self._waiting
        return bool(waiting) and (
            len(waiting) >= len(self._workers)
            or sum(request.rows for request in waiting) >= self._rows
            or self._patience() == 0
        )

    def _answer(self) -> None:
        """Compute for the oldest requests, together at most a batch, at least one."""
        requests = [self._waiting.popleft()]
        rows = requests[0].rows
        while self._waiting and rows + self._waiting[0].rows <= self._rows:
            requests.append(self._waiting.popleft())
            rows += requests[-1].rows
        begin_s = time.monotonic()
        self._sums.waited_s += sum(begin_s - request.since_s for request in requests)
        self._compute(requests)
        self._sums.busy_s += time.monotonic() - begin_s
        self._sums.batches += 1
        self._sums.requests += len(requests)
        self._sums.rows += rows

    def _compute(self, requests: Sequence[_Request]) -> None:
        try:
            parts = split_rows(self._act(requests), [request.rows for request in requests])
            answers = [pickle.dumps((ACTED, part, self._version), 5) for part in parts]
        except Exception as error:
            if len(requests) > 1:  # so that an error reaches the worker that it is of
                for request in requests:
                    self._compute([request])
                return
            answers = [pickle.dumps((FAILED, Failure.of(error).error), 5)]
        for request, answer in zip(requests, answers, strict=True):
            try:
                request.worker.connection.send_bytes(answer)
            except OSError:
                self._drop(request.worker.connection)

    def _act(self, requests: Sequence[_Request]) -> Any:
        if isinstance(self._policy, TakesEnvs):
            self._policy.act_for(np.concatenate([r.worker.env_ids for r in requests]))
        if len(requests) == 1:
            return self._policy(requests[0].obs)
        return self._policy(tree_map(_joined, *(request.obs for request in requests)))


def serve(listener: Listener, arguments: bytes, ready: Callable[[bytes], None]) -> None:
    """Make a server and let it answer until the driver leaves; ready: is told how that went."""
    try:
        server = InferenceServer(listener, *cloudpickle.loads(arguments))
    except Exception as error:
        ready(Failure.of(error).error)
        return
    ready(b"")
    server.serve()


def split_rows(acted: Any, rows: Sequence[int]) -> list[Any]:
    """Split what a policy returned for the envs of several workers, rows of each.

    Raises: SettingError where it returned another number of rows.
    """
    given = {len(leaf) for leaf in leaves(acted)}
    if given != {sum(rows)}:
        raise SettingError(
            f"inference server: expected a policy that returns {sum(rows)} rows for {sum(rows)} "
            f"observations, got {sorted(given)}"
        )
    ends = np.cumsum(rows).tolist()
    return [
        tree_map(lambda leaf, first=end - n, last=end: leaf[first:last], acted)
        for n, end in zip(rows, ends, strict=True)
    ]


def _joined(*parts: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate(parts)
