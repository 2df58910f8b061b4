"""Fragment workers as processes of this machine; fragments arrive through shared memory.

Messages are small: which memory block holds the next fragment, which blocks are free. Updates need
none: before each fragment, a worker looks into the memory where the latest lies. A block is free
again when the driver has dropped every array on it: nothing that is kept changes, and nothing is
copied.
"""

import os
import pickle
import weakref
from collections import deque
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any

import cloudpickle
import numpy as np

from hotloop.data.fragment import Fragment, FragmentSpec
from hotloop.data.shared import LatestMessage, SharedBlock
from hotloop.loop.host import threads_beside_driver
from hotloop.rollout.program import Program, end_all, serve_driver, wait_for_news
from hotloop.rollout.worker import Failure, FragmentWorker, Update
from hotloop.rollout.worker_pool import Died, Event, Ready

ROOM = 1.5  # of a place for updates, to the first that is written there
SPARE_BLOCKS = 4  # that a worker keeps for its next fragments, of those that are free again


class _Worker(Program):
    """The driver's end of one process."""

    def __init__(self, threads: int) -> None:
        super().__init__(__name__, threads)
        self.freed: deque[int] = deque()  # appended to by the finalizers of dropped arrays
        self._blocks: dict[int, tuple[SharedBlock, FragmentSpec]] = {}

    def receive(self) -> Fragment | Failure | None:
        """Return the content of its next message. Raises: EOFError or OSError for a dead worker."""
        kind, *rest = self.connection.recv()
        if kind == "failure":
            failure: Failure = cloudpickle.loads(rest[0])
            return failure
        if kind == "block":
            block = SharedBlock.receive(self.connection)
            block.close()  # the map stays
            slot, spec = rest
            self._blocks[slot] = block, spec
            return None
        slot, objects, given_up = rest
        for other in given_up:
            del self._blocks[other]
        block, spec = self._blocks[slot]
        # Every array of the fragment keeps a reference to this one.
        root = np.frombuffer(block.buffer, np.uint8)
        weakref.finalize(root, self.freed.append, slot).atexit = False
        return Fragment.in_buffer(root, spec).take_objects(objects)


class ProcessWorkerPool:
    """The processes; `FragmentCollector` decides when they are started, asked and ended.

    settings: pickled `WorkerSettings`.
    """

    works_unwatched = True
    may_lack_a_place = False

    def __init__(self, settings: bytes, num_workers: int) -> None:
        self._settings = settings
        self._threads = threads_beside_driver(num_workers)
        self._workers: dict[int, _Worker] = {}
        self._updates: dict[bool, LatestMessage] = {}  # by `is_policy`; all workers read them
        # Before the interpreter waits for anything at its end, and when this is dropped.
        self._end = Finalize(self, end_all, args=(self._workers,), exitpriority=100)

    def expect_room(self, workers: int) -> None:
        """Refuse nothing: there is always room."""

    def start(self, index: int, generation: int, policy: Update) -> None:
        """Start worker `index`; `wait` returns its failures."""
        worker = self._workers[index] = _Worker(self._threads)
        payload = cloudpickle.dumps((self._settings, policy, index, generation))
        block = SharedBlock(len(payload))
        block.buffer[:] = payload
        worker.send_block(block, "start")
        for is_policy, updates in self._updates.items():
            worker.send_block(updates.block, "updates", is_policy)

    def request(self, index: int) -> None:
        """Ask for one more fragment; the message also lists the blocks that are free again."""
        worker = self._workers[index]
        worker.send("fragment", [worker.freed.popleft() for _ in range(len(worker.freed))])

    def broadcast(self, update: Update, indices: list[int]) -> None:
        """Write an update where all workers read before a fragment: no message is sent."""
        del indices  # what a worker that is no longer asked reads does no harm
        message = pickle.dumps(update)
        updates = self._updates.get(update.is_policy)
        if updates is not None and len(message) <= updates.room:
            updates.write(message, update.version)
            return
        updates = LatestMessage.with_room(round(ROOM * len(message)))
        updates.write(message, update.version)
        self._updates[update.is_policy] = updates
        for worker in self._workers.values():
            worker.send_block(updates.block, "updates", update.is_policy)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Return the events of the workers that answer first; empty after the timeout."""
        ready = wait_for_news(self._workers, timeout_s)
        return [event for index in ready for event in self._events_of(index)]

    def figures(self) -> dict[str, float]:
        """Nothing: every worker acts by itself."""
        return {}

    def end(self, index: int) -> None:
        """End a worker at once; its fragments under way are lost."""
        if index in self._workers:
            self._workers.pop(index).end()

    def close(self) -> None:
        """End all workers, after they have closed their envs. Idempotent."""
        self._end()

    def _events_of(self, index: int) -> list[Event]:
        arrived, is_dead = self._workers[index].receive_all()
        events: list[Event] = [Ready(index, got) for got in arrived]
        if is_dead:
            events.append(Died(index, self._workers.pop(index).end()))
        return events


# --- in the worker ---------------------------------------------------------------------------


def main() -> None:
    """The program that a worker process runs."""
    serve_driver(lambda connection: _Server(connection).serve())


class _Server:
    """The end of the worker: answers requests, each with the newest policy."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._arguments = b""
        self._worker: FragmentWorker | None = None
        self._blocks: dict[int, SharedBlock] = {}
        self._made = 0  # blocks
        self._free: list[int] = []
        self._given_up: list[int] = []  # blocks that the driver does not know of as given up
        self._asked = 0
        self._updates: dict[bool, LatestMessage] = {}  # by `is_policy`
        self._slot = 0

    def serve(self) -> None:
        """Answer until the driver closes its end, or until a failure was sent.

        Raises: OSError or EOFError where the driver has closed its end.
        """
        try:
            while True:
                self._read_messages()
                self._asked -= 1
                answer = self._answer()
                self._connection.send(answer)
                if answer[0] == "failure":
                    return
        finally:
            if self._worker is not None:
                self._worker.close()

    def _read_messages(self) -> None:
        """Read messages until a fragment is asked for."""
        while not self._asked or self._connection.poll(0):
            kind, *rest = self._connection.recv()
            if kind == "fragment":
                self._asked += 1
                self._take_back(rest[0])
            elif kind == "start":
                self._arguments = bytes(SharedBlock.receive(self._connection).buffer)
            else:
                self._updates[rest[0]] = LatestMessage(SharedBlock.receive(self._connection))

    def _answer(self) -> tuple[Any, ...]:
        """Return the message with a fragment, or with the failure to make one."""
        try:
            if self._worker is None:
                self._worker = FragmentWorker(*cloudpickle.loads(self._arguments))
            for update in self._new_updates(self._worker.policy_version):
                self._worker.update(update)
            fragment = self._worker.fragment(self._allocate)
        except Exception as error:
            return "failure", cloudpickle.dumps(Failure.of(error))
        given_up, self._given_up = self._given_up, []
        return "ready", self._slot, fragment.objects, given_up

    def _new_updates(self, after: int) -> list[Update]:
        """Return the updates since a version, a policy before the weights that are for it."""
        found = [updates.read(after) for updates in self._updates.values()]
        return sorted(
            (pickle.loads(message) for message in found if message is not None),
            key=lambda update: update.version,
        )

    def _take_back(self, slots: list[int]) -> None:
        """Use blocks again; a driver that kept many fragments for a while gets memory back."""
        self._free += slots
        while len(self._free) > SPARE_BLOCKS:
            slot = self._free.pop()
            del self._blocks[slot]
            self._given_up.append(slot)

    def _allocate(self, spec: FragmentSpec) -> Fragment:
        if self._free:
            self._slot = self._free.pop()
        else:
            self._slot, self._made = self._made, self._made + 1
            self._blocks[self._slot] = block = SharedBlock(spec.nbytes)
            self._connection.send(("block", self._slot, spec))
            block.send(self._connection, os.getppid())
            block.close()  # the map stays
        return Fragment.in_buffer(self._blocks[self._slot].buffer, spec)
