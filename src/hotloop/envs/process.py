"""Envs in worker processes of this machine, many in each, with all step data in shared memory."""

import time
from collections.abc import Callable, Sequence
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from hotloop.data.layout import Tree, leaves
from hotloop.envs.actions import Given, action_splitter, float_widths
from hotloop.envs.channel import slab_entry
from hotloop.envs.crew import Crew, CrewSettings, Member
from hotloop.envs.placement import whole_cores
from hotloop.envs.recovery import expect_limits, expect_workers, restart_seed, restore_plan
from hotloop.envs.slab import expect_whole_slabs
from hotloop.envs.vector import Rows, VectorEnv, as_autoreset_mode, as_batch_size
from hotloop.envs.worker import Message
from hotloop.errors import StateError, TargetError


class ProcessVectorEnv(VectorEnv):
    """Gymnasium's vector contract over envs of several worker processes.

    fns: each makes an env, or a vector env (a native engine, another pool) that one worker steps
    as a whole. Envs are made in the worker, never here. Equal to `SerialVectorEnv` bit for bit, for
    every number of workers; so seeds go by the env's number.

    num_workers: one for each usable core if None, at most one for each maker. autoreset_mode: of
    envs, next-step if None; vector envs have their own. context: how processes start, as in
    `multiprocessing`. restarts: how often each worker may be started anew after it died, or after
    `timeout_s` seconds in which it did not move; its episodes are then truncated, with
    `infos["worker_restarted"]`. threads: that numerical libraries may use in a worker.

    Raises: TargetError for makers or envs that do not fit; SettingError; what making an env
    raises; WorkerError for workers that die too often.
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
        context: str | None = None,
        daemon: bool = True,
        restarts: int = 3,
        timeout_s: float | None = None,
        threads: int = 1,
    ) -> None:
        if not fns:
            raise TargetError("vector env: expected at least one env, got none")
        as_batch_size(None, len(fns), splits)
        mode = None if autoreset_mode is None else as_autoreset_mode(autoreset_mode)
        size = len(fns) // splits
        workers = min(whole_cores(), size) if num_workers is None else num_workers
        expect_workers(workers, size, splits)
        expect_limits(restarts, timeout_s, threads)
        groups = [fns[k * size : (k + 1) * size] for k in range(splits)]
        self._crew = crew = Crew(
            CrewSettings(
                *(workers, mode, context, daemon, restarts, timeout_s, threads),
                driver_works=splits > 1 or batch_size is not None,
            ),
            groups,
        )
        crew.start()
        # At exit, and in workers that have workers: before multiprocessing waits for them.
        self._finalizer = Finalize(self, crew.close, exitpriority=10)
        facts = crew.facts
        try:
            facts.expect_mode(mode)
            super().__init__(crew.num_envs, facts, batch_size=batch_size, splits=splits, copy=copy)
        except Exception:
            crew.kill()
            raise
        self.num_workers = workers
        self.table = crew.channel.table
        self._split_actions = action_splitter(facts.action_space)
        self._has_floats = any(leaf.dtype.kind == "f" for leaf in crew.channel.shape.action.leaves)
        self._given: dict[int, Any] = {}  # actions under way that no array holds
        self._entropy = np.random.SeedSequence().entropy
        self._started = np.zeros(self.num_envs, np.bool_)
        self._over = np.zeros(self.num_envs, np.bool_)
        self._resets: dict[int, tuple[int | None, dict[str, Any] | None]] = {}
        # One env at a time only where batches may be cut through a slab.
        self._whole_slabs = facts.is_vector or self.batch_size == self.num_envs or splits > 1
        self._stepped = [member.end.stepped for member in crew.members]
        self._finished = [member.end.finished for member in crew.members]
        self._owner = np.zeros(self.num_envs, np.int64)
        for member in crew.members:
            self._owner[member.rows] = member.number

    # --- what an engine does -------------------------------------------------------------------

    def _post_reset(
        self, rows: Rows, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        if seeds and seeds[0] is not None:
            self._entropy = abs(int(seeds[0]))
        self._started[rows] = True
        asked = dict(zip(rows.tolist(), seeds, strict=True))
        self._resets |= {row: (seed, options) for row, seed in asked.items()}
        for member in self._crew.members:
            self._post_resets(member, [row for row in member.rows if row in asked])

    def _post_resets(self, member: Member, rows: Sequence[int]) -> None:
        if not rows:
            return
        options = self._resets[rows[0]][1]
        seeds = [self._resets[row][0] for row in rows]
        self._crew.say(member, Message.RESET, list(rows), seeds, options)

    def _post_step(self, rows: Rows, actions: Tree) -> None:
        table, channel = self.table, self._crew.channel
        if self._crew.facts.is_vector and rows is not self._everyone:
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
            for member in self._crew.members:
                self._crew.post(member, member.slab_entries)
            return
        for member in self._crew.members:
            self._post_rows(member, rows[self._owner[rows] == member.number].tolist())

    def _expect_whole(self, rows: Rows) -> None:
        """Refuse a part of a vector env before anything is under way."""
        bounds = [
            bound
            for member in self._crew.members
            for bound in zip(member.firsts, member.sizes, strict=True)
        ]
        try:
            expect_whole_slabs(rows, bounds)
        except StateError:
            self._give_up(rows)
            raise

    def _give_all(self, rows: Rows, actions: Sequence[Any]) -> None:
        self._given |= zip(rows.tolist(), actions, strict=True)
        try:
            for member in self._crew.members:
                self._give(member, rows[self._owner[rows] == member.number].tolist())
        except Exception:
            self._give_up(rows)
            raise

    def _give(self, member: Member, rows: Sequence[int]) -> None:
        """Send a worker the actions of its rows that no array holds."""
        if given := {row: self._given[row] for row in rows if row in self._given}:
            self._crew.say(member, Message.GIVE, given)

    def _post_rows(self, member: Member, rows: list[int]) -> None:
        """Post steps of some rows of one worker, as whole slabs where they are whole."""
        if not rows:
            return
        entries: list[int] = []
        if self._whole_slabs:
            left = set(rows)
            for slab, (first, size) in enumerate(zip(member.firsts, member.sizes, strict=True)):
                inside = left.intersection(range(first, first + size))
                if len(inside) == size:
                    entries.append(slab_entry(slab))
                    left -= inside
            rows = [row for row in rows if row in left]
        self._crew.post(member, entries + rows)

    def _await(self, count: int, rows: Rows | None) -> None:
        if self._torn:
            self._settle()
            return
        crew = self._crew
        needed = None if rows is None else set(rows.tolist())
        while True:
            one_by_one = needed is not None or bool(crew.failures)
            before = [cell[0] for cell in self._finished] if one_by_one else None
            self._collect()
            self._raise_failure()
            missing = count - len(self._ready)
            if missing <= 0 if needed is None else needed.issubset(self._ready):
                if time.monotonic() > crew.look_s:  # others may keep it busy for ever
                    self._revive_some(crew.dead())
                return
            self._revive_some(crew.rest(self._due(missing, before)))

    def _due(self, missing: int, before: list[int] | None) -> Callable[[], bool]:
        """What says that so many more are done, or that more is done than `before`."""
        if before is not None or self._crew.failures:
            self._crew.channel.wanted[0] = 0
            finished = self._finished
            return lambda: before is None or [cell[0] for cell in finished] != before
        total = missing + sum([member.stepped for member in self._crew.members])
        self._crew.channel.wanted[0] = total
        stepped = self._stepped
        return lambda: sum([cell[0] for cell in stepped]) >= total

    def _raise_failure(self) -> None:
        """Raise an env's error once all that failed with it was collected: nothing comes late."""
        failures = self._crew.failures
        for k, (rows, error) in enumerate(failures):
            if set(rows).issubset(self._ready):
                del failures[k]
                self._give_up(np.array(rows, np.int64))
                raise error

    def _settle(self) -> None:
        """After Ctrl-C at any place: let the workers come to rest, and call ready what was sent."""
        crew = self._crew
        crew.failures.clear()
        for member in crew.members:
            if not member.process.is_alive():
                self._revive(member, "died", again=False)
        crew.put(crew.members, [(Message.SETTLE,)] * self.num_workers)
        settled = False
        while not settled:
            try:
                settled = crew.answers(crew.members, None) is not None
            except Exception:
                if crew.closed:
                    self.closed = True
                    raise
                continue  # of a step that nobody awaits any more
        self._collect()
        crew.failures.clear()
        self._resets.clear()
        self._given.clear()
        self._ready = self.under_way.tolist()

    def _await_some(self, count: int, timeout_s: float | None) -> None:
        crew = self._crew
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._collect()
            missing = count - len(self._ready)
            left_s = None if end_s is None else end_s - time.monotonic()
            if missing <= 0 or crew.failures or (left_s is not None and left_s <= 0):
                return
            self._revive_some(crew.rest(self._due(missing, None), left_s))

    def _revive_some(self, ended: Sequence[Member]) -> None:
        """Start anew who died, and who hangs."""
        for member in ended:
            self._revive(member, "died")
        timeout_s = self._crew.settings.timeout_s
        if timeout_s is not None:
            self._collect()  # what was done while the driver itself was held up
            for member in self._hanging(timeout_s):
                self._revive(member, f"did not move for {timeout_s:g} s")

    def _collect(self) -> list[int]:
        rows = self._crew.collect(self._ready)
        if self._resets or self._given:
            for row in rows:
                self._resets.pop(row, None)
                self._given.pop(row, None)
        return rows

    # --- workers that died or hang -------------------------------------------------------------

    def _under_way(self, member: Member) -> list[int]:
        ready = set(self._ready)
        return [row for row in member.rows if self._busy[row] and row not in ready]

    def _hanging(self, timeout_s: float) -> list[Member]:
        now = time.monotonic()
        return [
            member
            for member in self._crew.members
            if now - member.heard_s > timeout_s and self._under_way(member)
        ]

    def _revive(self, member: Member, why: str, again: bool = True) -> None:
        """Start a worker anew: its episodes are cut, and what it had to do is posted again."""
        crew = self._crew
        crew.stop(member)
        self._collect()
        try:
            crew.replace(member, why)
        finally:
            self.closed = crew.closed
        under_way = self._under_way(member)
        self.table.take_told(np.array(under_way, np.int64))
        crew.failures = [
            (rows, error) for rows, error in crew.failures if not set(rows) & set(under_way)
        ]
        steps = [row for row in under_way if row not in self._resets]
        over = self.table.terminated | self.table.truncated
        over[steps] = self._over[steps]
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            over[:] = False
        slabs = [
            range(first, first + size)
            for first, size in zip(member.firsts, member.sizes, strict=True)
        ]
        plans = [
            restore_plan(
                [self._started[row] and row not in self._resets for row in slab],
                over[slab.start : slab.stop].tolist(),
                [restart_seed(self._entropy, row, member.restarts) for row in slab],
            )
            for slab in slabs
        ]
        objects = [
            (leaf, row, column[row])
            for leaf, column in enumerate(leaves(self.table.obs))
            if column.dtype.hasobject
            for row in member.rows
        ]
        crew.say(member, Message.RESTORE, objects, *plans)
        if not again:
            return
        self._post_resets(member, [row for row in under_way if row in self._resets])
        self._give(member, steps)
        self._post_rows(member, steps)

    # --- questions -----------------------------------------------------------------------------

    def _call_each(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return self._by_row([(Message.CALL, name, args, kwargs)] * self.num_workers)

    def call_async(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Begin a `call`; `call_wait` gives what came of it.

        Raises: StateError while envs are stepping.
        """
        self._refuse_pending("call_async")
        crew = self._crew
        crew.put(crew.members, [(Message.CALL, name, args, kwargs)] * self.num_workers)

    def call_wait(self, timeout_s: float | None = None) -> tuple[Any, ...] | None:
        """What came of a `call_async`, env by env; None if it is not done in `timeout_s` seconds.

        Raises: what an env raised, with a note that says which.
        """
        answers = self._told(timeout_s)
        return None if answers is None else tuple(self._in_order(answers))

    def _set_each(self, name: str, values: Sequence[Any]) -> None:
        members = self._crew.members
        self._ask([(Message.SET, name, [values[row] for row in m.rows]) for m in members])

    def _render_each(self) -> list[Any]:
        return self._by_row([(Message.RENDER,)] * self.num_workers)

    def _by_row(self, messages: Sequence[tuple[Any, ...]]) -> list[Any]:
        return self._in_order(self._ask(messages))

    def _ask(self, messages: Sequence[tuple[Any, ...]]) -> list[Any]:
        self._crew.put(self._crew.members, messages)
        answers = self._told(None)
        assert answers is not None  # nobody set a limit
        return answers

    def _told(self, limit_s: float | None) -> list[Any] | None:
        try:
            return self._crew.answers(self._crew.members, limit_s)
        finally:
            self.closed = self._crew.closed

    def _in_order(self, answers: Sequence[Sequence[Any]]) -> list[Any]:
        """One value an env, from each worker's."""
        by_row: dict[int, Any] = {}
        for member, values in zip(self._crew.members, answers, strict=True):
            by_row |= dict(zip(member.rows, values, strict=True))
        return [by_row[row] for row in range(self.num_envs)]

    def close_extras(self, *, terminate: bool = False, **kwargs: Any) -> None:  # noqa: ARG002
        """Close the envs and end the workers; `terminate` does not wait for steps under way."""
        if terminate:
            self._crew.kill()
        self._finalizer()
