"""The body of a worker process: make the envs, then do one entry of the ring after the other.

Steps go through shared memory, see `channel`. All else goes through a connection as messages:
requests (reset, call, close) and their replies, infos, observations without fixed shape, errors.
"""

import contextlib
import os
import pickle
import select
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

import cloudpickle
from gymnasium.vector import AutoresetMode

from hotloop.data.layout import leaves, tree_map
from hotloop.data.shared import SharedBlock
from hotloop.envs.infos import AnyInfos
from hotloop.envs.pickling import pickle_message, portable_error
from hotloop.envs.placement import CorePinning, limit_threads
from hotloop.envs.process.channel import MESSAGE, Channel, Shape, slab_entry
from hotloop.envs.process.wakeups import Wakeup, choose_spin
from hotloop.envs.slab import Slab, make_slabs
from hotloop.loop.lifetime import kill_with_parent


@dataclass(frozen=True)
class Assignment:
    """The envs that one worker makes and steps, and where.

    fns: for each split the makers of its envs there. first: the number of the first maker of each
    split, for error messages. cores: where it may run; all if None. driver: the process with
    which it ends. forked_from_main: whether the kernel may be asked to see to that.
    """

    worker: int
    fns: tuple[tuple[Callable[[], Any], ...], ...]
    first: tuple[int, ...]
    autoreset_mode: AutoresetMode | None
    threads: int
    cores: frozenset[int] | None
    driver: int
    forked_from_main: bool


class Message:
    """The kinds of messages; the first part of each."""

    RESET, RESTORE, GIVE, CLOSE = "reset", "restore", "give", "close"
    CALL, SET, RENDER, SETTLE = (
        "call",
        "set",
        "render",
        "settle",
    )  # methods of `Worker` that a reply answers
    REPLY, INFOS, FAILED = "reply", "infos", "failed"


def run_worker(connection: Connection, given: Assignment | bytes) -> None:
    """Run a worker process. given: pickled where the process was not forked."""
    # Ctrl-C reaches every process of the terminal; the driver decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    slabs: list[Slab] = []
    try:
        _serve(connection, given, slabs)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the driver is gone
    finally:
        for slab in slabs:
            with contextlib.suppress(Exception):
                slab.close()


def _serve(connection: Connection, given: Assignment | bytes, slabs: list[Slab]) -> None:
    try:
        assignment: Assignment = pickle.loads(given) if isinstance(given, bytes) else given
        end_with_driver(assignment.driver, assignment.forked_from_main)
        limit_threads(assignment.threads)
        pinning = CorePinning(assignment.cores)
        for fns, first in zip(assignment.fns, assignment.first, strict=True):
            slabs += make_slabs(fns, assignment.autoreset_mode, first)
        facts = [(slab.num_envs, slab.facts) for slab in slabs]
        connection.send_bytes(cloudpickle.dumps((True, facts)))
    except BaseException as error:
        with contextlib.suppress(OSError):
            connection.send_bytes(cloudpickle.dumps((False, portable_error(error))))
        return
    Worker(assignment.worker, slabs, connection, pinning).work()


class SlabView:
    """A slab with its rows, and its part of the actions: in the space's types, and wide."""

    def __init__(self, slab: Slab, channel: Channel) -> None:
        self.slab = slab
        self.rows = range(slab.first, slab.first + slab.num_envs)
        own = slice(self.rows.start, self.rows.stop)
        self.actions = {
            wide: tree_map(lambda leaf: leaf[own], tree)
            for wide, tree in ((False, channel.actions), (True, channel.wide_actions))
        }


class Worker:
    """The slabs of one worker, and its end of the channel."""

    def __init__(
        self, number: int, slabs: Sequence[Slab], connection: Connection, pinning: CorePinning
    ) -> None:
        self.slabs = slabs
        self.connection = connection
        attach: Attachment = connection.recv()
        descriptors = [recv_handle(connection) for _ in range(4)]
        self.channel = channel = Channel(attach.shape, SharedBlock.receive(connection))
        self.end = channel.end(number)
        self.wakeup = Wakeup(self.end.asleep, self.end.marked_ns, (descriptors[0], descriptors[1]))
        self.driver_wakeup = Wakeup(
            channel.driver_asleep, channel.driver_marked_ns, (descriptors[2], descriptors[3])
        )
        self.spin = choose_spin(attach.cores, attach.shape.num_workers + 1, pinning.pin)
        self.given: dict[int, Any] = {}  # actions that came in a message, by row
        # A restarted worker goes on where the counts stand.
        self.head, self.tail = attach.posted, attach.finished
        self.views: list[SlabView] = []
        self.view_of: dict[int, SlabView] = {}
        for slab, first in zip(slabs, attach.firsts, strict=True):
            slab.first = first
            slab.table = channel.table
            view = SlabView(slab, channel)
            self.views.append(view)
            self.view_of |= dict.fromkeys(view.rows, view)
        self.objects = [
            (leaf, out)
            for leaf, (layout, out) in enumerate(
                zip(attach.shape.observation.leaves, leaves(channel.table.obs), strict=True)
            )
            if layout.dtype.hasobject
        ]

    def work(self) -> None:
        """Do entry after entry, until a message says to close."""
        posted, to_do, entries = self.end.posted, self.end.to_do, self.channel.shape.entries
        while True:
            while posted[0] == self.head:
                self.wakeup.wait(lambda: posted[0] != self.head, self.spin)
            entry = to_do[self.head % entries]
            self.head += 1
            if entry != MESSAGE:
                self._step(entry)
            elif not self._answer(self.connection.recv()):
                return

    def _step(self, entry: int) -> None:
        view = self.views[-1 - entry] if entry < 0 else self.view_of[entry]
        slab = view.slab
        done = view.rows if entry < 0 else range(entry, entry + 1)
        infos: AnyInfos = []
        try:
            if self.given and done[0] in self.given:
                given = [self.given.pop(row) for row in done]
                infos = slab.step_given(entry - slab.first if entry >= 0 else None, given)
            else:
                actions = view.actions[self.channel.is_wide[done[0]]]
                infos = (
                    slab.step(actions) if entry < 0 else slab.step_one(entry - slab.first, actions)
                )
        except Exception as error:
            self._fail(list(done), error)
        self._publish(entry, done, slab.first, infos)

    def _publish(self, entry: int, rows: Sequence[int], first: int, infos: AnyInfos) -> None:
        """Report that rows are done: their infos are sent first, the count is written last."""
        if infos or self.objects:
            objects = [(leaf, row, out[row]) for leaf, out in self.objects for row in rows]
            message = (Message.INFOS, [(first + k, info) for k, info in infos], objects)
            try:
                data = pickle_message(message)
            except Exception as error:
                error.add_note(
                    f"in envs {rows[0]} to {rows[-1]}: an info or observation that cannot be sent "
                    "to another process; leave it out, or use backend='serial'"
                )
                data = pickle_message((Message.FAILED, list(rows), portable_error(error)))
            self._send(data)
        end = self.end
        end.done[self.tail % self.channel.shape.entries] = entry
        self.tail += 1
        self.driver_wakeup.mark_time()
        # In this order: a driver that wakes by the sum of `stepped` finds the entries themselves.
        end.finished[0] = self.tail
        end.stepped[0] += len(rows)
        channel = self.channel
        if self.driver_wakeup.is_needed and channel.count_stepped() >= channel.wanted[0]:
            self.driver_wakeup.wake()

    def _answer(self, message: tuple[Any, ...]) -> bool:
        """Do what a message asks; returns whether to go on."""
        kind, *arguments = message
        columns = dict(self.objects)
        try:
            if kind == Message.CLOSE:
                return False
            if kind == Message.RESET:
                self._reset(*arguments)
            elif kind == Message.GIVE:
                self.given |= arguments[0]
            elif kind == Message.RESTORE:
                objects, *plans = arguments
                for leaf, row, value in objects:
                    columns[leaf][row] = value
                for slab, (seeds, lost, over) in zip(self.slabs, plans, strict=True):
                    slab.restore(seeds, lost, over)
            else:
                self._reply(kind, arguments)
        except Exception as error:
            self._fail([], error)
        return True

    def _reply(self, kind: str, arguments: Sequence[Any]) -> None:
        """Answer with a value, or with the error that it raised."""
        number, *arguments = arguments
        try:
            answer = pickle_message((Message.REPLY, number, getattr(self, kind)(*arguments), None))
        except Exception as error:
            answer = pickle_message((Message.REPLY, number, None, portable_error(error)))
        self._send(answer)
        self.driver_wakeup.wake()

    def _reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        for number, slab in enumerate(self.slabs):
            own = [
                (row, seed)
                for row, seed in zip(rows, seeds, strict=True)
                if slab.first <= row < slab.first + slab.num_envs
            ]
            if not own:
                continue
            infos: AnyInfos = []
            try:
                infos = slab.reset([r - slab.first for r, _ in own], [s for _, s in own], options)
            except Exception as error:
                self._fail([row for row, _ in own], error)
            if slab.facts.is_vector and len(own) == slab.num_envs:
                # At once, as it is stepped: a batch has no part of it.
                whole = range(slab.first, slab.first + slab.num_envs)
                self._publish(slab_entry(number), whole, slab.first, infos)
                continue
            for row, _ in own:
                mine = [(k, info) for k, info in infos if k == row - slab.first]
                self._publish(row, (row,), slab.first, mine)

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """An attribute of every env, or what its method returns."""
        return [got for slab in self.slabs for got in slab.call(name, args, kwargs)]

    def set(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute, one value an env."""
        at = 0
        for slab in self.slabs:
            slab.set_attr(name, values[at : at + slab.num_envs])
            at += slab.num_envs

    def render(self) -> list[Any]:
        """What every env renders."""
        return [frame for slab in self.slabs for frame in slab.render()]

    def settle(self) -> None:
        """Forget actions that no step will use; the reply says that all before it is done."""
        self.given.clear()

    def _fail(self, rows: Sequence[int], error: BaseException) -> None:
        self._send(pickle_message((Message.FAILED, rows, portable_error(error))))
        self.driver_wakeup.wake()

    def _send(self, data: bytes) -> None:
        self.connection.send_bytes(data)
        self.driver_wakeup.mark_time()
        self.end.messages[0] += 1


@dataclass(frozen=True)
class Attachment:
    """What a worker is sent once all workers have made their envs."""

    shape: Shape
    firsts: tuple[int, ...]  # the first row of each of its slabs
    cores: int  # that the driver and all workers share
    posted: int
    finished: int


def end_with_driver(driver: int, forked_from_main: bool) -> None:
    """End this process when the driver ends, however that ends, also while a step hangs."""
    if forked_from_main:
        kill_with_parent()
    threading.Thread(target=_watch, args=(driver,), name="hotloop-watch", daemon=True).start()
    if forked_from_main and os.getppid() != driver:
        os._exit(1)  # the driver ended before the kernel was asked


def _watch(driver: int) -> None:
    try:
        descriptor = os.pidfd_open(driver)
    except ProcessLookupError:
        os._exit(1)
    except (AttributeError, OSError):
        while True:
            threading.Event().wait(1.0)
            try:
                os.kill(driver, 0)
            except ProcessLookupError:
                os._exit(1)
    poll = select.poll()  # not select, which refuses descriptors above 1023
    poll.register(descriptor, select.POLLIN)
    poll.poll()
    os._exit(1)
