"""Workers whose envs one inference server acts for: a worker pool, and the server beside it."""

import logging
import math
import time
from functools import partial

from hotloop.errors import WorkerError
from hotloop.rollout.inference import InferenceSettings
from hotloop.rollout.inference_servers import ServerOfDriver
from hotloop.rollout.worker import Update
from hotloop.rollout.worker_pool import Event, Resources, WorkerPool

_LOG = logging.getLogger("hotloop")
CHECK_S = 0.5  # while workers are waited for, between two looks at the server


class ServedPool:
    """As the pool inside, but policies and weights go to the server; it is watched in `wait`.

    restarts: how often a server that died or hangs may be replaced.
    Raises: SettingError for a backend without servers.
    """

    def __init__(
        self,
        pool: WorkerPool,
        backend: str,
        settings: InferenceSettings,
        seed: int,
        resources: Resources,
        restarts: int,
    ) -> None:
        self.works_unwatched, self.may_lack_a_place = pool.works_unwatched, pool.may_lack_a_place
        self._pool, self._restarts_left = pool, restarts
        self._make = partial(
            ServerOfDriver, backend, settings=settings, seed=seed, resources=resources
        )
        self._server: ServerOfDriver | None = None
        self._started: set[int] = set()

    def expect_room(self, workers: int) -> None:
        """Refuse more workers than can work beside the server, with SettingError."""
        self._pool.expect_room(workers + 1)

    def start(self, index: int, generation: int, policy: Update) -> None:
        """Start worker `index`, and before the first one the server, with the policy."""
        if self._server is None:
            self._server = self._make(policy)
        self._started.add(index)
        # Of version 0: the server says which one acts.
        self._pool.start(index, generation, Update.of(self._server.client(), 0))

    def request(self, index: int) -> None:
        """Ask for one more fragment."""
        self._pool.request(index)

    def broadcast(self, update: Update, indices: list[int]) -> None:
        """Send an update to the server, once for all workers."""
        del indices
        assert self._server is not None
        self._server.update(update)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Return the next events; empty after the timeout.

        Raises: what the start of the server has raised there; WorkerError for a server that died
        or hangs when no restart is left.
        """
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._look_after_server()
            left_s = max(0.0, end_s - time.monotonic())
            events = self._pool.wait(min(CHECK_S, left_s))
            if events or left_s <= CHECK_S:
                return events

    def figures(self) -> dict[str, float]:
        """What the server has done since it was asked last, see `InferenceServer`."""
        return {} if self._server is None else self._server.figures()

    def end(self, index: int) -> None:
        """End a worker at once."""
        self._pool.end(index)

    def close(self) -> None:
        """End all workers, and the server. Idempotent."""
        if self._server is not None and self._server.has_ended():
            # They wait for a server that will not come, and would not notice that they are to end.
            for index in sorted(self._started):
                self._pool.end(index)
        self._started.clear()
        self._pool.close()
        if self._server is not None:
            self._server.close()

    def _look_after_server(self) -> None:
        assert self._server is not None
        why = self._server.check()
        if not why:
            return
        if self._restarts_left < 1:
            raise WorkerError(
                f"inference server: {why}; expected it to live, and no restart is left; look for "
                "what ended it, or allow more restarts"
            )
        self._restarts_left -= 1
        _LOG.warning(
            "inference server: %s; another takes its place, and is asked again what had no answer "
            "yet (%d more may be replaced)",
            why,
            self._restarts_left,
        )
        self._server.replace()
