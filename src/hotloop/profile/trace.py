"""What torch.profiler has seen, as times by stage, operation, part of the model and pass.

The profiler gives intervals on threads; what is inside of what follows from them. An operation
that others are made of, and that is counted as those, keeps only what it takes by itself; one that
is counted as a whole has the time of all that it calls.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from hotloop.loop.named_call import FRAME
from hotloop.profile.origins import BACKWARD, FORWARD, OPTIMISER
from hotloop.profile.parts import OUTSIDE, Part

# How the names of the ranges begin that are put around the calls of parts.
MODULE, STEP = "module: ", "optimiser: "
_SEPARATOR = " of class "
# How torch calls the range of a node of the backward pass.
_NODE = "autograd::engine::evaluate_function: "


class Slice(NamedTuple):
    """What a time was spent on.

    stages: those under way, the outermost first, as with `Origin`. operation: as torch calls it,
    such as `aten.mm`, or a range of another name; empty for what Python does between operations.
    """

    stages: tuple[str, ...]
    operation: str
    part: Part
    pass_name: str


@dataclass
class Spent:
    """calls; host_ns: on threads; device_ns: on a card."""

    calls: int = 0
    host_ns: float = 0.0
    device_ns: float = 0.0


class TraceEvent(NamedTuple):
    """An interval on a thread. sequence: the number of the node of the graph, -1: none."""

    name: str
    start_ns: int
    duration_ns: int
    thread: int
    sequence: int
    forward_thread: int
    number: int  # by which the intervals of a card name it


class CardEvent(NamedTuple):
    """An interval on a card; number: of the `TraceEvent` that has launched it."""

    number: int
    duration_ns: int


def part_range(part: Part) -> str:
    """The name of the range around a call of a part."""
    return f"{STEP if part.is_optimiser else MODULE}{part.path}{_SEPARATOR}{part.kind}"


@dataclass
class _Open:
    """An interval under way. own_ns: without the intervals in it."""

    end_ns: int
    slice: Slice
    own_ns: float
    is_call: bool


@dataclass
class TraceTimes:
    """Adds up traces. counted: the operations that are counted as a whole."""

    counted: Collection[str]
    spent: dict[Slice, Spent] = field(default_factory=dict)

    def add(self, events: Iterable[TraceEvent], on_card: Iterable[CardEvent] = ()) -> Self:
        """Add one trace; the loop's own thread is the one of the first event."""
        ordered = sorted(events, key=lambda event: (event.start_ns, -event.duration_ns))
        if not ordered:
            return self
        main = ordered[0].thread
        stacks: dict[int, list[_Open]] = {main: []}
        nodes: dict[tuple[int, int], Part] = {}
        numbers: dict[int, Slice] = {}
        for event in ordered:
            for stack in (stacks[main], stacks.setdefault(event.thread, [])):
                self._close(stack, event.start_ns)
            stack = stacks[event.thread]
            above = stack[-1].slice if stack else _beside(stacks[main])
            inner = self._slice(event, above, nodes)
            if stack:
                stack[-1].own_ns -= event.duration_ns
            is_call = inner.operation != above.operation or above.operation not in self.counted
            end_ns = event.start_ns + event.duration_ns
            stack.append(_Open(end_ns, inner, event.duration_ns, is_call))
            numbers[event.number] = inner
        for stack in stacks.values():
            self._close(stack, None)
        for card in on_card:
            if card.number in numbers:
                self._spent(numbers[card.number]).device_ns += card.duration_ns
        return self

    def _slice(self, event: TraceEvent, above: Slice, nodes: dict[tuple[int, int], Part]) -> Slice:
        """What an event within another one is about."""
        name = event.name
        if name.startswith(FRAME):
            return above._replace(stages=(*above.stages, name.removeprefix(FRAME)), operation="")
        for begins, pass_name in ((MODULE, FORWARD), (STEP, OPTIMISER)):
            if name.startswith(begins):
                path, _, kind = name.removeprefix(begins).rpartition(_SEPARATOR)
                part = Part(path, kind, begins == STEP)
                return Slice(above.stages, "", part, pass_name)
        if name.startswith(_NODE):
            part = nodes.get((event.forward_thread, event.sequence), OUTSIDE)
            return Slice(above.stages, "backward of autograd", part, BACKWARD)
        if event.sequence >= 0 and above.pass_name != BACKWARD:
            # The last operation before the next number is the one that has made the node.
            nodes[event.thread, event.sequence] = above.part
        if above.operation in self.counted:
            return above
        return above._replace(operation=name.replace("::", "."))

    def _close(self, stack: list[_Open], now_ns: int | None) -> None:
        """Take in what has ended by now; None: all."""
        while stack and (now_ns is None or stack[-1].end_ns <= now_ns):
            ended = stack.pop()
            spent = self._spent(ended.slice)
            spent.host_ns += max(ended.own_ns, 0.0)
            spent.calls += ended.is_call

    def _spent(self, on: Slice) -> Spent:
        return self.spent.setdefault(on, Spent())


def _beside(main: list[_Open]) -> Slice:
    """What another thread works for: the stages of the loop's own, which waits for it."""
    return Slice(main[-1].slice.stages if main else (), "", OUTSIDE, FORWARD)


def read_trace(results: Any) -> tuple[list[TraceEvent], list[CardEvent]]:
    """The events of a trace of torch.profiler."""
    events, on_card = [], []
    for event in results.events():
        launched_by = event.linked_correlation_id()
        if event.device_type().name != "CPU":
            if launched_by and not event.is_user_annotation():
                on_card.append(CardEvent(launched_by, event.duration_ns()))
        elif not launched_by and not event.is_async():
            events.append(
                TraceEvent(
                    event.name(),
                    event.start_ns(),
                    event.duration_ns(),
                    event.start_thread_id(),
                    event.sequence_nr(),
                    event.fwd_thread_id(),
                    event.correlation_id(),
                )
            )
    return events, on_card
