"""Fragment workers as Ray actors, on any node; fragments arrive through the object store.

A fragment costs one call and one object on the network, so that the price of a call, which the
driver makes one after the other, hardly matters. An actor asks for real resources, so that the
scheduler spreads the load over the nodes.
"""

import logging
import threading
from collections import deque
from typing import Any

import cloudpickle
import ray
from ray.exceptions import ObjectLostError, RayActorError

from hotloop.data.fragment import Fragment
from hotloop.envs.ray.cluster import start_ray
from hotloop.loop.control import leave_inherited_control
from hotloop.rollout.worker import Failure, FragmentWorker, Update
from hotloop.rollout.worker_pool import MAX_UNREAD, Died, Event, Ready

_LOG = logging.getLogger("hotloop")
CLOSE_S = 5.0  # an actor that has not closed its envs by then is killed


class _Actor:
    """The end of the worker. `update` runs beside `fragment`: the next has the newest policy."""

    def __init__(self, settings: bytes, policy: Update, index: int, generation: int) -> None:
        # Actors on the node that started Ray would find the driver's control, others would not:
        # an experiment would change some of them only.
        leave_inherited_control()
        self._arguments = (settings, policy, index, generation)
        self._worker: FragmentWorker | None = None
        self._newest: Update | None = None
        self._lock = threading.Lock()

    def update(self, payload: bytes, version: int) -> None:
        """Keep an update for the next fragment."""
        with self._lock:
            self._newest = Update(payload, version)

    def fragment(self) -> Fragment | bytes:
        """Return the next fragment, or a pickled failure."""
        try:
            if self._worker is None:  # here, where an error reaches the driver with its type
                self._worker = FragmentWorker(*self._arguments)
            with self._lock:
                newest, self._newest = self._newest, None
            if newest is not None:
                self._worker.update(newest)
            return self._worker.fragment()
        except Exception as error:
            pickled: bytes = cloudpickle.dumps(Failure.of(error))
            return pickled

    def close(self) -> None:
        """Close the envs."""
        if self._worker is not None:
            self._worker.close()


class RayWorkerPool:
    """The actors; `FragmentCollector` decides when they are started, asked and ended.

    settings: pickled `WorkerSettings`. num_cpus: what each actor asks of the scheduler.
    """

    works_unwatched = True

    def __init__(self, settings: bytes, num_cpus: float) -> None:
        if not ray.is_initialized():
            start_ray(None)
        self._settings = ray.put(settings)
        options: dict[str, Any] = {
            "num_cpus": num_cpus,
            "scheduling_strategy": "SPREAD",
            "max_restarts": 0,
            "concurrency_groups": {"control": 1},
        }
        self._make = ray.remote(**options)(_Actor)
        self._actors: dict[int, Any] = {}
        self._refs: dict[int, deque[Any]] = {}  # of each worker, oldest first
        self._unread: dict[int, deque[int]] = {}  # versions sent that no fragment has shown yet
        self._held: dict[int, tuple[Any, int]] = {}  # the newest update of a worker with many
        _LOG.info(
            "stages in Ray actors (act, env step, store) are not measured: neither timed nor "
            "delayed nor replaced; what they take is seen as 'fragment wait'"
        )

    def start(self, index: int, generation: int, policy: Update) -> None:
        """Start worker `index`; `wait` returns its failures."""
        self._actors[index] = self._make.remote(self._settings, policy, index, generation)
        self._refs[index], self._unread[index] = deque(), deque()

    def request(self, index: int) -> None:
        """Ask for one more fragment."""
        self._refs[index].append(self._actors[index].fragment.remote())

    def broadcast(self, update: Update, indices: list[int]) -> None:
        """Put an update into the store once; every node fetches it once."""
        payload = ray.put(update.payload)
        for index in indices:
            self._held[index] = payload, update.version
            self._send_held(index)

    def _send_held(self, index: int) -> None:
        """Send the newest update, unless the actor has many: each of them takes memory."""
        if index not in self._held or len(self._unread[index]) >= MAX_UNREAD:
            return
        payload, version = self._held.pop(index)
        self._unread[index].append(version)
        method = self._actors[index].update.options(concurrency_group="control")
        method.remote(payload, version)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Return the fragments that arrive first, and deaths; empty after the timeout."""
        # Only the oldest of each: a later one may be seen first, and would be out of order.
        heads = {refs[0]: index for index, refs in self._refs.items() if refs}
        if not heads:
            return []
        first, others = ray.wait(list(heads), timeout=timeout_s)
        more = ray.wait(others, num_returns=len(others), timeout=0)[0] if first and others else []
        return [self._event_of(heads[ref]) for ref in first + more]

    def end(self, index: int) -> None:
        """End an actor at once; its fragments under way are lost."""
        self._refs.pop(index, None)
        self._unread.pop(index, None)
        self._held.pop(index, None)
        if index in self._actors:
            ray.kill(self._actors.pop(index))

    def close(self) -> None:
        """End all actors, after they have closed their envs. Idempotent."""
        if self._actors and ray.is_initialized():
            closing = [
                actor.close.options(concurrency_group="control").remote()
                for actor in self._actors.values()
            ]
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
            for index in list(self._actors):
                self.end(index)
        self._actors.clear()
        self._refs.clear()
        self._unread.clear()
        self._held.clear()

    def _event_of(self, index: int) -> Event:
        try:
            got = ray.get(self._refs[index].popleft())
        except (RayActorError, ObjectLostError) as error:
            self.end(index)
            return Died(index, str(error))
        if not isinstance(got, Fragment):
            return Ready(index, cloudpickle.loads(got))
        unread = self._unread[index]
        while unread and unread[0] <= got.policy_version:
            unread.popleft()
        self._send_held(index)
        return Ready(index, got)
