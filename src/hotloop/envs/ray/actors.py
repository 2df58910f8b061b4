"""All actors of a vector env on Ray as seen from the driver: placed, asked, replaced, ended.

What each of them does is in `worker`.
"""

import logging
import os
import pickle
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from gymnasium.vector import AutoresetMode
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from hotloop.envs.facts import Facts
from hotloop.envs.pickling import pickle_makers
from hotloop.envs.pool import Makers, WorkerFacts, number_rows, part_of
from hotloop.envs.ray.cluster import RAY, amounts, capacity, demand_in_words, expect_living_nodes
from hotloop.envs.ray.failures import death, error_of, first_lines, unwrapped
from hotloop.envs.ray.worker import Answer, Assignment, RayWorker, as_index
from hotloop.errors import SettingError, WorkerError

_LOG = logging.getLogger("hotloop")
CLOSE_S = 5.0  # how long a worker may take to close its envs
LIFE_S = 1.0  # between two checks that a node is alive, while actors wait for a place


@dataclass(frozen=True)
class RaySettings:
    """How actors are placed and run."""

    num_workers: int
    autoreset_mode: AutoresetMode | None
    options: Mapping[str, Any]  # of every actor, with what it asks of a node
    restarts: int
    timeout_s: float | None
    start_timeout_s: float
    autoscales: bool
    threads: int


@dataclass
class ActorHandle:
    """One worker: its actor, and its rows among those of all."""

    number: int
    assignment: bytes
    actor: Any = None
    node: str = ""
    pid: int = 0
    slabs: tuple[range, ...] = ()  # the rows of each
    rows: list[int] = field(default_factory=list)
    at: slice | list[int] = field(default_factory=list)  # the same, as an index
    restarts: int = 0
    heard_s: float = 0.0
    is_torn: bool = False  # whether it is being replaced, or that was cut short

    def __str__(self) -> str:
        rows = f"envs {self.rows[0]} to {self.rows[-1]}" if len(self.rows) else "its envs not made"
        where = f", node {self.node[:8]}" if self.node else ""
        return f"worker {self.number} ({rows}{where})"


@dataclass
class Actors:
    """All actors of one vector env."""

    settings: RaySettings
    groups: Sequence[Makers]  # of each split
    handles: list[ActorHandle] = field(default_factory=list)
    facts: Facts = None  # type: ignore[assignment]  # known once the actors have made their envs
    num_envs: int = 0
    _pid: int = field(default_factory=os.getpid)
    _job: str = ""
    closed: bool = False

    def start(self) -> None:
        """Place the actors, let them make their envs, and give each its rows.

        Raises: SettingError for more than the cluster has; TargetError for envs that are not alike
        or makers that cannot be sent; what making an env raised; WorkerError.
        """
        self._job = ray.get_runtime_context().get_job_id()
        self._expect_room()
        try:
            for number in range(self.settings.num_workers):
                fns, firsts = part_of(self.groups, self.settings.num_workers, number)
                assignment = Assignment(
                    fns, firsts, self.settings.autoreset_mode, self.settings.threads
                )
                self.handles.append(ActorHandle(number, pickle_makers(assignment)))
            self._give_rows(self._launch(self.handles))
        except BaseException:
            self.kill()
            raise

    # --- placing -------------------------------------------------------------------------------

    def _launch(self, handles: Sequence[ActorHandle]) -> list[WorkerFacts]:
        """Start actors and wait for their envs; returns what they are like."""
        make = ray.remote(RayWorker).options(**self.settings.options)
        for handle in handles:
            handle.node, handle.actor = "", make.remote(handle.assignment)
        self._await_places(handles)
        making = [handle.actor.make.remote() for handle in handles]
        return [self.hear(handle, ref, None) for handle, ref in zip(handles, making, strict=True)]

    def _await_places(self, handles: Sequence[ActorHandle]) -> None:
        placing = {handle.actor.place.remote(): handle for handle in handles}
        limit_s = self.settings.start_timeout_s
        end_s = time.monotonic() + limit_s
        placed: list[Any] = []
        missing = list(placing)
        while missing and (left_s := end_s - time.monotonic()) > 0:
            expect_living_nodes()
            more, missing = ray.wait(missing, num_returns=len(missing), timeout=min(left_s, LIFE_S))
            placed += more
        for ref in placed:
            handle = placing[ref]
            try:
                handle.node, handle.pid = ray.get(ref)
            except RayError as error:
                raise WorkerError(
                    f"worker {handle.number}: its actor did not start: {first_lines(error)}"
                ) from error
            handle.heard_s = time.monotonic()
        if missing:
            raise WorkerError(
                f"ray: {len(missing)} of {len(placing)} workers have no place after {limit_s:g} s: "
                f"each asks for {demand_in_words(self.settings.options)}, and the cluster has "
                f"{amounts(RAY.available_resources())} left of "
                f"{amounts(RAY.cluster_resources())}; end what holds it, ask for less (num_cpus, "
                "num_workers, ray_options), or wait longer (start_timeout_s)"
            )

    def _expect_room(self) -> None:
        """Refuse what the cluster could not hold if it were empty."""
        if self.settings.autoscales:
            return
        room = capacity(self.settings.options)
        if room < self.settings.num_workers:
            nodes = [node["Resources"] for node in RAY.nodes() if node["Alive"]]
            each = "; ".join(amounts(node) for node in nodes)
            raise SettingError(
                f"ray: num_workers={self.settings.num_workers}, each with "
                f"{demand_in_words(self.settings.options)}: expected a cluster with room for "
                "them, got one "
                f"with room for {room:g}, {len(nodes)} nodes: {each}; ask for less (num_cpus may "
                "be a fraction), or say autoscales=True if the cluster grows when asked"
            )

    def _give_rows(self, facts_of: Sequence[WorkerFacts]) -> None:
        self.facts, slabs = number_rows(self.groups, facts_of)
        self.num_envs = sum(len(slab) for own in slabs for slab in own)
        for handle, own in zip(self.handles, slabs, strict=True):
            handle.slabs = tuple(own)
            handle.rows = [row for slab in own for row in slab]
            handle.at = as_index(handle.rows)
            handle.actor.begin.remote()

    # --- asking --------------------------------------------------------------------------------

    def ask(self, what: str, refs: Sequence[Any]) -> list[Any]:
        """The answers of all handles to messages under way; an error after all have answered.

        Raises: the error that answers a message; WorkerError for a worker that died, which is
        started anew when it is to step.
        """
        answers, errors = [], []
        for handle, ref in zip(self.handles, refs, strict=True):
            try:
                answers.append(self.hear(handle, ref, self.settings.timeout_s, what))
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers

    def hear(self, handle: ActorHandle, ref: Any, timeout_s: float | None, what: str = "") -> Any:
        """The answer to one message.

        Raises: the error that answers it; WorkerError for a worker that died, or is late.
        """
        try:
            answer: Answer = pickle.loads(ray.get(ref, timeout=timeout_s))
        except RayTaskError as error:
            raise unwrapped(error, handle) from None
        except RayError as error:
            ray.kill(handle.actor)
            late = isinstance(error, GetTimeoutError)
            why = f"did not answer in {timeout_s:g} s" if late else death(error)
            doing = f"while it answered {what}" if what else "while it made its envs"
            raise WorkerError(f"{handle}, {doing}, {why}") from error
        if answer.failure is not None:
            raise error_of(answer.failure)
        handle.heard_s = time.monotonic()
        return answer.value

    # --- replacing -----------------------------------------------------------------------------

    def replace(self, handle: ActorHandle, why: str) -> None:
        """End a worker and start it anew, where there is room.

        Raises: WorkerError where it was replaced too often, or where there is no room.
        """
        limit = self.settings.restarts
        ray.kill(handle.actor)
        if handle.restarts >= limit:
            self.kill()
            raise WorkerError(
                f"{handle} {why}, after {handle.restarts} restarts: expected at most "
                f"restarts={limit}; look into its envs, or allow more"
            )
        handle.restarts += 1
        _LOG.warning(
            "%s %s; it is started anew, %d of %d times", handle, why, handle.restarts, limit
        )
        try:
            (told,) = self._launch([handle])
            for _size, facts in told:
                facts.expect_like(self.facts, handle.rows[0])
        except BaseException:
            self.kill()
            raise
        handle.actor.begin.remote()

    # --- ending --------------------------------------------------------------------------------

    def close(self) -> None:
        """Let every worker close its envs and end; one that takes longer than 5 s is killed."""
        if self._is_over():
            return
        closing = [handle.actor.close.remote() for handle in self.handles]
        ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
        self.kill()

    def kill(self) -> None:
        """End every worker at once. Idempotent."""
        if self._is_over():
            return
        self.closed = True
        for handle in self.handles:
            if handle.actor is not None:
                ray.kill(handle.actor)
            handle.actor = None

    def _is_over(self) -> bool:
        # A forked child does not end its parent's workers; those of a cluster left are gone.
        return (
            self.closed
            or os.getpid() != self._pid
            or not ray.is_initialized()
            or ray.get_runtime_context().get_job_id() != self._job
        )
