"""Fragment workers in this process, one after the other: the plain form of the other two.

A fragment is made when it is waited for, by the newest policy. So the same seed gives the same
fragments, which workers that run side by side do not promise.
"""

from collections import deque

from hotloop.data.fragment import Fragment
from hotloop.rollout.worker import Failure, FragmentWorker, Pending, Update
from hotloop.rollout.worker_pool import Event, Ready


class SerialWorkerPool:
    """The workers; `FragmentCollector` decides when they are started, asked and ended."""

    works_unwatched = False
    may_lack_a_place = False

    def __init__(self, settings: bytes) -> None:
        self._settings = settings
        self._arguments: dict[int, tuple[bytes, Update, int, int]] = {}
        self._workers: dict[int, FragmentWorker] = {}
        self._updates: dict[int, Pending] = {}
        self._asked: deque[int] = deque()

    def expect_room(self, workers: int) -> None:
        """Refuse nothing: there is always room."""

    def start(self, index: int, generation: int, policy: Update) -> None:
        """Note worker `index`; it is made for its first fragment, as `wait` returns failures."""
        self._arguments[index] = (self._settings, policy, index, generation)

    def request(self, index: int) -> None:
        """Ask for one more fragment."""
        self._asked.append(index)

    def broadcast(self, update: Update, indices: list[int]) -> None:
        """Keep an update for the next fragment of each worker."""
        for index in indices:
            self._updates.setdefault(index, Pending()).put(update)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Make the next fragment that was asked for; nothing is made in no time."""
        if timeout_s == 0 or not self._asked:
            return []
        index = self._asked.popleft()
        try:
            if index not in self._workers:
                self._workers[index] = FragmentWorker(*self._arguments[index])
            for update in self._updates.pop(index, Pending()).take():
                self._workers[index].update(update)
            return [Ready(index, self._workers[index].fragment(Fragment.empty))]
        except Exception as error:
            return [Ready(index, Failure.of(error))]

    def figures(self) -> dict[str, float]:
        """Nothing: every worker acts by itself."""
        return {}

    def end(self, index: int) -> None:
        """Close the envs of a worker; what it was asked for is forgotten."""
        self._asked = deque(other for other in self._asked if other != index)
        self._updates.pop(index, None)
        if index in self._workers:
            self._workers.pop(index).close()

    def close(self) -> None:
        """Close all envs. Idempotent."""
        for index in list(self._workers):
            self.end(index)
