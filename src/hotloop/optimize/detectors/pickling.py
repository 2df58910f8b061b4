"""Finds large arrays that are pickled between processes.

Everything that `multiprocessing` sends passes through one class, in whatever thread; pools and
queues send from threads of their own, and are charged to the line that called them.
"""

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
_REMEMBERED = 256  # objects put into queues whose threads have not yet sent them


class Pickling:
    """Counts and times what is pickled and unpickled for other processes."""

    def __init__(self) -> None:
        self._thread = 0
        self._spans: defaultdict[Place, list[Span]] = defaultdict(list)
        self._bytes: Counter[Place] = Counter()
        self._put_at: OrderedDict[int, Place] = OrderedDict()

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
            self._note(_array_bytes(sent), span, self._put_where(sent))
        return pickled

    def _loads(self, function: Any, args: Any, kwargs: Any) -> Any:
        start = time.perf_counter_ns()
        received = function(*args, **kwargs)
        span = Span(start, time.perf_counter_ns())
        if len(args[0]) >= LARGE_BYTES:
            self._note(_array_bytes(received), span, None)
        return received

    def _note(self, held: int, span: Span, place: Place | None) -> None:
        place = place or user_place(sys._getframe(2), through_libraries=True)
        if place is None and threading.get_ident() != self._thread:
            place = place_of_thread(self._thread)
        if place is not None and held >= LARGE_BYTES:
            self._spans[place].append(span)
            self._bytes[place] += held

    def advice(self, watched: Watched) -> list[Advice]:
        """Every line of the user's that sends or receives large arrays for a noticeable time."""
        found = []
        for place, spans in self._spans.items():
            share = watched.share_of(spans)
            if not isinstance(share, Interval) or share.value < LEAST_SHARE:
                continue
            pickled_s = sum(span.end_ns - span.start_ns for span in spans) * 1e-9
            sent = watched.per_iteration(self._bytes[place], Phase.TIMES)
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
                    ("messages an iteration", watched.per_iteration(len(spans), Phase.TIMES), ""),
                    (
                        "time of this process's pickling an iteration",
                        watched.per_iteration(pickled_s, Phase.TIMES),
                        "s",
                    ),
                )
            )
        return found


def _array_bytes(value: Any) -> int:
    """Bytes of the arrays in a message; what executors send is an object that holds it."""
    held = count_bytes(value)
    return held or count_bytes(getattr(value, "__dict__", {}))


def _at_most(line: Figure, pickling: Interval) -> Figure:
    """The larger share: the other process pickles too, and the line waits for it."""
    if isinstance(line, Interval) and line.value > pickling.value:
        return line
    return pickling
