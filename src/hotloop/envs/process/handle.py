"""One worker process as seen from the driver: started, asked what its envs are, ended."""

import multiprocessing
import os
import pickle
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import process as multiprocessing_process
from multiprocessing.connection import Connection
from typing import Any

from gymnasium.vector import AutoresetMode

from hotloop.envs.pickling import pickle_makers
from hotloop.envs.pool import WorkerFacts
from hotloop.envs.process.channel import End, slab_entry
from hotloop.envs.process.wakeups import Wakeup
from hotloop.envs.process.worker import Assignment, run_worker

START_S = 60.0  # making envs may import large packages: no worker is taken for hung before that


@dataclass(frozen=True)
class WorkerSettings:
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
class WorkerHandle:
    """One worker: its process, its rows, and the counts of what was sent and read."""

    assignment: Assignment
    process: Any = None
    connection: Connection = None  # type: ignore[assignment]  # as the process: once it is started
    wakeup: Wakeup = None  # type: ignore[assignment]
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

    def __str__(self) -> str:
        return f"worker {self.number} (envs {self.rows[0]} to {self.rows[-1]})"

    def give(self, slabs: Sequence[range], end: End) -> None:
        """Assign the rows of its slabs, and its end of the channel."""
        self.firsts, self.sizes = tuple(s.start for s in slabs), tuple(map(len, slabs))
        self.end = end
        self.rows = [row for slab in slabs for row in slab]
        self.slab_entries = tuple(slab_entry(slab) for slab in range(len(slabs)))

    @property
    def slabs(self) -> list[range]:
        """The rows of each slab."""
        return [range(f, f + size) for f, size in zip(self.firsts, self.sizes, strict=True)]

    def launch(self, context_name: str | None, daemon: bool) -> None:
        """Start the process, which begins to make its envs.

        Raises: TargetError for makers that cannot be sent.
        """
        context: Any = multiprocessing.get_context(context_name)
        method = context.get_start_method()
        is_main = threading.current_thread() is threading.main_thread()
        ours, theirs = context.Pipe()
        assignment = replace(self.assignment, forked_from_main=method != "forkserver" and is_main)
        self.process = context.Process(
            target=run_worker,
            args=(theirs, assignment if method == "fork" else pickle_makers(assignment)),
            daemon=daemon,
            name=f"hotloop-worker-{assignment.worker}",
        )
        self.connection = ours
        self.process.start()
        _STARTED.add(self.process)
        theirs.close()

    def hear_facts(self, timeout_s: float | None) -> WorkerFacts | None:
        """What the envs are that it has made; None if it died of it, or hung.

        Raises: what making an env raised.
        """
        limit_s = None if timeout_s is None else max(START_S, timeout_s)
        try:
            if not self.connection.poll(limit_s):
                self.end_process()
                return None
            succeeded, facts = pickle.loads(self.connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            self.end_process()
            return None
        if not succeeded:
            raise facts
        return facts  # type: ignore[no-any-return]

    def end_process(self) -> None:
        """End the process at once, if it has not ended by itself."""
        self.process.join(0.2)  # if it is ending by itself, how it ended is worth knowing
        if self.process.is_alive():
            self.process.kill()
        self.process.join()

    @property
    def ending(self) -> str:
        """How the process has ended."""
        exitcode = self.process.exitcode
        if exitcode is None or exitcode >= 0:
            return f"exit code {exitcode}"
        return f"signal {-exitcode}"

    @property
    def is_open(self) -> bool:
        """Whether the process was started, and not closed yet."""
        try:
            return self.process is not None and self.process.pid is not None
        except ValueError:
            return False  # it ended, and was closed


_STARTED: "weakref.WeakSet[Any]" = weakref.WeakSet()


def _disown() -> None:
    # A forked child of the driver would end, as multiprocessing ends its own daemons at exit, those
    # of its parent.
    multiprocessing_process._children.difference_update(_STARTED)  # type: ignore[attr-defined]


os.register_at_fork(after_in_child=_disown)
