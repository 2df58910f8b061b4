"""Envs in Ray actors, on any node of a cluster; each actor carries many, or any vector env.

One message a worker and step takes the actions of all its envs there, and one answer brings what
they gave. Where the policy can live beside the envs, fragments (`hotloop.rollout`) are faster: then
nothing travels at a step.
"""

import pickle
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import ray
from gymnasium.vector import AutoresetMode
from ray.exceptions import RayError, RayTaskError

from hotloop.data.layout import Tree, leaves, tree_map
from hotloop.envs.actions import Given
from hotloop.envs.ray_crew import (
    Member,
    RayCrew,
    RaySettings,
    actor_options,
    came_home,
    capacity,
    death,
    start_ray,
    unwrapped,
)
from hotloop.envs.ray_worker import Answer, Outcome, as_index, pickled
from hotloop.envs.recovery import expect_limits, expect_workers, restart_seed, restore_plan
from hotloop.envs.vector import Rows, Table, VectorEnv, as_autoreset_mode, as_batch_size
from hotloop.errors import SettingError, StateError, TargetError, WorkerError


@dataclass(frozen=True, eq=False)
class Flight:
    """One message under way to a worker, kept until it is answered: it may have to go again."""

    member: Member
    method: str  # reset, step or restore
    rows: list[int]
    at: slice | list[int]  # the same, as an index
    message: bytes


class Plan(NamedTuple):
    """Which envs of a worker are to step."""

    member: Member
    places: slice | list[int]  # of their actions among those given
    slabs: list[int]  # that step as a whole
    single: list[int]  # envs that step alone


class RayVectorEnv(VectorEnv):
    """Gymnasium's vector contract over envs of several Ray actors.

    fns: each makes an env, or a vector env (a native engine, another pool) that one worker steps
    as a whole. Envs are made in the worker, never here. Equal to `SerialVectorEnv` bit for bit, for
    every number of workers; so seeds go by the env's number.

    num_workers: as many as the cluster has room for if None, at most one for each maker.
    num_cpus: that each asks for; a fraction lets several share a core. ray_options: further
    options of the actors, such as `resources`, `num_gpus` or `scheduling_strategy`, which is
    "SPREAD" unless given. address: of a cluster, as `ray.init` takes it; used where Ray was not
    initialised before. Ray stays until the interpreter ends or `ray.shutdown()`, as others may
    use it by then.

    restarts: how often each worker may be started anew, on another node if need be, after it died
    or did not answer within `timeout_s`; its episodes are then truncated, with
    `infos["worker_restarted"]`. start_timeout_s: how long a worker may wait for a place.
    autoscales: whether the cluster grows when asked; else more than it has is refused at once.
    threads: that numerical libraries may use in a worker. Results of a worker come together, so
    a `recv` of fewer envs than all takes those of the first workers to finish.

    Raises: TargetError for makers or envs that do not fit; SettingError, also for more than the
    cluster has; what making an env raises; WorkerError for workers that find no place or die too
    often.
    """

    def __init__(
        self,
        fns: Sequence[Callable[[], Any]],
        *,
        num_workers: int | None = None,
        autoreset_mode: str | AutoresetMode | None = None,
        batch_size: int | None = None,
        splits: int = 1,
        copy: bool = True,
        restarts: int = 3,
        timeout_s: float | None = None,
        threads: int = 1,
        num_cpus: float = 1.0,
        ray_options: Mapping[str, Any] | None = None,
        address: str | None = None,
        start_timeout_s: float = 120.0,
        autoscales: bool = False,
    ) -> None:
        if not fns:
            raise TargetError("vector env: expected at least one env, got none")
        as_batch_size(None, len(fns), splits)
        mode = None if autoreset_mode is None else as_autoreset_mode(autoreset_mode)
        _expect_sound(restarts, timeout_s, threads, num_cpus, start_timeout_s)
        options = actor_options(num_cpus, ray_options)
        if not ray.is_initialized():
            start_ray(address)
        size = len(fns) // splits
        workers = num_workers
        if workers is None:
            workers = int(max(1, min(size, capacity(options))))
        expect_workers(workers, size, splits)
        self._crew = crew = RayCrew(
            RaySettings(
                *(workers, mode, options, restarts, timeout_s),
                *(start_timeout_s, autoscales, threads),
            ),
            [fns[k * size : (k + 1) * size] for k in range(splits)],
        )
        crew.start()
        self._finalizer = weakref.finalize(self, crew.close)
        facts = crew.facts
        try:
            facts.expect_mode(mode)
            super().__init__(crew.num_envs, facts, batch_size=batch_size, splits=splits, copy=copy)
        except Exception:
            crew.kill()
            raise
        self.num_workers = workers
        self.table = Table.empty(self.layout, self.num_envs, facts.reward_shape)
        self._leaves = list(leaves(self.table.obs))
        self._actions_have_objects = self.check_actions.layout.has_objects
        self._entropy = np.random.SeedSequence().entropy
        self._started = np.zeros(self.num_envs, np.bool_)
        self._flights: dict[Any, Flight] = {}
        self._failures: list[tuple[list[int], BaseException]] = []
        self._owner = np.zeros(self.num_envs, np.int64)
        self._place = np.zeros(self.num_envs, np.int64)  # of a row among its worker's
        for member in crew.members:
            self._owner[member.at] = member.number
            self._place[member.at] = np.arange(len(member.rows))

    @property
    def worker_nodes(self) -> tuple[str, ...]:
        """The id of the node that each worker lives on."""
        return tuple(member.node for member in self._crew.members)

    # --- what an engine does -------------------------------------------------------------------

    def _post_reset(
        self, rows: Rows, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        self._expect_ray()
        if seeds and seeds[0] is not None:
            self._entropy = abs(int(seeds[0]))
        self._started[rows] = True
        for member in self._crew.members:
            at = np.flatnonzero(self._owner[rows] == member.number).tolist()
            if not at:
                continue
            own = rows[at].tolist()
            message = (self._place[own].tolist(), [seeds[k] for k in at], options)
            self._fly(Flight(member, "reset", own, as_index(own), cloudpickle.dumps(message)))

    def _post_step(self, rows: Rows, actions: Tree) -> None:
        self._expect_ray()
        if rows is self._everyone:
            plans = [
                Plan(member, member.at, list(range(len(member.slabs))), [])
                for member in self._crew.members
            ]
        else:
            plans = self._partial(rows)
        try:
            flights = [self._step_flight(plan, actions) for plan in plans]
        except Exception:
            self._busy[rows] = False  # nothing is under way: an action that cannot be sent
            raise
        for flight in flights:
            self._fly(flight)

    def _step_flight(self, plan: "Plan", actions: Tree) -> Flight:
        member, places, slabs, single = plan
        own = [row for slab in slabs for row in member.slabs[slab]] + single
        # Objects may be of a class that the worker can be told of by value only.
        is_plain = not self._actions_have_objects and type(actions) is not Given
        dumps = pickled if is_plain else cloudpickle.dumps
        message = dumps((slabs, [int(self._place[k]) for k in single], _taken(actions, places)))
        at = member.at if len(own) == len(member.rows) and not single else as_index(own)
        return Flight(member, "step", own, at, message)

    def _partial(self, rows: Rows) -> list["Plan"]:
        """For each worker with envs among `rows`, which they are.

        Raises: StateError for a part of a vector env; then nothing is under way.
        """
        plans = []
        place_of = {row: k for k, row in enumerate(rows.tolist())}
        for number in np.unique(self._owner[rows]).tolist():
            member = self._crew.members[number]
            slabs: list[int] = []
            single: list[int] = []
            for slab, envs in enumerate(member.slabs):
                inside = [row for row in envs if row in place_of]
                if len(inside) == len(envs):
                    slabs.append(slab)
                elif inside and self._crew.facts.is_vector:
                    self._busy[rows] = False
                    raise StateError(
                        f"send: envs {envs[0]} to {envs[-1]} are one vector env, which steps as a "
                        f"whole: expected all of them, got {inside[:8]}"
                    )
                else:
                    single += inside
            order = [row for slab in slabs for row in member.slabs[slab]] + single
            places = as_index([place_of[row] for row in order])
            plans.append(Plan(member, places, slabs, single))
        return plans

    def _await(self, count: int, rows: Rows | None) -> None:
        if self._torn:
            self._settle()
            return
        while True:
            if self._failures:
                failed, error = self._failures.pop(0)
                self._give_up(np.array(failed, np.int64))
                raise error
            refs, every = self._missing(count, rows)
            if not refs:
                return
            self._hear(refs, every, None)

    def _await_some(self, count: int, timeout_s: float | None) -> None:
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._failures:
            refs, every = self._missing(count, None)
            left_s = None if end_s is None else end_s - time.monotonic()
            if not refs:
                return
            self._hear(refs, every, None if left_s is None else max(left_s, 0.0))
            if left_s is not None and left_s <= 0:
                return

    def _missing(self, count: int, rows: Rows | None) -> tuple[list[Any], bool]:
        """The messages of which some bring what is awaited, and whether it takes all of them."""
        if rows is None:
            missing = count - len(self._ready)
            if missing <= 0:
                return [], True
            pending = sum(len(flight.rows) for flight in self._flights.values())
            return list(self._flights), missing == pending
        left = set(rows.tolist()).difference(self._ready)
        if not left:
            return [], True
        return [
            ref
            for ref, flight in self._flights.items()
            if not flight.rows or not left.isdisjoint(flight.rows)
        ], True

    def _settle(self) -> None:
        """After Ctrl-C at any place: let the workers come to rest, and call ready what was sent."""
        for member in self._crew.members:
            if member.is_torn:
                self._revive(member, "was cut short by an interrupt", again=False)
        while self._flights:
            self._hear(list(self._flights), True, None)
        self._failures.clear()
        self._ready = self.under_way.tolist()

    # --- messages ------------------------------------------------------------------------------

    def _fly(self, flight: Flight) -> None:
        ref = getattr(flight.member.actor, flight.method).remote(flight.message)
        self._flights[ref] = flight
        flight.member.heard_s = time.monotonic()

    def _hear(self, refs: list[Any], every: bool, limit_s: float | None) -> None:
        """Take in the first answers among `refs`, or all of them; replace who has gone."""
        self._expect_ray()
        timeout_s = self._crew.settings.timeout_s
        if every and timeout_s is None and limit_s is None:
            try:
                answers = ray.get(refs)
            except RayError:
                pass  # some worker's: which one is found out below
            else:
                for ref, got in zip(refs, answers, strict=True):
                    self._land(self._flights.pop(ref), got)
                return
        limits_s = [s for s in (limit_s, timeout_s and timeout_s / 4) if s is not None]
        wait_s = min(limits_s, default=None)
        first, others = ray.wait(refs, timeout=wait_s)
        more = ray.wait(others, num_returns=len(others), timeout=0)[0] if others else []
        gone: dict[int, str] = {}
        for ref in first + more:
            member = self._flights[ref].member
            if why := self._take(ref):
                gone[member.number] = why
        if timeout_s is not None:
            for number in self._hanging(refs, timeout_s):
                gone.setdefault(number, f"did not answer for {timeout_s:g} s")
        for number, why in gone.items():
            self._revive(self._crew.members[number], why)

    def _take(self, ref: Any) -> str:
        """Take in an answer that is there; returns why there is none, if its worker has gone."""
        flight = self._flights[ref]
        try:
            got = ray.get(ref)
        except RayTaskError as error:
            self._failures.append((flight.rows, unwrapped(error, flight.member)))
            self._ready += flight.rows
        except RayError as error:
            return death(error)
        else:
            self._land(flight, got)
        del self._flights[ref]
        return ""

    def _land(self, flight: Flight, got: Any) -> None:
        """Write what came into the rows that it is for."""
        member = flight.member
        member.heard_s = time.monotonic()
        answer: Outcome | Answer = pickle.loads(got) if isinstance(got, bytes) else got
        if isinstance(answer, Answer):  # of a restore, or that there can be no outcome
            if answer.failure is not None:
                error = came_home(answer.failure)
                error.add_note(f"in {member}")
                self._failures.append((flight.rows, error))
                self._ready += flight.rows
            return
        table, at = self.table, flight.at
        for out, leaf in zip(self._leaves, answer.obs, strict=True):
            out[at] = leaf
        table.reward[at] = answer.reward
        table.terminated[at], table.truncated[at] = answer.terminated, answer.truncated
        if answer.infos:
            table.tell(0, [(member.rows[row], info) for row, info in answer.infos])
        for failure in answer.failures:
            self._failures.append(([member.rows[row] for row in failure.rows], came_home(failure)))
        self._ready += flight.rows

    # --- workers that died or hang -------------------------------------------------------------

    def _hanging(self, refs: list[Any], timeout_s: float) -> list[int]:
        now = time.monotonic()
        waited_for = {self._flights[ref].member.number for ref in refs if ref in self._flights}
        members = self._crew.members
        return [number for number in waited_for if now - members[number].heard_s > timeout_s]

    def _revive(self, member: Member, why: str, again: bool = True) -> None:
        """Start a worker anew: its episodes are cut, and what it had to do is sent again."""
        member.is_torn = True
        own = [ref for ref, flight in self._flights.items() if flight.member is member]
        for ref in ray.wait(own, num_returns=len(own), timeout=0)[0] if own else []:
            self._take(ref)  # what it had still done
        lost = [flight for flight in self._flights.values() if flight.member is member]
        self._flights = {
            ref: flight for ref, flight in self._flights.items() if flight.member is not member
        }
        try:
            self._crew.replace(member, why)
        finally:
            self.closed = self._crew.closed
        begins = {row for flight in lost if flight.method == "reset" for row in flight.rows}
        over = self.table.terminated | self.table.truncated
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            over[:] = False
        plans = [
            restore_plan(
                [self._started[row] and row not in begins for row in slab],
                over[slab.start : slab.stop].tolist(),
                [restart_seed(self._entropy, row, member.restarts) for row in slab],
            )
            for slab in member.slabs
        ]
        # The worker has no memory of what it gave last: a cut episode ends with it.
        seen = [leaf[member.at] for leaf in self._leaves]
        self._fly(Flight(member, "restore", [], [], cloudpickle.dumps((seen, plans))))
        member.is_torn = False
        for flight in lost:
            if again and flight.method != "restore":
                self._fly(flight)

    # --- questions -----------------------------------------------------------------------------

    def _call_each(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        actors = self._actors()
        refs = [actor.call.remote(name, args, kwargs) for actor in actors]
        return self._by_row(self._crew.ask(f"call({name!r})", refs))

    def _set_each(self, name: str, values: Sequence[Any]) -> None:
        actors = self._actors()
        refs = [
            actor.set.remote(name, [values[row] for row in member.rows])
            for actor, member in zip(actors, self._crew.members, strict=True)
        ]
        self._crew.ask(f"set_attr({name!r})", refs)

    def _render_each(self) -> list[Any]:
        refs = [actor.render.remote() for actor in self._actors()]
        return self._by_row(self._crew.ask("render", refs))

    def _expect_ray(self) -> None:
        """Refuse to go on after Ray was shut down, and with it the workers."""
        if not ray.is_initialized():
            self.closed = True
            raise WorkerError(
                "ray vector env: Ray was shut down, and its workers with it: expected it to run "
                "until close(); make a new vector env"
            )

    def _actors(self) -> list[Any]:
        self._expect_ray()
        return [member.actor for member in self._crew.members]

    def _by_row(self, answers: Sequence[Sequence[Any]]) -> list[Any]:
        by_row: list[Any] = [None] * self.num_envs
        for member, values in zip(self._crew.members, answers, strict=True):
            for row, value in zip(member.rows, values, strict=True):
                by_row[row] = value
        return by_row

    def close_extras(self, *, terminate: bool = False, **kwargs: Any) -> None:  # noqa: ARG002
        """Close the envs and end the workers; `terminate` does not wait for steps under way."""
        if terminate:
            self._crew.kill()
        self._finalizer()


def _taken(actions: Tree, at: slice | list[int]) -> Tree:
    """The actions at some places."""
    if type(actions) is not Given:
        return tree_map(lambda leaf: leaf[at], actions)
    return Given(actions[at] if isinstance(at, slice) else [actions[k] for k in at])


def _expect_sound(
    restarts: int, timeout_s: float | None, threads: int, num_cpus: float, start_timeout_s: float
) -> None:
    expect_limits(restarts, timeout_s, threads)
    if not 0 <= num_cpus < float("inf") or not start_timeout_s > 0:
        raise SettingError(
            "expected num_cpus >= 0 for each worker, start_timeout_s > 0, got "
            f"{num_cpus}, {start_timeout_s}"
        )
