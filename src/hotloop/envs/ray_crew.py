"""The actors of a vector env on Ray as seen from the driver: placed, asked, replaced, ended.

What they do stands in `ray_worker`.
"""

import logging
import os
import pickle
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np
import ray
from gymnasium.vector import AutoresetMode
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from hotloop.envs.facts import Facts
from hotloop.envs.placement import share
from hotloop.envs.ray_worker import Answer, Assignment, Failure, RayWorker, as_index
from hotloop.errors import SettingError, TargetError, WorkerError

_LOG = logging.getLogger("hotloop")
_RAY: Any = ray  # whose questions about the cluster carry no types
CLOSE_S = 5.0  # how long a worker may take to close its envs
LIFE_S = 1.0  # between two looks whether any node is alive, while actors wait for a place
# What recovery and the order of steps rest on, or what has a setting of its own.
_OURS = (
    "num_cpus",
    *("max_restarts", "max_task_retries", "max_concurrency", "concurrency_groups"),
    *("name", "get_if_exists", "lifetime"),
)


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
class Member:
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
class RayCrew:
    """All actors of one vector env."""

    settings: RaySettings
    fns: Sequence[Sequence[Callable[[], Any]]]  # of each split
    members: list[Member] = field(default_factory=list)
    facts: Facts = None  # type: ignore[assignment]  # known once the workers have said
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
            before = np.cumsum([0, *(len(fns) for fns in self.fns)]).tolist()
            for number in range(self.settings.num_workers):
                shares = [share(len(fns), self.settings.num_workers, number) for fns in self.fns]
                assignment = Assignment(
                    tuple(tuple(fns[part]) for fns, part in zip(self.fns, shares, strict=True)),
                    tuple(at + part.start for at, part in zip(before, shares, strict=False)),
                    self.settings.autoreset_mode,
                    self.settings.threads,
                )
                self.members.append(Member(number, _pickled(assignment)))
            told = self._launch(self.members)
            self._give_rows(told)
        except BaseException:
            self.kill()
            raise

    # --- placing -------------------------------------------------------------------------------

    def _launch(self, members: Sequence[Member]) -> list[list[tuple[int, Facts]]]:
        """Start actors and wait for their envs; returns what they are like."""
        make = ray.remote(RayWorker).options(**self.settings.options)
        for member in members:
            member.node, member.actor = "", make.remote(member.assignment)
        self._await_places(members)
        making = [member.actor.make.remote() for member in members]
        return [self.hear(member, ref, None) for member, ref in zip(members, making, strict=True)]

    def _await_places(self, members: Sequence[Member]) -> None:
        placing = {member.actor.place.remote(): member for member in members}
        limit_s = self.settings.start_timeout_s
        end_s = time.monotonic() + limit_s
        placed: list[Any] = []
        missing = list(placing)
        while missing and (left_s := end_s - time.monotonic()) > 0:
            _expect_life()
            more, missing = ray.wait(missing, num_returns=len(missing), timeout=min(left_s, LIFE_S))
            placed += more
        for ref in placed:
            member = placing[ref]
            try:
                member.node, member.pid = ray.get(ref)
            except RayError as error:
                raise WorkerError(
                    f"worker {member.number}: its actor did not start: {_first_lines(error)}"
                ) from error
            member.heard_s = time.monotonic()
        if missing:
            raise WorkerError(
                f"ray: {len(missing)} of {len(placing)} workers have no place after {limit_s:g} s: "
                f"each asks for {_asked(self.settings.options)}, and the cluster has "
                f"{_amounts(_RAY.available_resources())} left of "
                f"{_amounts(_RAY.cluster_resources())}; end what holds it, ask for less (num_cpus, "
                "num_workers, ray_options), or wait longer (start_timeout_s)"
            )

    def _expect_room(self) -> None:
        """Refuse what the cluster could not hold if it were empty."""
        if self.settings.autoscales:
            return
        room = capacity(self.settings.options)
        if room < self.settings.num_workers:
            nodes = [node["Resources"] for node in _RAY.nodes() if node["Alive"]]
            each = "; ".join(_amounts(node) for node in nodes)
            raise SettingError(
                f"ray: num_workers={self.settings.num_workers}, each with "
                f"{_asked(self.settings.options)}: expected a cluster with room for them, got one "
                f"with room for {room:g}, {len(nodes)} nodes: {each}; ask for less (num_cpus may "
                "be a fraction), or say autoscales=True if the cluster grows when asked"
            )

    def _give_rows(self, told: Sequence[list[tuple[int, Facts]]]) -> None:
        """Number the rows split by split, and within one worker by worker."""
        self.facts = told[0][0][1]
        slabs: list[list[range]] = [[] for _ in told]
        row = 0
        for fns in self.fns:
            for number, _ in enumerate(self.members):
                makers = share(len(fns), len(self.members), number)
                count = makers.stop - makers.start if self.facts.is_vector else 1
                for size, facts in told[number][len(slabs[number]) :][:count]:
                    facts.expect_like(self.facts, row)
                    slabs[number].append(range(row, row + size))
                    row += size
        self.num_envs = row
        for member, own in zip(self.members, slabs, strict=True):
            member.slabs = tuple(own)
            member.rows = [row for slab in own for row in slab]
            member.at = as_index(member.rows)
            member.actor.begin.remote()

    # --- asking --------------------------------------------------------------------------------

    def ask(self, what: str, refs: Sequence[Any]) -> list[Any]:
        """The answers of all members to messages under way; an error after all have answered.

        Raises: what came of a message; WorkerError for a worker that died, which is started anew
        when it is to step.
        """
        answers, errors = [], []
        for member, ref in zip(self.members, refs, strict=True):
            try:
                answers.append(self.hear(member, ref, self.settings.timeout_s, what))
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers

    def hear(self, member: Member, ref: Any, timeout_s: float | None, what: str = "") -> Any:
        """The answer to one message.

        Raises: what came of it; WorkerError for a worker that died or did not answer in time.
        """
        try:
            answer: Answer = pickle.loads(ray.get(ref, timeout=timeout_s))
        except RayTaskError as error:
            raise unwrapped(error, member) from None
        except RayError as error:
            ray.kill(member.actor)
            late = isinstance(error, GetTimeoutError)
            why = f"did not answer in {timeout_s:g} s" if late else death(error)
            doing = f"while it answered {what}" if what else "while it made its envs"
            raise WorkerError(f"{member}, {doing}, {why}") from error
        if answer.failure is not None:
            raise came_home(answer.failure)
        member.heard_s = time.monotonic()
        return answer.value

    # --- replacing -----------------------------------------------------------------------------

    def replace(self, member: Member, why: str) -> None:
        """End a worker and start it anew, where there is room.

        Raises: WorkerError where it was replaced too often, or where there is no room.
        """
        limit = self.settings.restarts
        ray.kill(member.actor)
        if member.restarts >= limit:
            self.kill()
            raise WorkerError(
                f"{member} {why}, after {member.restarts} restarts: expected at most "
                f"restarts={limit}; look into its envs, or allow more"
            )
        member.restarts += 1
        _LOG.warning(
            "%s %s; it is started anew, %d of %d times", member, why, member.restarts, limit
        )
        try:
            (told,) = self._launch([member])
            for _size, facts in told:
                facts.expect_like(self.facts, member.rows[0])
        except BaseException:
            self.kill()
            raise
        member.actor.begin.remote()

    # --- ending --------------------------------------------------------------------------------

    def close(self) -> None:
        """Let every worker close its envs and end; who takes longer than 5 s is killed."""
        if self._is_over():
            return
        closing = [member.actor.close.remote() for member in self.members]
        ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
        self.kill()

    def kill(self) -> None:
        """End every worker at once. Idempotent."""
        if self._is_over():
            return
        self.closed = True
        for member in self.members:
            if member.actor is not None:
                ray.kill(member.actor)
            member.actor = None

    def _is_over(self) -> bool:
        # A forked child does not end its parent's workers; those of a cluster left are gone.
        return (
            self.closed
            or os.getpid() != self._pid
            or not ray.is_initialized()
            or ray.get_runtime_context().get_job_id() != self._job
        )


def start_ray(address: str | None, quiet: bool = False) -> None:
    """Connect to a cluster, or start one here; it runs on until the interpreter exits.

    Others of this process may use it by the time that who started it is done. quiet: Ray says
    nothing but errors, and its workers nothing at all.
    """
    said: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False} if quiet else {}
    if (address or os.environ.get("RAY_ADDRESS", "")).startswith("ray://"):
        ray.init(address, **said)  # through a client: a dashboard is not ours to speak of
        return
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")  # of what Ray is about to change
        ray.init(address, include_dashboard=False, **said)


def actor_options(num_cpus: float, ray_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an actor is started with.

    Raises: SettingError for an option that is not the caller's to choose.
    """
    given = dict(ray_options or {})
    if taken := [name for name in _OURS if name in given]:
        raise SettingError(
            f"ray_options: expected options that place an actor (resources, num_gpus, memory, "
            f"scheduling_strategy, label_selector, runtime_env), got {', '.join(taken)}; "
            "num_cpus is a setting of its own, and restarts go by `restarts`"
        )
    return {
        "scheduling_strategy": "SPREAD",
        **given,
        "num_cpus": num_cpus,
        "max_restarts": 0,
        "max_task_retries": 0,
    }


def _expect_life() -> None:
    """Refuse to wait for a place in a cluster that has no living node."""
    nodes = _RAY.nodes()
    if not any(node["Alive"] for node in nodes):
        raise WorkerError(
            f"ray: none of the cluster's {len(nodes)} nodes is alive, so there is no place for a "
            "worker; start the cluster anew, and then this program"
        )


def capacity(options: Mapping[str, Any]) -> float:
    """How many actors with these options fit on the nodes that are alive, were they empty."""
    asked = _demand(options)
    room = 0.0
    for node in _RAY.nodes():
        if node["Alive"]:
            has = node["Resources"]
            # Ray counts in ten-thousandths; 1 / 0.1 is not to come out below 10.
            fits = [has.get(name, 0.0) / amount + 1e-6 for name, amount in asked.items()]
            room += float(np.floor(min(fits))) if fits else float("inf")
    return room


def came_home(failure: Failure) -> BaseException:
    """The error of a worker, of its own type where that can be had here."""
    try:
        return pickle.loads(failure.error)  # type: ignore[no-any-return]
    except Exception as error:
        lost = WorkerError(f"{failure.text} (its type cannot be loaded here: {error})")
        lost.__cause__ = error
        return lost


def unwrapped(error: RayTaskError, member: Member) -> BaseException:
    """What Ray reports of a message that a worker could not answer at all."""
    cause = error.cause if isinstance(error.cause, BaseException) else error
    cause.add_note(f"in {member}")
    cause.add_note(f"\nIn the worker:\n{error.traceback_str}")
    return cause


def death(error: RayError) -> str:
    """Why a worker is gone: the sentence among Ray's many words that says it."""
    if said := re.search(r"is dead because ([^.\n]+)", str(error)):
        return f"died: {said[1]}"
    return f"died: {_first_lines(error)}"


def _demand(options: Mapping[str, Any]) -> dict[str, float]:
    """What one actor asks of a node, by Ray's names."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
    asked = {name: float(options.get(option) or 0.0) for option, name in names.items()}
    asked |= {name: float(amount) for name, amount in (options.get("resources") or {}).items()}
    return {name: amount for name, amount in asked.items() if amount > 0}


def _asked(options: Mapping[str, Any]) -> str:
    strategy = options["scheduling_strategy"]
    placed = "" if strategy == "SPREAD" else f", placed by {strategy}"
    return (_amounts(_demand(options)) or "nothing") + placed


def _amounts(resources: Mapping[str, float]) -> str:
    """Resources in words; a node's own names and stores, which nobody asks for, are left out."""
    return ", ".join(
        f"{amount:g} {name}"
        for name, amount in sorted(resources.items())
        if ":" not in name and name != "object_store_memory"
    )


def _first_lines(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:8])


def _pickled(thing: Any) -> bytes:
    try:
        return cloudpickle.dumps(thing, protocol=5)  # type: ignore[no-any-return]
    except Exception as error:
        raise TargetError(
            "vector env: expected makers of envs that can be sent to another machine, got one "
            f"that cannot be pickled: {error}; make what it holds (a lock, a file, a simulator) "
            "inside of the function"
        ) from error
