"""Finds where the loop waits for its data: a DataLoader of torch, or a queue."""

import multiprocessing.queues
import queue
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from hotloop.loop.figures import Interval
from hotloop.optimize.advice import Advice
from hotloop.optimize.patches import around
from hotloop.optimize.places import Place, user_place
from hotloop.optimize.watched import Instrument, Phase, Span, Watched

LEAST_SHARE = 0.1

_TORCH_LOADER = "torch.utils.data.dataloader"
_QUEUES = (
    (queue.Queue, "get"),
    (queue.SimpleQueue, "get"),
    (multiprocessing.queues.Queue, "get"),
    (multiprocessing.queues.SimpleQueue, "get"),
)
_IN_PROCESS = "the loop loads its data itself, one batch after the other, while nothing is trained"
_BY_WORKERS = "the loop waits for the workers of its loader"
_BY_QUEUE = "the loop waits for a queue"
_ACTIONS = {
    _IN_PROCESS: "give the loader workers (num_workers), load whole batches at once, or keep the "
    "decoded data in memory",
    _BY_WORKERS: "make loading an item cheaper, give the loader more workers where there are idle "
    "cores, and keep them over epochs (persistent_workers=True)",
    _BY_QUEUE: "make what fills the queue faster, let more of it run at once, or let it work ahead",
}


class Loader:
    """Times how long the loop's thread is in a loader's `next`, or waits for a queue."""

    def __init__(self) -> None:
        self._spans: defaultdict[tuple[Place, str], list[Span]] = defaultdict(list)
        self._thread = 0
        self._inside = False

    @property
    def phases(self) -> Mapping[Phase, Instrument]:
        """It takes times."""
        return {Phase.TIMES: self._watch}

    @contextmanager
    def _watch(self, watched: Watched) -> Iterator[None]:
        self._thread = watched.thread
        with ExitStack() as stack:
            for owner, name in _QUEUES:
                if isinstance(vars(owner).get(name), type(_is_queue)):
                    stack.enter_context(around(owner, name, self._waited))
            loading: Any = sys.modules.get(_TORCH_LOADER)
            if loading is not None:
                stack.enter_context(around(loading._BaseDataLoaderIter, "__next__", self._waited))
                stack.enter_context(around(loading.DataLoader, "__iter__", self._waited))
            yield

    def _waited(self, function: Any, args: Any, kwargs: Any) -> Any:
        # A loader waits for queues of its own.
        if threading.get_ident() != self._thread or self._inside:
            return function(*args, **kwargs)
        self._inside = True
        start = time.perf_counter_ns()
        try:
            return function(*args, **kwargs)
        finally:
            self._inside = False
            by_queue = _is_queue(args[0])
            place = user_place(sys._getframe(1), through_libraries=not by_queue)
            if place is not None:
                span = Span(start, time.perf_counter_ns())
                self._spans[place, _BY_QUEUE if by_queue else _kind(args[0])].append(span)

    def advice(self, watched: Watched) -> list[Advice]:
        """Every line of the user's with a share of the time that is worth an edit."""
        found = []
        for (place, kind), spans in self._spans.items():
            share = watched.share_of(spans)
            if not isinstance(share, Interval) or share.value < LEAST_SHARE:
                continue
            waited_s = sum(span.end_ns - span.start_ns for span in spans) * 1e-9
            found.append(
                watched.advice(
                    "loader",
                    place,
                    kind,
                    _ACTIONS[kind],
                    share,
                    ("batches an iteration", watched.per_iteration(len(spans), Phase.TIMES), ""),
                    ("waited an iteration", watched.per_iteration(waited_s, Phase.TIMES), "s"),
                )
            )
        return found


def _is_queue(source: object) -> bool:
    return isinstance(source, tuple(owner for owner, _ in _QUEUES))


def _kind(source: Any) -> str:
    """Whether a loader, or a pass over one, has workers."""
    workers = getattr(source, "num_workers", 0) or getattr(source, "_num_workers", 0)
    return _BY_WORKERS if workers else _IN_PROCESS
