"""All workers of a vector env as seen from the driver: sent entries and messages, read, replaced.

One of them is in `handle`, the body of its process in `worker`, their shared memory in `channel`.
"""

import contextlib
import logging
import os
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.reduction import send_handle
from typing import Any

from hotloop.data.layout import Layout, leaves
from hotloop.envs.facts import Facts
from hotloop.envs.pickling import pickle_makers
from hotloop.envs.placement import memory_nodes, place
from hotloop.envs.pool import Makers, WorkerFacts, number_rows, part_of
from hotloop.envs.process.channel import MESSAGE, Channel, Shape
from hotloop.envs.process.handle import WorkerHandle, WorkerSettings
from hotloop.envs.process.interrupts import DeferInterrupt
from hotloop.envs.process.wakeups import Wakeup, choose_spin, look_once, open_wakeup
from hotloop.envs.process.worker import Assignment, Attachment, Message
from hotloop.errors import WorkerError
from hotloop.loop.host import whole_cores

_LOG = logging.getLogger("hotloop")
CLOSE_S = 5.0  # how long a worker may take to close its envs
LOOK_S = 1.0  # a death is noticed by then where a child process keeps the connection open


@dataclass
class Workers:
    """All workers of one vector env, and their channel."""

    settings: WorkerSettings
    groups: Sequence[Makers]  # of each split
    handles: list[WorkerHandle] = field(default_factory=list)
    facts: Facts = None  # type: ignore[assignment]  # known once the workers have made their envs
    num_envs: int = 0
    failures: list[tuple[list[int], BaseException]] = field(default_factory=list)
    _unanswered: list[WorkerHandle] = field(default_factory=list)
    closed: bool = False
    look_s: float = 0.0  # when to look next for workers that died
    _pid: int = field(default_factory=os.getpid)

    def start(self) -> None:
        """Start the workers, let them make their envs, and give each its rows.

        Raises: TargetError for envs that are not alike or makers that cannot be sent; what making
        an env raised; WorkerError for a worker that died of it.
        """
        try:
            self._start()
        except BaseException:
            self.kill()
            raise

    def _start(self) -> None:
        settings = self.settings
        nodes = memory_nodes()
        cores = place(settings.num_workers, nodes)
        if len(nodes) == 1 and settings.driver_works:
            cores = [None] * settings.num_workers  # it takes a core, and not always the same
        for number in range(settings.num_workers):
            fns, firsts = part_of(self.groups, settings.num_workers, number)
            self.handles.append(
                WorkerHandle(
                    Assignment(
                        worker=number,
                        fns=fns,
                        first=firsts,
                        autoreset_mode=settings.autoreset_mode,
                        threads=settings.threads,
                        cores=cores[number],
                        driver=os.getpid(),
                        forked_from_main=False,
                    )
                )
            )
        for handle in self.handles:
            self._launch(handle)
        self._give_rows([self._first_facts(handle) for handle in self.handles])
        self.wakeup = Wakeup(
            self.channel.driver_asleep, self.channel.driver_marked_ns, open_wakeup()
        )
        self.spin = choose_spin(whole_cores(), settings.num_workers + 1)
        for handle in self.handles:
            self._attach(handle)

    def _launch(self, handle: WorkerHandle) -> None:
        handle.launch(self.settings.context, self.settings.daemon)

    def _first_facts(self, handle: WorkerHandle) -> WorkerFacts:
        facts = handle.hear_facts(self.settings.timeout_s)
        if facts is None:
            raise WorkerError(
                f"worker {handle.number} died or hung while it made its envs "
                f"({handle.ending}); make one in this process to see why: backend='serial'"
            )
        return facts

    def _give_rows(self, facts_of: Sequence[WorkerFacts]) -> None:
        self.facts, slabs = number_rows(self.groups, facts_of)
        self.num_envs = sum(len(slab) for own in slabs for slab in own)
        shape = Shape(
            self.num_envs,
            len(self.handles),
            Layout.of(self.facts.observation_space),
            Layout.of(self.facts.action_space),
            self.facts.reward_shape,
        )
        self.channel = Channel(shape)
        for handle, own in zip(self.handles, slabs, strict=True):
            handle.give(own, self.channel.end(handle.number))

    def _attach(self, handle: WorkerHandle) -> None:
        """Give a worker the memory and the descriptors."""
        handle.wakeup = Wakeup(handle.end.asleep, handle.end.marked_ns, open_wakeup())
        connection, pid = handle.connection, handle.process.pid
        attachment = Attachment(
            self.channel.shape, handle.firsts, whole_cores(), handle.posted, handle.finished
        )
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # if it died, see `say`
            connection.send(attachment)
            for descriptor in (*handle.wakeup.descriptors, *self.wakeup.descriptors):
                send_handle(connection, descriptor, pid)
            self.channel.block.send(connection, pid)

    # --- sending -------------------------------------------------------------------------------

    def post(self, handle: WorkerHandle, entries: Sequence[int]) -> None:
        """Put entries into a worker's ring, and wake it if it sleeps."""
        ring, room = handle.end.to_do, self.channel.shape.entries
        for entry in entries:
            ring[handle.posted % room] = entry
            handle.posted += 1
        handle.wakeup.mark_time()
        handle.end.posted[0] = handle.posted
        if self.settings.timeout_s is not None:
            handle.heard_s = time.monotonic()
        handle.wakeup.wake()

    def say(self, handle: WorkerHandle, *message: Any) -> None:
        """Put the entry that announces a message, and send it."""
        data = pickle_makers(message)
        with DeferInterrupt():
            # In this order: a message larger than the pipe needs a worker that reads it.
            self.post(handle, (MESSAGE,))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                handle.connection.send_bytes(data)  # if it died, the next wait for it notices

    def put(self, handles: Sequence[WorkerHandle], messages: Sequence[tuple[Any, ...]]) -> None:
        """Send one message to each, to be answered."""
        for handle, (kind, *arguments) in zip(handles, messages, strict=True):
            handle.reply = None
            handle.asked += 1
            self.say(handle, kind, handle.asked, *arguments)
        self._unanswered = list(handles)

    def answers(self, handles: Sequence[WorkerHandle], limit_s: float | None) -> list[Any] | None:
        """Wait for the answers to `put`; None if they are not there after `limit_s` seconds.

        Raises: the error that answers a message; WorkerError for a worker that died.
        """
        if not self._read_answers(limit_s):
            return None
        values = []
        for handle in handles:
            assert handle.reply is not None  # all were heard
            value, error = handle.reply
            if error is not None:
                raise error
            values.append(value)
        return values

    def _read_answers(self, limit_s: float | None) -> bool:
        start_s = time.monotonic()
        while self._unanswered:
            left_s = None if limit_s is None else start_s + limit_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            for handle in self.rest(partial(_any_sent, self._unanswered), left_s):
                self._refuse(handle, "died while it answered")
            for handle in self.handles:
                self.read_messages(handle)
            if self.failures:
                raise self.failures.pop()[1]
            self._unanswered = [handle for handle in self._unanswered if handle.reply is None]
            most_s = self.settings.timeout_s
            if self._unanswered and most_s is not None and time.monotonic() > start_s + most_s:
                self._refuse(self._unanswered[0], f"did not answer for {most_s:g} s")
        return True

    # --- reading -------------------------------------------------------------------------------

    def collect(self, ready: list[int]) -> list[int]:
        """The rows that are done and were not collected yet; they are added to `ready` as well."""
        collected: list[int] = []
        room = self.channel.shape.entries
        for handle in self.handles:
            finished = handle.end.finished[0]
            if finished == handle.finished:
                continue
            if handle.end.messages[0] != handle.messages:
                self.read_messages(handle)
            rows: list[int] = []
            for count in range(handle.finished, finished):
                entry = handle.end.done[count % room]
                if entry < 0:
                    first, size = handle.firsts[-1 - entry], handle.sizes[-1 - entry]
                    rows += range(first, first + size)
                else:
                    rows.append(entry)
            stepped = handle.stepped + len(rows)
            if self.settings.timeout_s is not None:
                handle.heard_s = time.monotonic()
            # Nothing is called in between, so Ctrl-C does not come in between.
            ready += rows
            handle.stepped = stepped
            handle.finished = finished
            collected += rows
        return collected

    def rest(self, is_due: Callable[[], bool], limit_s: float | None = None) -> list[WorkerHandle]:
        """Wait until `is_due()` or something else happens; returns workers that died.

        Returns early to look for workers that hang, and after `limit_s` seconds.
        """
        ended: list[WorkerHandle] = []
        if not self.spin(is_due, self.wakeup.marked_ns):
            ended = self._sleep(is_due, limit_s)
        if time.monotonic() > self.look_s:
            ended += [handle for handle in self.dead() if handle not in ended]
        return ended

    def _sleep(self, is_due: Callable[[], bool], limit_s: float | None) -> list[WorkerHandle]:
        watched = {handle.connection.fileno(): handle for handle in self.handles}
        look_s = None if self.settings.timeout_s is None else self.settings.timeout_s / 4
        limits_s = [limit for limit in (look_s, limit_s, LOOK_S) if limit is not None]
        ended = []
        for descriptor in self.wakeup.wait(is_due, look_once, tuple(watched), min(limits_s)):
            handle = watched[descriptor]
            try:
                self.read_messages(handle, at_least=1)
            except (EOFError, ConnectionResetError):
                ended.append(handle)
        return ended

    def dead(self) -> list[WorkerHandle]:
        """The workers that have ended, looked for anew."""
        self.look_s = time.monotonic() + LOOK_S
        return [handle for handle in self.handles if not handle.process.is_alive()]

    def read_messages(self, handle: WorkerHandle, at_least: int = 0) -> None:
        """Read the messages of a worker."""
        said = max(handle.end.messages[0], handle.messages + at_least)
        while handle.messages < said:
            if handle.messages + 1 > handle.end.messages[0] and not handle.connection.poll():
                return
            with DeferInterrupt():
                self._read_message(handle)

    def _read_message(self, handle: WorkerHandle) -> None:
        data = handle.connection.recv_bytes()
        handle.messages += 1  # also if it cannot be read
        kind, *message = pickle.loads(data)
        if kind == Message.INFOS:
            infos, objects = message
            self.channel.table.add_infos(0, infos)
            columns = list(leaves(self.channel.table.obs)) if objects else []
            for leaf, row, value in objects:
                columns[leaf][row] = value
        elif kind == Message.FAILED:
            rows, error = message
            self.failures.append((rows, error))
        elif message[0] == handle.asked:
            handle.reply = tuple(message[1:])

    # --- replacing -----------------------------------------------------------------------------

    def stop(self, handle: WorkerHandle) -> None:
        """End a worker at once, and read what it sent before."""
        handle.end_process()
        with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
            while handle.connection.poll():
                self.read_messages(handle, at_least=1)

    def replace(self, handle: WorkerHandle, why: str) -> None:
        """Start a stopped worker anew with its rows; its entries are to be posted again.

        Raises: WorkerError where it was replaced too often; what making an env raised. All workers
        are ended then.
        """
        try:
            facts = None
            while facts is None:
                self._begin_anew(handle, why)
                facts = handle.hear_facts(self.settings.timeout_s)
                why = "died or hung while it made its envs"
            for _size, fact in facts:
                fact.expect_like(self.facts, handle.rows[0])
            self._attach(handle)
        except Exception:
            self.kill()
            raise

    def _begin_anew(self, handle: WorkerHandle, why: str) -> None:
        limit, ending = self.settings.restarts, handle.ending
        handle.process.close()
        handle.connection.close()
        handle.wakeup.close()
        if handle.restarts >= limit:
            raise WorkerError(
                f"{handle} {why} ({ending}), after {handle.restarts} restarts: expected at most "
                f"restarts={limit}; look into its envs, or allow more"
            )
        handle.restarts += 1
        _LOG.warning(
            "%s %s (%s); it is started anew, %d of %d times",
            *(handle, why, ending, handle.restarts, limit),
        )
        # Entries that it did not come to are void, and so are counts of messages never read.
        handle.end.finished[0] = handle.finished
        handle.end.stepped[0] = handle.stepped
        handle.end.messages[0] = handle.messages
        handle.end.asleep[0] = 0
        self._launch(handle)

    def _refuse(self, handle: WorkerHandle, why: str) -> None:
        handle.end_process()
        ending = handle.ending
        self.kill()
        raise WorkerError(f"{handle} {why} ({ending}); the vector env is closed")

    # --- ending --------------------------------------------------------------------------------

    def close(self) -> None:
        """Let every worker close its envs and end; one that takes longer than 5 s is killed."""
        if self.closed or os.getpid() != self._pid:
            return  # a forked child of the driver does not end its parent's workers
        try:
            self._dismiss()
        finally:
            self.kill()

    def _dismiss(self) -> None:
        for handle in self.handles:
            if handle.process.is_alive():
                self.say(handle, Message.CLOSE)
        end = time.monotonic() + CLOSE_S
        talking: list[Any] = [handle.connection for handle in self.handles]
        while (left := end - time.monotonic()) > 0:
            alive = [handle for handle in self.handles if handle.process.is_alive()]
            if not alive:
                return
            sentinels = [handle.process.sentinel for handle in alive]
            for gone in wait([*sentinels, *talking], min(left, LOOK_S)):
                if gone in talking:
                    # The infos of a step under way go unread: the worker must come to its end.
                    try:
                        gone.recv_bytes()  # type: ignore[union-attr]
                    except (EOFError, OSError):
                        talking.remove(gone)

    def kill(self) -> None:
        """End every worker at once, and release everything. Idempotent."""
        if self.closed or os.getpid() != self._pid:
            return
        self.closed = True
        started = [handle for handle in self.handles if handle.is_open]
        for handle in started:
            handle.process.kill()
        for handle in started:
            handle.process.join()
            handle.process.close()
        for handle in self.handles:
            if handle.connection is not None:
                handle.connection.close()
            if handle.wakeup is not None:
                handle.wakeup.close()
        if hasattr(self, "wakeup"):
            self.wakeup.close()
        if hasattr(self, "channel"):
            self.channel.close()


def _any_sent(handles: Sequence[WorkerHandle]) -> bool:
    return any(handle.end.messages[0] > handle.messages for handle in handles)
