"""Fragment workers as Ray actors, on any node; fragments come home through the object store.

What crosses the network is one call and one object a fragment, so that what a call costs, and
that the driver makes them one after the other, hardly matters. An actor asks for real resources,
so that the scheduler spreads the load over the nodes instead of piling it on one.
"""

import threading
from collections import deque
from typing import Any

import cloudpickle
import ray
from ray.exceptions import ObjectLostError, RayActorError

from hotloop.data.fragment import Fragment
from hotloop.envs.ray_crew import start_ray
from hotloop.rollout.transport import Died, Event, Ready
from hotloop.rollout.worker import Failure, FragmentWorker, Update

CLOSE_S = 5.0  # an actor that has not closed its envs by then is killed


class _Actor:
    """The worker's end. `update` runs beside `fragment`, so that the next one has the newest."""

    def __init__(self, plan: bytes, policy: Update, index: int, generation: int) -> None:
        self._arguments = (plan, policy, index, generation)
        self._worker: FragmentWorker | None = None
        self._newest: Update | None = None
        self._lock = threading.Lock()

    def update(self, payload: bytes, version: int) -> None:
        """Keep an update for the next fragment."""
        with self._lock:
            self._newest = Update(payload, version)

    def fragment(self) -> Fragment | bytes:
        """The next fragment, or what went wrong."""
        try:
            if self._worker is None:  # here, where an error finds its way home with its type
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


class RayWorkers:
    """Starts, asks and ends the actors; `FragmentCollector` decides when.

    num_cpus: what each actor asks of the scheduler.
    """

    def __init__(self, plan: bytes, num_cpus: float) -> None:
        if not ray.is_initialized():
            start_ray(None)
        self._plan = ray.put(plan)
        options: dict[str, Any] = {
            "num_cpus": num_cpus,
            "scheduling_strategy": "SPREAD",
            "max_restarts": 0,
            "concurrency_groups": {"control": 1},
        }
        self._make = ray.remote(**options)(_Actor)
        self._actors: dict[int, Any] = {}
        self._refs: dict[int, deque[Any]] = {}  # of each worker, oldest first

    def start(self, index: int, generation: int, policy: Update) -> None:
        """Start worker `index`; what fails there comes out of `wait`."""
        self._actors[index] = self._make.remote(self._plan, policy, index, generation)
        self._refs[index] = deque()

    def request(self, index: int) -> None:
        """Ask for one more fragment."""
        self._refs[index].append(self._actors[index].fragment.remote())

    def broadcast(self, update: Update, indices: list[int]) -> None:
        """Put an update into the store once; every node fetches it once."""
        payload = ray.put(update.payload)
        for index in indices:
            method = self._actors[index].update.options(concurrency_group="control")
            method.remote(payload, update.version)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """The fragments that are here first, and who has died; empty after the timeout."""
        # Only the oldest of each: a later one may be seen first, and would be out of order.
        heads = {refs[0]: index for index, refs in self._refs.items() if refs}
        if not heads:
            return []
        first, others = ray.wait(list(heads), timeout=timeout_s)
        more = ray.wait(others, num_returns=len(others), timeout=0)[0] if first and others else []
        return [self._hear(heads[ref]) for ref in first + more]

    def end(self, index: int) -> None:
        """End an actor at once; what it had under way is lost."""
        self._refs.pop(index, None)
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

    def _hear(self, index: int) -> Event:
        try:
            got = ray.get(self._refs[index].popleft())
        except (RayActorError, ObjectLostError) as error:
            self.end(index)
            return Died(index, str(error))
        return Ready(index, got if isinstance(got, Fragment) else cloudpickle.loads(got))
