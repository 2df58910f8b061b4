"""What Python code sends, receives and waits for, by stage, kind and line of the user's code.

The functions that it all goes through are replaced meanwhile. What a library sends from compiled
code is not seen here; `hotloop.profile.kernel_traffic` has the kernel's sums.
"""

import functools
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from hotloop.loop.clock import Clock
from hotloop.profile.call_site import CallSite, call_site
from hotloop.profile.descriptors import TCP_UNCONNECTED, Descriptors
from hotloop.profile.ray_traffic import calls_of_ray
from hotloop.profile.replaced import Replaced, Replacement
from hotloop.profile.traffic_calls import Call, calls_of_python
from hotloop.profile.under_way import stages_under_way

# After the call that connects it, a socket leads somewhere.
_NOT_YET = (None, TCP_UNCONNECTED)


class Source(NamedTuple):
    """Where traffic comes from. stages: those under way, the outermost first."""

    stages: tuple[str, ...]
    kind: str
    site: CallSite


@dataclass
class Amount:
    """Calls, bytes, and the time within the calls."""

    calls: int = 0
    sent: int = 0
    received: int = 0
    waited_ns: int = 0

    def add(self, other: "Amount") -> None:
        """Add another amount to this one."""
        self.calls += other.calls
        self.sent += other.sent
        self.received += other.received
        self.waited_ns += other.waited_ns


class _OnThread(threading.local):
    """What one thread has moved. inside: whether one of the functions is under way."""

    def __init__(self, all_threads: list[dict[Source, Amount]]) -> None:
        self.inside = False
        self.amounts: dict[Source, Amount] = defaultdict(Amount)
        all_threads.append(self.amounts)


class Traffic:
    """Notes traffic between `start` and `stop`, which may be called again and again."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now_ns
        self._threads: list[dict[Source, Amount]] = []
        self._here = _OnThread(self._threads)
        self._descriptors = Descriptors()
        self._replaced: Replaced | None = None

    def start(self) -> None:
        """Begin to note."""
        calls = [*calls_of_python(self._descriptors), *calls_of_ray()]
        self._replaced = Replaced(
            [Replacement(c.owner, c.name, functools.partial(self._noting, c)) for c in calls]
        )
        self._replaced.start()

    def stop(self) -> None:
        """Put all functions back; may be called twice."""
        if self._replaced is not None:
            self._replaced.stop()

    def amounts(self) -> dict[Source, Amount]:
        """What all threads have moved, together."""
        found: dict[Source, Amount] = defaultdict(Amount)
        for amounts in list(self._threads):
            for source, amount in list(amounts.items()):
                found[source].add(amount)
        return dict(found)

    def _noting(self, call: Call, original: Callable[..., Any]) -> Callable[..., Any]:
        """The function that takes the place of one; what that calls itself is not counted twice."""
        here, now = self._here, self._now

        @functools.wraps(original)
        def noted(*args: Any, **kwargs: Any) -> Any:
            if here.inside:
                return original(*args, **kwargs)
            here.inside = True
            try:
                given = (*args, *kwargs.values())
                kind = call.kind(given)  # before: the call may close what it is about
                begin = now()
                try:
                    result = original(*args, **kwargs)
                except BaseException:
                    self._note(kind, 0, 0, now() - begin)
                    raise
                waited_ns = now() - begin
                if kind in _NOT_YET:
                    kind = call.kind(given)
                self._note(kind, call.sent(given, result), call.received(given, result), waited_ns)
                return result
            finally:
                here.inside = False

        return noted

    def _note(self, kind: str | None, sent: int, received: int, waited_ns: int) -> None:
        if kind is None:
            return
        amount = self._here.amounts[Source(stages_under_way(), kind, call_site())]
        amount.add(Amount(1, sent, received, waited_ns))
