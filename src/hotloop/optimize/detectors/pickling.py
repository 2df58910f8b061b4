"""Finds large arrays that are pickled between processes.

Everything that `multiprocessing` sends passes through one class, in whatever thread; pools and
queues send from threads of their own, and are charged to the line that called them. On a busy
machine nearly all of the time is not in pickling but in the pipe, which holds 64 KiB: the two
processes take turns for each of them.
"""

import multiprocessing.connection
import multiprocessing.queues
import multiprocessing.reduction
import sys
import threading
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from hotloop.loop.figures import Figure, Interval
from hotloop.loop.values import ATOMS, count_bytes
from hotloop.optimize.advice import Advice
from hotloop.optimize.patches import around
from hotloop.optimize.places import Place, place_of_thread, user_place
from hotloop.optimize.watched import Instrument, Phase, Span, Watched

LARGE_BYTES = 1 << 16  # a smaller message costs about as much as an empty one
LEAST_SHARE = 0.01
_PIPE_BYTES = 1 << 16  # as many as a pipe of Linux holds: what is more waits until some are read
_REMEMBERED = 256  # objects put into queues whose threads have not yet sent them


class Pickling:
    """Counts and times what is pickled for other processes, on its way, and unpickled."""

    def __init__(self) -> None:
        self._thread = 0
        self._spans: defaultdict[Place, list[Span]] = defaultdict(list)
        self._bytes: Counter[Place] = Counter()
        self._messages: Counter[Place] = Counter()
        self._pickling_ns: Counter[Place] = Counter()
        self._put_at: OrderedDict[int, Place] = OrderedDict()
        # By thread: what it has pickled and will send, its bytes and where it was put; and when
        # what it will unpickle was on its way.
        self._sending: dict[int, tuple[int, Place]] = {}
        self._received: dict[int, Span] = {}

    @property
    def phases(self) -> Mapping[Phase, Instrument]:
        """It takes times."""
        return {Phase.TIMES: self._watch}

    @contextmanager
    def _watch(self, watched: Watched) -> Iterator[None]:
        self._thread = watched.thread
        pickler = multiprocessing.reduction.ForkingPickler
        with ExitStack() as stack:
            stack.enter_context(around(pickler, "dumps", self._dumps))
            stack.enter_context(around(pickler, "loads", self._loads))
            connection = multiprocessing.connection.Connection
            stack.enter_context(around(connection, "_send", self._send))
            stack.enter_context(around(connection, "_recv", self._recv))
            stack.enter_context(around(multiprocessing.queues.Queue, "put", self._put))
            executors = sys.modules.get("concurrent.futures.process")
            if executors is not None:
                executor = executors.ProcessPoolExecutor
                stack.enter_context(around(executor, "submit", self._put))
            yield

    def _put(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Note where something is put that another thread sends: (self, what, and more)."""
        place = user_place(sys._getframe(1), through_libraries=True)
        if place is not None:
            for each in (*args[1:], *kwargs.values()):
                if not isinstance(each, ATOMS):
                    self._put_at[id(each)] = place
            while len(self._put_at) > _REMEMBERED:
                self._put_at.popitem(last=False)
        return function(*args, **kwargs)

    def _put_where(self, sent: Any) -> Place | None:
        """Where a message was put, or what an executor has packed into it."""
        packed = vars(sent) if hasattr(sent, "__dict__") else {}
        parts = (*packed.get("args", ()), *packed.get("kwargs", {}).values())
        found = [self._put_at.pop(id(each), None) for each in (sent, *parts)]
        return next((place for place in found if place is not None), None)

    def _dumps(self, function: Any, args: Any, kwargs: Any) -> Any:
        sent = args[1]  # after the class
        start = time.perf_counter_ns()
        pickled = function(*args, **kwargs)
        span = Span(start, time.perf_counter_ns())
        if len(pickled) >= LARGE_BYTES:
            place = self._note(_array_bytes(sent), span, self._put_where(sent))
            if place is not None:
                self._sending[threading.get_ident()] = len(pickled), place
        return pickled

    def _loads(self, function: Any, args: Any, kwargs: Any) -> Any:
        start = time.perf_counter_ns()
        received = function(*args, **kwargs)
        span = Span(start, time.perf_counter_ns())
        on_its_way = self._received.pop(threading.get_ident(), None)
        if len(args[0]) >= LARGE_BYTES:
            place = self._note(_array_bytes(received), span, None)
            if place is not None and on_its_way is not None:
                self._spans[place].append(on_its_way)
        return received

    def _send(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Time how long bytes are on their way, without the time until the receiver takes them.

        It takes them since some were taken out of the pipe, as more are in than it holds.
        """
        connection, sent = args
        thread = threading.get_ident()
        size, place = self._sending.get(thread, (None, None))
        if place is None or len(sent) != size:
            return function(*args, **kwargs)
        del self._sending[thread]
        ends_ns: list[int] = []

        def write(handle: int, rest: memoryview) -> int:
            written = connection._write(handle, rest[:_PIPE_BYTES])
            ends_ns.append(time.perf_counter_ns())
            return int(written)

        function(connection, sent, write)
        if len(ends_ns) > 2:
            self._spans[place].append(Span(ends_ns[1], ends_ns[-1]))

    def _recv(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Time how long bytes are on their way: their number has come, so they are being sent."""
        start = time.perf_counter_ns()
        received = function(*args, **kwargs)
        if args[1] >= LARGE_BYTES:
            self._received[threading.get_ident()] = Span(start, time.perf_counter_ns())
        return received

    def _note(self, held: int, span: Span, place: Place | None) -> Place | None:
        """Note a message with so many bytes of arrays; returns where, if it is of the user's."""
        place = place or user_place(sys._getframe(2), through_libraries=True)
        if place is None and threading.get_ident() != self._thread:
            place = place_of_thread(self._thread)
        if place is None or held < LARGE_BYTES:
            return None
        self._spans[place].append(span)
        self._bytes[place] += held
        self._messages[place] += 1
        self._pickling_ns[place] += span.end_ns - span.start_ns
        return place

    def advice(self, watched: Watched) -> list[Advice]:
        """Every line of the user's that sends or receives large arrays for a noticeable time."""
        found = []
        for place, spans in self._spans.items():
            share = watched.share_of(spans)
            if not isinstance(share, Interval) or share.value < LEAST_SHARE:
                continue
            sent = watched.per_iteration(self._bytes[place], Phase.TIMES)
            messages = watched.per_iteration(self._messages[place], Phase.TIMES)
            pickling_s = watched.per_iteration(1e-9 * self._pickling_ns[place], Phase.TIMES)
            found.append(
                watched.advice(
                    "pickling",
                    place,
                    "arrays are pickled here on their way between processes",
                    "put them into shared memory (multiprocessing.shared_memory, or tensors with "
                    "share_memory_()) and send only where they are, or let each process keep its "
                    "own part",
                    _at_most(watched.samples.share_at(place), share),
                    ("bytes of arrays an iteration", sent, "bytes"),
                    ("messages an iteration", messages, ""),
                    ("time of this process's pickling an iteration", pickling_s, "s"),
                )
            )
        return found


def _array_bytes(value: Any) -> int:
    """Bytes of the arrays in a message; what executors send is an object that holds it."""
    held = count_bytes(value)
    return held or count_bytes(getattr(value, "__dict__", {}))


def _at_most(line: Figure, sending: Interval) -> Figure:
    """The larger share: the other process pickles too, and the line waits for it."""
    if isinstance(line, Interval) and line.value > sending.value:
        return line
    return sending
