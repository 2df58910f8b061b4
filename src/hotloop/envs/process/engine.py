"""Envs in worker processes of this machine, many in each, with all step data in shared memory."""

import time
from collections.abc import Callable, Sequence
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from hotloop.data.layout import Tree, leaves
from hotloop.envs.actions import Given, action_splitter, float_widths
from hotloop.envs.pool import expect_limits, expect_workers, in_splits, owners
from hotloop.envs.process.channel import slab_entry
from hotloop.envs.process.handle import WorkerHandle, WorkerSettings
from hotloop.envs.process.worker import Message
from hotloop.envs.process.workers import Workers
from hotloop.envs.recovery import Episodes, over_in
from hotloop.envs.slab import expect_whole_slabs
from hotloop.envs.table import Rows
from hotloop.envs.vector import VectorEnv
from hotloop.errors import StateError
from hotloop.loop.host import whole_cores

# The driver is woken by the last so many workers, not by the very last alone. Beside programs that
# compute, the scheduler lets a process that has slept for a whole step wait longer: 4 envs of 1 ms
# in 4 workers beside two such programs took 4.14 ms a step by one wake-up, 3.94 by four.
WOKEN_BY = 4


class ProcessVectorEnv(VectorEnv):
    """Gymnasium's vector contract over envs of several worker processes.

    fns: each makes an env, or a vector env (a native engine, another pool) that one worker steps
    as a whole. Envs are made in the worker, never here. Equal to `SerialVectorEnv` bit for bit, for
    every number of workers: an env's seed follows from its number.

    num_workers: one for each usable core if None, at most one for each maker. autoreset_mode: of
    envs, next-step if None; vector envs have their own. context: how processes start, as in
    `multiprocessing`. restarts: how often each worker may be started anew after it died, or after
    `timeout_s` seconds in which it did not move; its episodes are then truncated, with
    `infos["worker_restarted"]`. threads: that numerical libraries may use in a worker.

    Raises: TargetError for makers or envs that do not fit; SettingError; what making an env
    raises; WorkerError for workers that die too often.
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
        context: str | None = None,
        daemon: bool = True,
        restarts: int = 3,
        timeout_s: float | None = None,
        threads: int = 1,
    ) -> None:
        groups, mode = in_splits(fns, splits, autoreset_mode)
        count = min(whole_cores(), len(groups[0])) if num_workers is None else num_workers
        expect_workers(count, groups)
        expect_limits(restarts, timeout_s, threads)
        settings = WorkerSettings(
            *(count, mode, context, daemon, restarts, timeout_s, threads),
            driver_works=splits > 1 or batch_size is not None,
        )
        self._workers = workers = Workers(settings, groups)
        workers.start()
        # At exit, and in workers that have workers: before multiprocessing waits for them.
        self._finalizer = Finalize(self, workers.close, exitpriority=10)
        facts = workers.facts
        try:
            facts.expect_mode(mode)
            super().__init__(
                workers.num_envs, facts, batch_size=batch_size, splits=splits, copy=copy
            )
        except Exception:
            workers.kill()
            raise
        self.num_workers = count
        self.table = workers.channel.table
        self._split_actions = action_splitter(facts.action_space)
        self._has_floats = any(
            leaf.dtype.kind == "f" for leaf in workers.channel.shape.action.leaves
        )
        self._given: dict[int, Any] = {}  # actions under way that no array holds
        self._episodes = Episodes(self.num_envs, facts.autoreset_mode)
        self._over = np.zeros(self.num_envs, np.bool_)
        self._resets: dict[int, tuple[int | None, dict[str, Any] | None]] = {}
        # One env at a time only where batches may be cut through a slab.
        self._whole_slabs = facts.is_vector or self.batch_size == self.num_envs or splits > 1
        self._woken_before = WOKEN_BY * max(len(handle.rows) for handle in workers.handles)
        self._owner = owners([handle.rows for handle in workers.handles], self.num_envs)

    # --- what a backend does -------------------------------------------------------------------

    def _post_reset(
        self, rows: Rows, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        self._episodes.begin(rows, seeds)
        asked = dict(zip(rows.tolist(), seeds, strict=True))
        self._resets |= {row: (seed, options) for row, seed in asked.items()}
        for handle in self._workers.handles:
            self._post_resets(handle, [row for row in handle.rows if row in asked])

    def _post_resets(self, handle: WorkerHandle, rows: Sequence[int]) -> None:
        if not rows:
            return
        options = self._resets[rows[0]][1]
        seeds = [self._resets[row][0] for row in rows]
        self._workers.say(handle, Message.RESET, list(rows), seeds, options)

    def _post_step(self, rows: Rows, actions: Tree) -> None:
        table, channel = self.table, self._workers.channel
        if self._workers.facts.is_vector and rows is not self._everyone:
            self._expect_whole(rows)
        at: Any = rows
        if rows is self._everyone:
            at = slice(None)
            np.logical_or(table.terminated, table.truncated, out=self._over)
        else:
            self._over[rows] = table.terminated[rows] | table.truncated[rows]
        is_given = type(actions) is Given or channel.shape.action.has_objects
        widths: set[bool] = set()
        if self._has_floats and not is_given:
            widths = float_widths(actions, channel.shape.action)
        if is_given or len(widths) > 1:
            self._give_all(rows, self._split_actions(actions))
        else:
            wide = True in widths
            channel.is_wide[at] = wide
            target = channel.wide_actions if wide else channel.actions
            for out, leaf in zip(leaves(target), leaves(actions), strict=True):
                out[at] = leaf
        if rows is self._everyone and self._whole_slabs:
            for handle in self._workers.handles:
                self._workers.post(handle, handle.slab_entries)
            return
        for handle in self._workers.handles:
            self._post_rows(handle, rows[self._owner[rows] == handle.number].tolist())

    def _expect_whole(self, rows: Rows) -> None:
        """Refuse a part of a vector env before anything is under way."""
        bounds = [
            bound
            for handle in self._workers.handles
            for bound in zip(handle.firsts, handle.sizes, strict=True)
        ]
        try:
            expect_whole_slabs(rows, bounds)
        except StateError:
            self._give_up(rows)
            raise

    def _give_all(self, rows: Rows, actions: Sequence[Any]) -> None:
        self._given |= zip(rows.tolist(), actions, strict=True)
        try:
            for handle in self._workers.handles:
                self._give(handle, rows[self._owner[rows] == handle.number].tolist())
        except Exception:
            self._give_up(rows)
            raise

    def _give(self, handle: WorkerHandle, rows: Sequence[int]) -> None:
        """Send a worker the actions of its rows that no array holds."""
        if given := {row: self._given[row] for row in rows if row in self._given}:
            self._workers.say(handle, Message.GIVE, given)

    def _post_rows(self, handle: WorkerHandle, rows: list[int]) -> None:
        """Post steps of some rows of one worker, as whole slabs where they are whole."""
        if not rows:
            return
        entries: list[int] = []
        if self._whole_slabs:
            left = set(rows)
            for slab, (first, size) in enumerate(zip(handle.firsts, handle.sizes, strict=True)):
                inside = left.intersection(range(first, first + size))
                if len(inside) == size:
                    entries.append(slab_entry(slab))
                    left -= inside
            rows = [row for row in rows if row in left]
        self._workers.post(handle, entries + rows)

    def _await(self, count: int, rows: Rows | None) -> None:
        if self._torn:
            self._settle()
            return
        workers = self._workers
        needed = None if rows is None else set(rows.tolist())
        while True:
            one_by_one = needed is not None or bool(workers.failures)
            before = workers.channel.count_finished() if one_by_one else None
            self._collect()
            self._raise_failure()
            missing = count - len(self._ready)
            if missing <= 0 if needed is None else needed.issubset(self._ready):
                if time.monotonic() > workers.look_s:  # others may keep it busy for ever
                    self._revive_some(workers.dead())
                return
            self._revive_some(workers.rest(self._due(missing, before)))

    def _due(self, missing: int, before: list[int] | None) -> Callable[[], bool]:
        """A function that says whether so many more are done, or more than `before`."""
        channel = self._workers.channel
        if before is not None or self._workers.failures:
            channel.wanted[0] = 0
            return lambda: before is None or channel.count_finished() != before
        total = missing + sum([handle.stepped for handle in self._workers.handles])
        channel.wanted[0] = max(0, total - self._woken_before)
        return lambda: channel.count_stepped() >= total

    def _raise_failure(self) -> None:
        """Raise an env's error once all rows that failed with it were collected."""
        failures = self._workers.failures
        for k, (rows, error) in enumerate(failures):
            if set(rows).issubset(self._ready):
                del failures[k]
                self._give_up(np.array(rows, np.int64))
                raise error

    def _settle(self) -> None:
        """After Ctrl-C at any place: let the workers finish, and take what was sent for ready."""
        workers = self._workers
        workers.failures.clear()
        for handle in workers.handles:
            if not handle.process.is_alive():
                self._revive(handle, "died", again=False)
        workers.put(workers.handles, [(Message.SETTLE,)] * self.num_workers)
        settled = False
        while not settled:
            try:
                settled = workers.answers(workers.handles, None) is not None
            except Exception:
                if workers.closed:
                    self.closed = True
                    raise
                continue  # of a step that no caller awaits any more
        self._collect()
        workers.failures.clear()
        self._resets.clear()
        self._given.clear()
        self._ready = self.under_way.tolist()

    def _await_some(self, count: int, timeout_s: float | None) -> None:
        workers = self._workers
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._collect()
            missing = count - len(self._ready)
            left_s = None if end_s is None else end_s - time.monotonic()
            if missing <= 0 or workers.failures or (left_s is not None and left_s <= 0):
                return
            self._revive_some(workers.rest(self._due(missing, None), left_s))

    def _revive_some(self, ended: Sequence[WorkerHandle]) -> None:
        """Start workers anew that died or hang."""
        for handle in ended:
            self._revive(handle, "died")
        timeout_s = self._workers.settings.timeout_s
        if timeout_s is not None:
            self._collect()  # what was done while the driver itself was held up
            for handle in self._hanging(timeout_s):
                self._revive(handle, f"did not move for {timeout_s:g} s")

    def _collect(self) -> list[int]:
        rows = self._workers.collect(self._ready)
        if self._resets or self._given:
            for row in rows:
                self._resets.pop(row, None)
                self._given.pop(row, None)
        return rows

    # --- workers that died or hang -------------------------------------------------------------

    def _under_way(self, handle: WorkerHandle) -> list[int]:
        ready = set(self._ready)
        return [row for row in handle.rows if self._busy[row] and row not in ready]

    def _hanging(self, timeout_s: float) -> list[WorkerHandle]:
        now = time.monotonic()
        return [
            handle
            for handle in self._workers.handles
            if now - handle.heard_s > timeout_s and self._under_way(handle)
        ]

    def _revive(self, handle: WorkerHandle, why: str, again: bool = True) -> None:
        """Start a worker anew: its episodes are cut, and its entries are posted again."""
        workers = self._workers
        workers.stop(handle)
        self._collect()
        try:
            workers.replace(handle, why)
        finally:
            self.closed = workers.closed
        under_way = self._under_way(handle)
        self.table.take_env_infos(np.array(under_way, np.int64))
        workers.failures = [
            (rows, error) for rows, error in workers.failures if not set(rows) & set(under_way)
        ]
        steps = [row for row in under_way if row not in self._resets]
        over = over_in(self.table)
        over[steps] = self._over[steps]
        plans = self._episodes.restore_plans(handle.slabs, over, self._resets, handle.restarts)
        objects = [
            (leaf, row, column[row])
            for leaf, column in enumerate(leaves(self.table.obs))
            if column.dtype.hasobject
            for row in handle.rows
        ]
        workers.say(handle, Message.RESTORE, objects, *plans)
        if not again:
            return
        self._post_resets(handle, [row for row in under_way if row in self._resets])
        self._give(handle, steps)
        self._post_rows(handle, steps)

    # --- questions -----------------------------------------------------------------------------

    def _call_each(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return self._by_row([(Message.CALL, name, args, kwargs)] * self.num_workers)

    def call_async(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Begin a `call`; `call_wait` gives its results.

        Raises: StateError while envs are stepping.
        """
        self._refuse_pending("call_async")
        workers = self._workers
        workers.put(workers.handles, [(Message.CALL, name, args, kwargs)] * self.num_workers)

    def call_wait(self, timeout_s: float | None = None) -> tuple[Any, ...] | None:
        """The results of a `call_async`, env by env; None if it takes over `timeout_s` seconds.

        Raises: what an env raised, with a note that says which.
        """
        answers = self._answers(timeout_s)
        return None if answers is None else tuple(self._in_order(answers))

    def _set_each(self, name: str, values: Sequence[Any]) -> None:
        handles = self._workers.handles
        self._ask([(Message.SET, name, [values[row] for row in m.rows]) for m in handles])

    def _render_each(self) -> list[Any]:
        return self._by_row([(Message.RENDER,)] * self.num_workers)

    def _by_row(self, messages: Sequence[tuple[Any, ...]]) -> list[Any]:
        return self._in_order(self._ask(messages))

    def _ask(self, messages: Sequence[tuple[Any, ...]]) -> list[Any]:
        self._workers.put(self._workers.handles, messages)
        answers = self._answers(None)
        assert answers is not None  # without a limit
        return answers

    def _answers(self, limit_s: float | None) -> list[Any] | None:
        try:
            return self._workers.answers(self._workers.handles, limit_s)
        finally:
            self.closed = self._workers.closed

    def _in_order(self, answers: Sequence[Sequence[Any]]) -> list[Any]:
        """One value an env, from each worker's."""
        by_row: dict[int, Any] = {}
        for handle, values in zip(self._workers.handles, answers, strict=True):
            by_row |= dict(zip(handle.rows, values, strict=True))
        return [by_row[row] for row in range(self.num_envs)]

    def close_extras(self, *, terminate: bool = False, **kwargs: Any) -> None:  # noqa: ARG002
        """Close the envs and end the workers; `terminate` does not wait for steps under way."""
        if terminate:
            self._workers.kill()
        self._finalizer()
