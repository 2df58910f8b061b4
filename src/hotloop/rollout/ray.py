"""Fragment workers as Ray actors, on any node; fragments arrive through the object store.

A fragment costs one call and one object on the network, so that the price of a call, which the
driver makes one after the other, hardly matters. An actor asks for real resources, so that the
scheduler spreads the load over the nodes.
"""

import itertools
import threading
from collections import deque
from typing import Any

import cloudpickle
import ray
from ray.exceptions import ObjectLostError, RayActorError, RayError

from hotloop.data.fragment import Fragment
from hotloop.envs.ray.cluster import capacity, demand_in_words, start_ray
from hotloop.errors import SettingError
from hotloop.loop.control import ArmMessage, SharedControl, process_control
from hotloop.loop.remote import RemoteControl, RemoteProcess, StageReport
from hotloop.rollout.worker import Failure, FragmentWorker, Pending, Update
from hotloop.rollout.worker_pool import MAX_UNREAD, Died, Event, Ready, Resources

CLOSE_S = 5.0  # an actor that has not closed its envs by then is killed
REPORT_S = 5.0  # what an actor has not reported by then comes with its next report
_numbers = itertools.count(1)  # of all actors of this process


class _Actor:
    """The end of the worker. `update` runs beside `fragment`: the next has the newest policy."""

    def __init__(
        self, settings: bytes, policy: Update, index: int, generation: int, arm: ArmMessage
    ) -> None:
        # On every node the same: those on the driver's could map its control, others could not.
        self._control = RemoteControl(arm)
        self._arguments = (settings, policy, index, generation)
        self._worker: FragmentWorker | None = None
        self._pending = Pending()
        self._newest = policy.version
        self._has_come = threading.Condition()

    def update(self, payload: bytes, version: int, of_policy: int) -> None:
        """Keep an update for the next fragment."""
        with self._has_come:
            self._pending.put(Update(payload, version, of_policy))
            self._newest = max(self._newest, version)
            self._has_come.notify()

    def obey(self, arm: ArmMessage) -> None:
        """Put the driver's arm into force, also in the middle of a fragment."""
        self._control.obey(arm)

    def report(self) -> StageReport:
        """What the stages have done since the last report."""
        return self._control.report()

    def fragment(self, after: int) -> Fragment | bytes:
        """Return the next fragment, or a pickled failure; after: the update that it waits for."""
        try:
            if self._worker is None:  # here, where an error reaches the driver with its type
                self._worker = FragmentWorker(*self._arguments)
            with self._has_come:
                # Sent before this call, but in a group of its own, it may come after it.
                self._has_come.wait_for(lambda: self._newest >= after)
                updates = self._pending.take()
            for update in updates:
                self._worker.update(update)
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

    settings: pickled `WorkerSettings`.
    """

    works_unwatched = True
    may_lack_a_place = True

    def __init__(self, settings: bytes, resources: Resources) -> None:
        if not ray.is_initialized():
            start_ray(None)
        self._settings = ray.put(settings)
        self._options: dict[str, Any] = {
            "num_cpus": resources.num_cpus,
            "num_gpus": resources.num_gpus,
            # Ray packs unless it is told otherwise.
            "scheduling_strategy": "SPREAD" if resources.placement == "spread" else "DEFAULT",
            "max_restarts": 0,
            "concurrency_groups": {"control": 1},
        }
        self._make = ray.remote(**self._options)(_Actor)
        self._actors: dict[int, Any] = {}
        self._refs: dict[int, deque[Any]] = {}  # of each worker, oldest first
        self._sent: dict[int, int] = {}  # the newest version that each actor gets
        self._unread: dict[int, deque[int]] = {}  # versions sent that no fragment has shown yet
        self._held: dict[int, Pending] = {}  # updates of a worker with many
        self._control = process_control()
        self._stages = _ActorStages(self._control)

    def expect_room(self, workers: int) -> None:
        """Refuse more workers than the cluster has room for, with SettingError."""
        room = capacity(self._options)
        if workers > room:
            raise SettingError(
                f"num_workers: expected a cluster with room for all at once, {workers} actors of "
                f"{demand_in_words(self._options)} each, as none is left out, got room for "
                f"{room:g}; take fewer workers, or let each ask for less (num_cpus)"
            )

    def start(self, index: int, generation: int, policy: Update) -> None:
        """Start worker `index`; `wait` returns its failures."""
        arm = self._control.message()
        actor = self._make.remote(self._settings, policy, index, generation, arm)
        self._actors[index] = actor
        self._refs[index], self._unread[index] = deque(), deque()
        self._sent[index] = policy.version
        self._stages.add(index, actor)

    def request(self, index: int) -> None:
        """Ask for one more fragment."""
        self._refs[index].append(self._actors[index].fragment.remote(self._sent[index]))

    def broadcast(self, update: Update, indices: list[int]) -> None:
        """Put an update into the store once; every node fetches it once."""
        payload: Any = ray.put(update.payload)  # the actor gets the bytes
        for index in indices:
            self._held.setdefault(index, Pending()).put(update._replace(payload=payload))
            self._send_held(index)

    def _send_held(self, index: int) -> None:
        """Send the newest update, unless the actor has many: each of them takes memory."""
        if index not in self._held or len(self._unread[index]) >= MAX_UNREAD:
            return
        for update in self._held.pop(index).take():
            self._unread[index].append(update.version)
            self._sent[index] = update.version
            _beside(self._actors[index].update).remote(*update)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Return the fragments that arrive first, and deaths; empty after the timeout."""
        # Only the oldest of each: a later one may be seen first, and would be out of order.
        heads = {refs[0]: index for index, refs in self._refs.items() if refs}
        if not heads:
            return []
        first, others = ray.wait(list(heads), timeout=timeout_s)
        more = ray.wait(others, num_returns=len(others), timeout=0)[0] if first and others else []
        return [self._event_of(heads[ref]) for ref in first + more]

    def figures(self) -> dict[str, float]:
        """Nothing: every worker acts by itself."""
        return {}

    def end(self, index: int) -> None:
        """End an actor at once; its fragments under way are lost."""
        self._refs.pop(index, None)
        self._unread.pop(index, None)
        self._held.pop(index, None)
        self._stages.remove(index)
        if index in self._actors:
            ray.kill(self._actors.pop(index))

    def close(self) -> None:
        """End all actors, after they have closed their envs. Idempotent."""
        if self._actors and ray.is_initialized():
            closing = [_beside(actor.close).remote() for actor in self._actors.values()]
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
            for index in list(self._actors):
                self.end(index)
        self._actors.clear()
        self._refs.clear()
        self._unread.clear()
        self._held.clear()
        self._stages.close()

    def _event_of(self, index: int) -> Event:
        try:
            got = ray.get(self._refs[index].popleft())
        except (RayActorError, ObjectLostError) as error:
            self.end(index)
            return Died(index, str(error))
        if not isinstance(got, Fragment):
            return Ready(index, cloudpickle.loads(got))
        self._stages.has_begun(index)
        unread = self._unread[index]
        while unread and unread[0] <= got.policy_version:
            unread.popleft()
        self._send_held(index)
        return Ready(index, got)


class _ActorStages:
    """The stages in the actors, for the driver's control: arms there, reports back."""

    def __init__(self, control: SharedControl) -> None:
        self._control = control
        self._actors: dict[int, tuple[Any, RemoteProcess]] = {}
        self._ended: list[RemoteProcess] = []
        self._begun: set[int] = set()  # the others may wait for a place, and would not answer
        control.followers.add(self)

    def add(self, index: int, actor: Any) -> None:
        """Count an actor in that was given the arm of now."""
        self.remove(index)
        process = RemoteProcess(self._control, next(_numbers))
        self._actors[index] = actor, process
        self._control.workers.remote.add(process.reports)

    def has_begun(self, index: int) -> None:
        """Note that an actor has answered, and will again."""
        self._begun.add(index)

    def remove(self, index: int) -> None:
        """Forget an actor that has ended; how long it was delayed still counts."""
        self._begun.discard(index)
        if index in self._actors:
            process = self._actors.pop(index)[1]
            process.reports.tapes = []
            self._ended.append(process)

    def obey(self) -> None:
        """Send the actors the arm of now."""
        arm = self._control.message()
        for actor, _ in self._actors.values():
            _beside(actor.obey).remote(arm)

    def fetch(self) -> None:
        """Bring what the actors report into the control."""
        asked_ns = self._control.clock.now_ns()
        refs = {_beside(self._actors[i][0].report).remote(): i for i in self._begun}
        if not refs:
            return
        for ref in ray.wait(list(refs), num_returns=len(refs), timeout=REPORT_S)[0]:
            try:
                self._actors[refs[ref]][1].take(ray.get(ref), asked_ns)
            except RayError:
                pass  # it has died, which `wait` of the pool notices

    def close(self) -> None:
        """Forget all actors. Idempotent."""
        self._control.followers.discard(self)
        self._actors.clear()
        self._ended.clear()
        self._begun.clear()


def _beside(method: Any) -> Any:
    """The method of an actor such that it runs beside `fragment`."""
    return method.options(concurrency_group="control")
