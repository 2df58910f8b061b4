"""Finds compilation while the loop runs: torch.compile that compiles again, and numba.

Both say themselves when they begin and end; nothing is replaced.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from hotloop.loop.figures import Interval
from hotloop.optimize.advice import Advice
from hotloop.optimize.places import Place, user_place
from hotloop.optimize.watched import Instrument, Phase, Span, Watched

LEAST_SHARE = 0.01

_TORCH = "torch._dynamo.callback"
_NUMBA = "numba.core.event"
_ACTIONS = {
    "torch.compile": "give it inputs of one shape (pad the last batch, drop_last=True), or "
    "torch.compile(dynamic=True), and compile once before the loop",
    "numba": "decorate the function once, outside of the loop, and call it with arguments of one "
    "type",
}


class Compilation:
    """Times the compilers of torch and numba."""

    def __init__(self) -> None:
        self._spans: defaultdict[tuple[Place, str], list[Span]] = defaultdict(list)
        self._depth = 0
        self._start = 0
        self._place: Place | None = None

    @property
    def phases(self) -> Mapping[Phase, Instrument]:
        """It takes times."""
        return {Phase.TIMES: self._watch}

    @contextmanager
    def _watch(self, _watched: Watched) -> Iterator[None]:
        with ExitStack() as stack:
            if _TORCH in sys.modules:
                stack.enter_context(self._watch_torch(sys.modules[_TORCH]))
            if _NUMBA in sys.modules:
                stack.enter_context(self._watch_numba(sys.modules[_NUMBA]))
            yield

    @contextmanager
    def _watch_torch(self, module: Any) -> Iterator[None]:
        def start(_arguments: object) -> None:
            self._begin()

        def end(_arguments: object) -> None:
            self._finish("torch.compile")

        handler = module.callback_handler
        handler.register_start_callback(start)
        handler.register_end_callback(end)
        try:
            yield
        finally:
            # torch._dynamo.reset() takes them all off.
            if start in handler.start_callbacks:
                handler.remove_start_callback(start)
            if end in handler.end_callbacks:
                handler.remove_end_callback(end)

    @contextmanager
    def _watch_numba(self, module: Any) -> Iterator[None]:
        watch = self

        class Listener(module.Listener):  # type: ignore[misc]  # known at run time
            def on_start(self, _event: object) -> None:
                watch._begin()

            def on_end(self, _event: object) -> None:
                watch._finish("numba")

        listener = Listener()
        module.register("numba:compile", listener)
        try:
            yield
        finally:
            module.unregister("numba:compile", listener)

    def _begin(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._start = time.perf_counter_ns()
            self._place = user_place(sys._getframe(1), through_libraries=True)

    def _finish(self, compiler: str) -> None:
        self._depth -= 1
        if self._depth == 0 and self._place is not None:
            span = Span(self._start, time.perf_counter_ns())
            self._spans[self._place, compiler].append(span)

    def advice(self, watched: Watched) -> list[Advice]:
        """Every line of the user's where something is compiled for a noticeable time."""
        found = []
        for (place, compiler), spans in self._spans.items():
            share = watched.share_of(spans)
            if not isinstance(share, Interval) or share.value < LEAST_SHARE:
                continue
            took_s = sum(span.end_ns - span.start_ns for span in spans) * 1e-9
            found.append(
                watched.advice(
                    "compilation",
                    place,
                    f"{compiler} compiles here while the loop runs",
                    _ACTIONS[compiler],
                    share,
                    ("compilations", float(len(spans)), ""),
                    ("time of one", took_s / len(spans), "s"),
                )
            )
        return found
