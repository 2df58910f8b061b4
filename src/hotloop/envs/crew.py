"""The workers of a vector env as seen from the driver: started, told what to do, heard, replaced.

What the workers do stands in `worker`, what passes between both in `channel`.
"""

import contextlib
import logging
import multiprocessing
import os
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import process as multiprocessing_process
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from typing import Any

import cloudpickle
import numpy as np
from gymnasium.vector import AutoresetMode

from hotloop.data.layout import Layout, leaves
from hotloop.envs.channel import MESSAGE, Channel, End, Shape, slab_entry
from hotloop.envs.facts import Facts
from hotloop.envs.interrupts import Whole
from hotloop.envs.placement import memory_nodes, place, share, whole_cores
from hotloop.envs.signals import Bell, not_at_all, open_bell, spinner
from hotloop.envs.worker import Assignment, Attachment, Message, run_worker
from hotloop.errors import TargetError, WorkerError

_LOG = logging.getLogger("hotloop")
CLOSE_S = 5.0  # how long a worker may take to close its envs
START_S = 60.0  # making envs may import half a world: nobody is taken for hung before that
LOOK_S = 1.0  # a death is noticed by then where a process of an env's keeps the connection open


@dataclass(frozen=True)
class CrewSettings:
    """How workers are run."""

    num_workers: int
    autoreset_mode: AutoresetMode | None
    context: str | None
    daemon: bool
    restarts: int
    timeout_s: float | None
    threads: int
    driver_works: bool  # while envs step, as with double buffering, instead of waiting for them


@dataclass
class Member:
    """One worker."""

    assignment: Assignment
    process: Any = None
    connection: Connection = None  # type: ignore[assignment]  # as the process: once it is started
    bell: Bell = None  # type: ignore[assignment]
    end: End = None  # type: ignore[assignment]
    firsts: tuple[int, ...] = ()  # of its slabs
    sizes: tuple[int, ...] = ()
    posted: int = 0
    finished: int = 0  # entries that were read
    stepped: int = 0  # envs that these stood for
    messages: int = 0  # that were read
    restarts: int = 0
    heard_s: float = 0.0  # when it was last seen to move
    asked: int = 0  # questions, which are numbered: a late answer is to none of the next
    reply: tuple[Any, ...] | None = None

    rows: list[int] = field(default_factory=list)  # of its envs
    slab_entries: tuple[int, ...] = ()  # that stand for all of them

    @property
    def number(self) -> int:
        """Which worker it is."""
        return self.assignment.worker

    def give(self, firsts: Sequence[int], sizes: Sequence[int], end: End) -> None:
        """Take the rows of its slabs, and its end of the channel."""
        self.firsts, self.sizes, self.end = tuple(firsts), tuple(sizes), end
        slabs = list(zip(firsts, sizes, strict=True))
        self.rows = [row for first, size in slabs for row in range(first, first + size)]
        self.slab_entries = tuple(slab_entry(slab) for slab in range(len(slabs)))


@dataclass
class Crew:
    """All workers of one vector env, and their channel."""

    settings: CrewSettings
    fns: Sequence[Sequence[Callable[[], Any]]]  # of each split
    members: list[Member] = field(default_factory=list)
    facts: Facts = None  # type: ignore[assignment]  # known once the workers have said
    num_envs: int = 0
    failures: list[tuple[list[int], BaseException]] = field(default_factory=list)
    _unanswered: list[Member] = field(default_factory=list)
    closed: bool = False
    look_s: float = 0.0  # when to look next who is dead
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
            shares = [share(len(fns), settings.num_workers, number) for fns in self.fns]
            before = np.cumsum([0, *(len(fns) for fns in self.fns)]).tolist()
            self.members.append(
                Member(
                    Assignment(
                        worker=number,
                        fns=tuple(
                            tuple(fns[share]) for fns, share in zip(self.fns, shares, strict=True)
                        ),
                        first=tuple(
                            start + share.start
                            for start, share in zip(before, shares, strict=False)
                        ),
                        autoreset_mode=settings.autoreset_mode,
                        threads=settings.threads,
                        cores=cores[number],
                        driver=os.getpid(),
                        forked_from_main=False,
                    )
                )
            )
        for member in self.members:
            self._launch(member)
        told = [self._first_facts(member) for member in self.members]
        self._give_rows(told)
        self.bell = Bell(self.channel.driver_asleep, self.channel.driver_told_ns, open_bell())
        self.spin = spinner(whole_cores(), settings.num_workers + 1)
        for member in self.members:
            self._attach(member)

    def _launch(self, member: Member) -> None:
        context: Any = multiprocessing.get_context(self.settings.context)
        method = context.get_start_method()
        forks = method == "fork"
        is_main = threading.current_thread() is threading.main_thread()
        ours, theirs = context.Pipe()
        assignment = replace(member.assignment, forked_from_main=method != "forkserver" and is_main)
        member.process = context.Process(
            target=run_worker,
            args=(theirs, assignment if forks else pickled(assignment)),
            daemon=self.settings.daemon,
            name=f"hotloop-worker-{assignment.worker}",
        )
        member.connection = ours
        member.process.start()
        _STARTED.add(member.process)
        theirs.close()

    def _first_facts(self, member: Member) -> list[tuple[int, Facts]]:
        facts = self._hear_facts(member)
        if facts is None:
            raise WorkerError(
                f"worker {member.number} died or hung while it made its envs "
                f"({_ending(member.process.exitcode)}); make one in this process to see why: "
                "backend='serial'"
            )
        return facts

    def _hear_facts(self, member: Member) -> list[tuple[int, Facts]] | None:
        """What the envs are that a worker has made; None if it died of it, or hung."""
        limit_s = None
        if self.settings.timeout_s is not None:
            limit_s = max(START_S, self.settings.timeout_s)
        try:
            if not member.connection.poll(limit_s):
                _end(member.process)
                return None
            came, what = pickle.loads(member.connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            _end(member.process)
            return None
        if not came:
            raise what
        return what  # type: ignore[no-any-return]

    def _give_rows(self, told: Sequence[list[tuple[int, Facts]]]) -> None:
        """Number the rows split by split, and within one worker by worker."""
        self.facts = told[0][0][1]
        firsts: list[list[int]] = [[] for _ in told]
        row = 0
        for split in range(len(self.fns)):
            for number, member in enumerate(self.members):
                slabs = len(member.assignment.fns[split]) if self.facts.is_vector else 1
                for size, facts in told[number][len(firsts[number]) :][:slabs]:
                    facts.expect_like(self.facts, row)
                    firsts[number].append(row)
                    row += size
        self.num_envs = row
        shape = Shape(
            row,
            len(self.members),
            Layout.of(self.facts.observation_space),
            Layout.of(self.facts.action_space),
            self.facts.reward_shape,
        )
        self.channel = Channel(shape)
        for member, slabs_told, first, end in zip(
            self.members, told, firsts, self.channel.ends, strict=True
        ):
            member.give(first, [size for size, _ in slabs_told], end)

    def _attach(self, member: Member) -> None:
        """Give a worker the memory and the bells."""
        member.bell = Bell(member.end.asleep, member.end.told_ns, open_bell())
        connection, pid = member.connection, member.process.pid
        attachment = Attachment(
            self.channel.shape, member.firsts, whole_cores(), member.posted, member.finished
        )
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # if it died, see `say`
            connection.send(attachment)
            for descriptor in (*member.bell.descriptors, *self.bell.descriptors):
                send_handle(connection, descriptor, pid)
            self.channel.block.send(connection, pid)

    # --- telling -------------------------------------------------------------------------------

    def post(self, member: Member, entries: Sequence[int]) -> None:
        """Put entries into a worker's ring, and wake it if it sleeps."""
        ring, room = member.end.to_do, self.channel.shape.entries
        for entry in entries:
            ring[member.posted % room] = entry
            member.posted += 1
        member.bell.tell_time()
        member.end.posted[0] = member.posted
        if self.settings.timeout_s is not None:
            member.heard_s = time.monotonic()
        member.bell.ring()

    def say(self, member: Member, *message: Any) -> None:
        """Put the entry that announces a message, and send it."""
        data = pickled(message)
        with Whole():
            # In this order: a message larger than the pipe needs a worker that reads it.
            self.post(member, (MESSAGE,))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                member.connection.send_bytes(data)  # if it died, whoever waits for it notices

    def put(self, members: Sequence[Member], messages: Sequence[tuple[Any, ...]]) -> None:
        """Send one message to each, to be answered."""
        for member, (kind, *arguments) in zip(members, messages, strict=True):
            member.reply = None
            member.asked += 1
            self.say(member, kind, member.asked, *arguments)
        self._unanswered = list(members)

    def answers(self, members: Sequence[Member], limit_s: float | None) -> list[Any] | None:
        """Wait for the answers to `put`; None if they are not there after `limit_s` seconds.

        Raises: what came of a message, if it was an error; WorkerError for a worker that died.
        """
        if not self._hear_answers(limit_s):
            return None
        values = []
        for member in members:
            assert member.reply is not None  # all were heard
            value, error = member.reply
            if error is not None:
                raise error
            values.append(value)
        return values

    def _hear_answers(self, limit_s: float | None) -> bool:
        start_s = time.monotonic()
        while self._unanswered:
            left_s = None if limit_s is None else start_s + limit_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            for member in self.rest(partial(_any_said, self._unanswered), left_s):
                self._refuse(member, "died while it answered")
            for member in self.members:
                self.read_messages(member)
            if self.failures:
                raise self.failures.pop()[1]
            self._unanswered = [member for member in self._unanswered if member.reply is None]
            most_s = self.settings.timeout_s
            if self._unanswered and most_s is not None and time.monotonic() > start_s + most_s:
                self._refuse(self._unanswered[0], f"did not answer for {most_s:g} s")
        return True

    # --- hearing -------------------------------------------------------------------------------

    def collect(self, ready: list[int]) -> list[int]:
        """The rows that are done and were not collected yet; they are added to `ready` as well."""
        collected: list[int] = []
        room = self.channel.shape.entries
        for member in self.members:
            finished = member.end.finished[0]
            if finished == member.finished:
                continue
            if member.end.messages[0] != member.messages:
                self.read_messages(member)
            rows: list[int] = []
            for count in range(member.finished, finished):
                entry = member.end.done[count % room]
                if entry < 0:
                    first, size = member.firsts[-1 - entry], member.sizes[-1 - entry]
                    rows += range(first, first + size)
                else:
                    rows.append(entry)
            stepped = member.stepped + len(rows)
            if self.settings.timeout_s is not None:
                member.heard_s = time.monotonic()
            # Nothing is called in between, so Ctrl-C does not come in between.
            ready += rows
            member.stepped = stepped
            member.finished = finished
            collected += rows
        return collected

    def rest(self, is_due: Callable[[], bool], limit_s: float | None = None) -> list[Member]:
        """Wait until `is_due()` or something else happens; returns workers that died.

        Returns early to look for workers that hang, and after `limit_s` seconds.
        """
        ended: list[Member] = []
        if not (is_due() or self.spin(is_due, self.bell.told_ns)):
            ended = self._sleep(is_due, limit_s)
        if time.monotonic() > self.look_s:
            ended += [member for member in self.dead() if member not in ended]
        return ended

    def _sleep(self, is_due: Callable[[], bool], limit_s: float | None) -> list[Member]:
        watched = {member.connection.fileno(): member for member in self.members}
        look_s = None if self.settings.timeout_s is None else self.settings.timeout_s / 4
        limits_s = [limit for limit in (look_s, limit_s, LOOK_S) if limit is not None]
        ended = []
        for descriptor in self.bell.wait(is_due, not_at_all, tuple(watched), min(limits_s)):
            member = watched[descriptor]
            try:
                self.read_messages(member, at_least=1)
            except (EOFError, ConnectionResetError):
                ended.append(member)
        return ended

    def dead(self) -> list[Member]:
        """The workers that have ended, looked for anew."""
        self.look_s = time.monotonic() + LOOK_S
        return [member for member in self.members if not member.process.is_alive()]

    def read_messages(self, member: Member, at_least: int = 0) -> None:
        """Read what a worker has said."""
        said = max(member.end.messages[0], member.messages + at_least)
        while member.messages < said:
            if member.messages + 1 > member.end.messages[0] and not member.connection.poll():
                return
            with Whole():
                self._read_message(member)

    def _read_message(self, member: Member) -> None:
        data = member.connection.recv_bytes()
        member.messages += 1  # also if it cannot be read
        kind, *message = pickle.loads(data)
        if kind == Message.TOLD:
            infos, objects = message
            self.channel.table.tell(0, infos)
            columns = list(leaves(self.channel.table.obs)) if objects else []
            for leaf, row, value in objects:
                columns[leaf][row] = value
        elif kind == Message.FAILED:
            rows, error = message
            self.failures.append((rows, error))
        elif message[0] == member.asked:
            member.reply = tuple(message[1:])

    # --- replacing -----------------------------------------------------------------------------

    def stop(self, member: Member) -> None:
        """End a worker at once, and read what it said before."""
        _end(member.process)
        with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
            while member.connection.poll():
                self.read_messages(member, at_least=1)

    def replace(self, member: Member, why: str) -> None:
        """Start a stopped worker anew with its rows; what it had to do is to be posted again.

        Raises: WorkerError where it was replaced too often; what making an env raised. The crew
        is closed then.
        """
        try:
            facts = None
            while facts is None:
                self._begin_anew(member, why)
                facts = self._hear_facts(member)
                why = "died or hung while it made its envs"
            for _size, fact in facts:
                fact.expect_like(self.facts, member.rows[0])
            self._attach(member)
        except Exception:
            self.kill()
            raise

    def _begin_anew(self, member: Member, why: str) -> None:
        number, limit = member.number, self.settings.restarts
        exitcode = member.process.exitcode
        member.process.close()
        member.connection.close()
        member.bell.close()
        if member.restarts >= limit:
            raise WorkerError(
                f"worker {number} (envs {member.rows[0]} to {member.rows[-1]}) {why} "
                f"({_ending(exitcode)}), after {member.restarts} restarts: expected at most "
                f"restarts={limit}; look into its envs, or allow more"
            )
        member.restarts += 1
        _LOG.warning(
            "worker %d (envs %d to %d) %s (%s); it is started anew, %d of %d times",
            *(number, member.rows[0], member.rows[-1], why, _ending(exitcode)),
            *(member.restarts, limit),
        )
        # Entries that it did not come to are void, and so are counts of messages never read.
        member.end.finished[0] = member.finished
        member.end.stepped[0] = member.stepped
        member.end.messages[0] = member.messages
        member.end.asleep[0] = 0
        self._launch(member)

    def _refuse(self, member: Member, why: str) -> None:
        _end(member.process)
        exitcode = member.process.exitcode
        self.kill()
        raise WorkerError(
            f"worker {member.number} (envs {member.rows[0]} to {member.rows[-1]}) {why} "
            f"({_ending(exitcode)}); the vector env is closed"
        )

    # --- ending --------------------------------------------------------------------------------

    def close(self) -> None:
        """Let every worker close its envs and end; who takes longer than 5 s is killed."""
        if self.closed or os.getpid() != self._pid:
            return  # a forked child of the driver does not end its parent's workers
        try:
            self._dismiss()
        finally:
            self.kill()

    def _dismiss(self) -> None:
        for member in self.members:
            if member.process.is_alive():
                self.say(member, Message.CLOSE)
        end = time.monotonic() + CLOSE_S
        talking: list[Any] = [member.connection for member in self.members]
        while (left := end - time.monotonic()) > 0:
            alive = [member for member in self.members if member.process.is_alive()]
            if not alive:
                return
            sentinels = [member.process.sentinel for member in alive]
            for gone in wait([*sentinels, *talking], min(left, LOOK_S)):
                if gone in talking:
                    # What a step under way tells goes unread: the worker must come to its end.
                    try:
                        gone.recv_bytes()  # type: ignore[union-attr]
                    except (EOFError, OSError):
                        talking.remove(gone)

    def kill(self) -> None:
        """End every worker at once, and give everything back. Idempotent."""
        if self.closed or os.getpid() != self._pid:
            return
        self.closed = True
        started = [member for member in self.members if _is_open(member.process)]
        for member in started:
            member.process.kill()
        for member in started:
            member.process.join()
            member.process.close()
        for member in self.members:
            if member.connection is not None:
                member.connection.close()
            if member.bell is not None:
                member.bell.close()
        if hasattr(self, "bell"):
            self.bell.close()
        if hasattr(self, "channel"):
            self.channel.close()


def _any_said(members: Sequence[Member]) -> bool:
    return any(member.end.messages[0] > member.messages for member in members)


_STARTED: "weakref.WeakSet[Any]" = weakref.WeakSet()


def _disown() -> None:
    # A forked child of the driver would end, as multiprocessing ends its own daemons at exit, those
    # of its parent.
    multiprocessing_process._children.difference_update(_STARTED)  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)


def _is_open(process: Any) -> bool:
    try:
        return process is not None and process.pid is not None
    except ValueError:
        return False  # it ended, and was closed


def pickled(thing: Any) -> bytes:
    """Makers of envs, or what goes with them, as bytes for another process.

    Raises: TargetError for what cannot be pickled.
    """
    try:
        return cloudpickle.dumps(thing, protocol=5)  # type: ignore[no-any-return]
    except Exception as error:
        raise TargetError(
            "vector env: expected makers of envs that can be sent to another process, got one "
            f"that cannot be pickled: {error}; make what it holds (a lock, a file, a simulator) "
            "inside of the function, or fork the workers: context='fork'"
        ) from error


def _end(process: Any) -> None:
    process.join(0.2)  # if it is ending by itself, how it ended is worth knowing
    if process.is_alive():
        process.kill()
    process.join()


def _ending(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"exit code {exitcode}"
    return f"signal {-exitcode}"
