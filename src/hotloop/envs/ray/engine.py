"""Envs in Ray actors, on any node of a cluster; each actor holds many, or any vector env.

One message a worker and step takes the actions of all its envs there, and one answer brings their
results. Where the policy can live beside the envs, fragments (`hotloop.rollout`) are faster: then
nothing travels at a step.
"""

import pickle
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np
import ray
from gymnasium.vector import AutoresetMode
from ray.exceptions import RayError, RayTaskError

from hotloop.data.layout import Tree, leaves
from hotloop.envs.actions import Given
from hotloop.envs.pickling import pickle_message
from hotloop.envs.pool import expect_limits, expect_workers, in_splits, owners
from hotloop.envs.ray.actors import ActorHandle, Actors, RaySettings
from hotloop.envs.ray.cluster import actor_options, capacity, expect_placement, start_ray
from hotloop.envs.ray.failures import death, error_of, unwrapped
from hotloop.envs.ray.messages import PendingMessage, StepPart, take_actions
from hotloop.envs.ray.worker import Answer, Outcome, as_index
from hotloop.envs.recovery import Episodes, over_in
from hotloop.envs.table import Rows, Table
from hotloop.envs.vector import VectorEnv
from hotloop.errors import StateError, WorkerError


class RayVectorEnv(VectorEnv):
    """Gymnasium's vector contract over envs of several Ray actors.

    fns: each makes an env, or a vector env (a native engine, another pool) that one worker steps
    as a whole. Envs are made in the worker, never here. Equal to `SerialVectorEnv` bit for bit, for
    every number of workers: an env's seed follows from its number.

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

    in_process = False

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
        groups, mode = in_splits(fns, splits, autoreset_mode)
        expect_limits(restarts, timeout_s, threads)
        expect_placement(num_cpus, start_timeout_s)
        options = actor_options(num_cpus, ray_options)
        if not ray.is_initialized():
            start_ray(address)
        count = num_workers
        if count is None:
            count = int(max(1, min(len(groups[0]), capacity(options))))
        expect_workers(count, groups)
        settings = RaySettings(
            *(count, mode, options, restarts, timeout_s),
            *(start_timeout_s, autoscales, threads),
        )
        self._actors = actors = Actors(settings, groups)
        actors.start()
        self._finalizer = weakref.finalize(self, actors.close)
        facts = actors.facts
        try:
            facts.expect_mode(mode)
            super().__init__(
                actors.num_envs, facts, batch_size=batch_size, splits=splits, copy=copy
            )
        except Exception:
            actors.kill()
            raise
        self.num_workers = count
        self.table = Table.empty(self.layout, self.num_envs, facts.reward_shape)
        self._leaves = list(leaves(self.table.obs))
        self._actions_have_objects = self.check_actions.layout.has_objects
        self._episodes = Episodes(self.num_envs, facts.autoreset_mode)
        self._pending: dict[Any, PendingMessage] = {}
        self._failures: list[tuple[list[int], BaseException]] = []
        self._owner = owners([handle.rows for handle in actors.handles], self.num_envs)
        self._row_in_worker = np.zeros(self.num_envs, np.int64)  # of a row among its worker's
        for handle in actors.handles:
            self._row_in_worker[handle.at] = np.arange(len(handle.rows))

    @property
    def worker_nodes(self) -> tuple[str, ...]:
        """The id of the node that each worker lives on."""
        return tuple(handle.node for handle in self._actors.handles)

    # --- what a backend does -------------------------------------------------------------------

    def _post_reset(
        self, rows: Rows, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        self._expect_ray()
        self._episodes.begin(rows, seeds)
        for handle in self._actors.handles:
            at = np.flatnonzero(self._owner[rows] == handle.number).tolist()
            if not at:
                continue
            own = rows[at].tolist()
            message = (self._row_in_worker[own].tolist(), [seeds[k] for k in at], options)
            self._post(
                PendingMessage(handle, "reset", own, as_index(own), cloudpickle.dumps(message))
            )

    def _post_step(self, rows: Rows, actions: Tree) -> None:
        self._expect_ray()
        if rows is self._everyone:
            plans = [
                StepPart(handle, handle.at, list(range(len(handle.slabs))), [])
                for handle in self._actors.handles
            ]
        else:
            plans = self._partial(rows)
        try:
            messages = [self._step_message(plan, actions) for plan in plans]
        except Exception:
            self._busy[rows] = False  # nothing is under way: an action could not be sent
            raise
        for message in messages:
            self._post(message)

    def _step_message(self, plan: "StepPart", actions: Tree) -> PendingMessage:
        handle, positions, slabs, single = plan
        own = [row for slab in slabs for row in handle.slabs[slab]] + single
        # Objects may be of a class that can be sent by value only.
        is_plain = not self._actions_have_objects and type(actions) is not Given
        dumps = pickle_message if is_plain else cloudpickle.dumps
        message = dumps(
            (slabs, [int(self._row_in_worker[k]) for k in single], take_actions(actions, positions))
        )
        at = handle.at if len(own) == len(handle.rows) and not single else as_index(own)
        return PendingMessage(handle, "step", own, at, message)

    def _partial(self, rows: Rows) -> list["StepPart"]:
        """For each worker with envs among `rows`, which they are.

        Raises: StateError for a part of a vector env; then nothing is under way.
        """
        plans = []
        position_of = {row: k for k, row in enumerate(rows.tolist())}
        for number in np.unique(self._owner[rows]).tolist():
            handle = self._actors.handles[number]
            slabs: list[int] = []
            single: list[int] = []
            for slab, envs in enumerate(handle.slabs):
                inside = [row for row in envs if row in position_of]
                if len(inside) == len(envs):
                    slabs.append(slab)
                elif inside and self._actors.facts.is_vector:
                    self._busy[rows] = False
                    raise StateError(
                        f"send: envs {envs[0]} to {envs[-1]} are one vector env, which steps as a "
                        f"whole: expected all of them, got {inside[:8]}"
                    )
                else:
                    single += inside
            order = [row for slab in slabs for row in handle.slabs[slab]] + single
            positions = as_index([position_of[row] for row in order])
            plans.append(StepPart(handle, positions, slabs, single))
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
        """The messages that may bring awaited envs, and whether all of them are needed."""
        if rows is None:
            missing = count - len(self._ready)
            if missing <= 0:
                return [], True
            pending = sum(len(message.rows) for message in self._pending.values())
            return list(self._pending), missing == pending
        left = set(rows.tolist()).difference(self._ready)
        if not left:
            return [], True
        return [
            ref
            for ref, message in self._pending.items()
            if not message.rows or not left.isdisjoint(message.rows)
        ], True

    def _settle(self) -> None:
        """After Ctrl-C at any place: let the workers finish, and take what was sent for ready."""
        for handle in self._actors.handles:
            if handle.is_torn:
                self._revive(handle, "was cut short by an interrupt", again=False)
        while self._pending:
            self._hear(list(self._pending), True, None)
        self._failures.clear()
        self._ready = self.under_way.tolist()

    # --- messages ------------------------------------------------------------------------------

    def _post(self, message: PendingMessage) -> None:
        ref = getattr(message.handle.actor, message.method).remote(message.message)
        self._pending[ref] = message
        message.handle.heard_s = time.monotonic()

    def _hear(self, refs: list[Any], every: bool, limit_s: float | None) -> None:
        """Take the first answers among `refs`, or all of them; replace workers that died."""
        self._expect_ray()
        timeout_s = self._actors.settings.timeout_s
        if every and timeout_s is None and limit_s is None:
            try:
                answers = ray.get(refs)
            except RayError:
                pass  # of some worker: of which one follows below
            else:
                for ref, got in zip(refs, answers, strict=True):
                    self._write_answer(self._pending.pop(ref), got)
                return
        limits_s = [s for s in (limit_s, timeout_s and timeout_s / 4) if s is not None]
        wait_s = min(limits_s, default=None)
        first, others = ray.wait(refs, timeout=wait_s)
        more = ray.wait(others, num_returns=len(others), timeout=0)[0] if others else []
        gone: dict[int, str] = {}
        for ref in first + more:
            handle = self._pending[ref].handle
            if why := self._take(ref):
                gone[handle.number] = why
        if timeout_s is not None:
            for number in self._hanging(refs, timeout_s):
                gone.setdefault(number, f"did not answer for {timeout_s:g} s")
        for number, why in gone.items():
            self._revive(self._actors.handles[number], why)

    def _take(self, ref: Any) -> str:
        """Take an answer that is there; returns why there is none, if its worker died."""
        message = self._pending[ref]
        try:
            got = ray.get(ref)
        except RayTaskError as error:
            self._failures.append((message.rows, unwrapped(error, message.handle)))
            self._ready += message.rows
        except RayError as error:
            return death(error)
        else:
            self._write_answer(message, got)
        del self._pending[ref]
        return ""

    def _write_answer(self, message: PendingMessage, got: Any) -> None:
        """Write an answer into its rows."""
        handle = message.handle
        handle.heard_s = time.monotonic()
        answer: Outcome | Answer = pickle.loads(got) if isinstance(got, bytes) else got
        if isinstance(answer, Answer):  # of a restore, or of a step without an outcome
            if answer.failure is not None:
                error = error_of(answer.failure)
                error.add_note(f"in {handle}")
                self._failures.append((message.rows, error))
                self._ready += message.rows
            return
        table, at = self.table, message.at
        for out, leaf in zip(self._leaves, answer.obs, strict=True):
            out[at] = leaf
        table.reward[at] = answer.reward
        table.terminated[at], table.truncated[at] = answer.terminated, answer.truncated
        if answer.infos:
            table.add_infos(0, [(handle.rows[row], info) for row, info in answer.infos])
        for failure in answer.failures:
            self._failures.append(([handle.rows[row] for row in failure.rows], error_of(failure)))
        self._ready += message.rows

    # --- workers that died or hang -------------------------------------------------------------

    def _hanging(self, refs: list[Any], timeout_s: float) -> list[int]:
        now = time.monotonic()
        waited_for = {self._pending[ref].handle.number for ref in refs if ref in self._pending}
        handles = self._actors.handles
        return [number for number in waited_for if now - handles[number].heard_s > timeout_s]

    def _revive(self, handle: ActorHandle, why: str, again: bool = True) -> None:
        """Start a worker anew: its episodes are cut, and what it had to do is sent again."""
        handle.is_torn = True
        own = [ref for ref, message in self._pending.items() if message.handle is handle]
        for ref in ray.wait(own, num_returns=len(own), timeout=0)[0] if own else []:
            self._take(ref)  # what it had still done
        lost = [message for message in self._pending.values() if message.handle is handle]
        self._pending = {
            ref: message for ref, message in self._pending.items() if message.handle is not handle
        }
        try:
            self._actors.replace(handle, why)
        finally:
            self.closed = self._actors.closed
        begins = {row for message in lost if message.method == "reset" for row in message.rows}
        plans = self._episodes.restore_plans(
            handle.slabs, over_in(self.table), begins, handle.restarts
        )
        # The worker has no memory of what it gave last: a cut episode ends with it.
        seen = [leaf[handle.at] for leaf in self._leaves]
        self._post(PendingMessage(handle, "restore", [], [], cloudpickle.dumps((seen, plans))))
        handle.is_torn = False
        for message in lost:
            if again and message.method != "restore":
                self._post(message)

    # --- questions -----------------------------------------------------------------------------

    def _call_each(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        actors = self._running_actors()
        refs = [actor.call.remote(name, args, kwargs) for actor in actors]
        return self._by_row(self._actors.ask(f"call({name!r})", refs))

    def _set_each(self, name: str, values: Sequence[Any]) -> None:
        actors = self._running_actors()
        refs = [
            actor.set.remote(name, [values[row] for row in handle.rows])
            for actor, handle in zip(actors, self._actors.handles, strict=True)
        ]
        self._actors.ask(f"set_attr({name!r})", refs)

    def _render_each(self) -> list[Any]:
        refs = [actor.render.remote() for actor in self._running_actors()]
        return self._by_row(self._actors.ask("render", refs))

    def _expect_ray(self) -> None:
        """Refuse to go on after Ray was shut down, and with it the workers."""
        if not ray.is_initialized():
            self.closed = True
            raise WorkerError(
                "ray vector env: Ray was shut down, and its workers with it: expected it to run "
                "until close(); make a new vector env"
            )

    def _running_actors(self) -> list[Any]:
        self._expect_ray()
        return [handle.actor for handle in self._actors.handles]

    def _by_row(self, answers: Sequence[Sequence[Any]]) -> list[Any]:
        by_row: list[Any] = [None] * self.num_envs
        for handle, values in zip(self._actors.handles, answers, strict=True):
            for row, value in zip(handle.rows, values, strict=True):
                by_row[row] = value
        return by_row

    def close_extras(self, *, terminate: bool = False, **kwargs: Any) -> None:  # noqa: ARG002
        """Close the envs and end the workers; `terminate` does not wait for steps under way."""
        if terminate:
            self._actors.kill()
        self._finalizer()
