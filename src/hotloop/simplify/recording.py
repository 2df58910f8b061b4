"""Filling the tapes, and finding from the same iterations how a loop's stages are related."""

import math
import threading
from dataclasses import dataclass, field

import numpy as np

from hotloop.benchmark.timeline import (
    lanes_of,
    parents,
    stages_beside_loop,
    time_and_calls,
    to_array,
)
from hotloop.errors import LoopError
from hotloop.loop.arm import RECORD, Arm
from hotloop.loop.conduct import Block, Measurement, Request
from hotloop.loop.control import SharedControl
from hotloop.loop.declared_state import DeclaredState
from hotloop.loop.event import Event, current_lane
from hotloop.loop.stage_types import StageView
from hotloop.loop.tape import MIN_OUTPUTS, PROBLEM, WANTED_OUTPUTS, modes_of
from hotloop.simplify.rare_work import WorkKind, kind_of_rest, kind_of_stage, rest_of_iterations
from hotloop.simplify.record import Record
from hotloop.simplify.stage_facts import StageFacts

KEPT_EVENTS = 200_000
KEPT_CALLS = 4_000
# Assumed where neither the loop nor the counts say how much is in flight.
UNKNOWN_IN_FLIGHT = 4
# A stage whose calls in an iteration are so near to a whole number is paced by the loop.
NEAR_WHOLE = 0.1


@dataclass
class Recorded:
    """The iterations of a recording: the last events, and every iteration's start and duration."""

    events: list[Event] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    duration_ns: list[int] = field(default_factory=list)

    def add(self, block: Block) -> None:
        """Append what a block measured."""
        self.events = (self.events + block.events)[-KEPT_EVENTS:]
        self.start_ns += block.start_ns
        self.duration_ns += block.duration_ns


def record_stages(
    control: SharedControl,
    record: Record,
    state: DeclaredState,
    deadline_ns: int,
    enough_ns: int,
    in_flight: int = 0,
) -> Measurement[None]:
    """Record until every stage that may be replaced has enough outputs, or the time is up.

    state: what the loop declares.
    deadline_ns: when to end in any case; enough_ns: until when more outputs than are needed are
    recorded, both on the control's clock.
    in_flight: items made ahead, as declared: so many iterations may pass without a producer's call.
    Raises: LoopError if no stage is called.
    """
    assert record.warm_up is not None
    for known in control.stages.values():
        known.tape.clear()
    arm = Arm("recording", rest=RECORD)
    found = Recorded()
    while True:
        iterations = len(found.duration_ns)
        block = yield Request(
            arm, iterations=max(1, 2 * iterations), seconds=0.5, phase="recording"
        )
        found.add(block)
        called = {event.stage for event in found.events}
        if not called:
            raise LoopError(
                f"{record.name}: no stage was called, so there is nothing to replace. Put a "
                'stage around each part of the loop: act = hotloop.stage("act", act)'
            )
        now, iterations = control.clock.now_ns(), len(found.duration_ns)
        recorded = [stage for stage in control.stages.values() if stage.index in called]
        filled = all(_filled(control, stage, more=now < enough_ns) for stage in recorded)
        late = now >= deadline_ns
        if iterations > in_flight and (late or (filled and iterations >= in_flight + 3)):
            break
    record.iterations_kept += record.warm_up.iterations + iterations
    record.events = to_array(block.events)
    record.stages += _facts_of_stages(control, record, found, state)
    record.groups = _groups(control, record)
    record.concurrent = any(stage.beside_main for stage in record.stages)
    # Where ranks wait for each other, the time of nearly every stage depends on the arm.
    record.kinds = [] if control.obeyed_in_step else _kinds(record, found)


def _facts_of_stages(
    control: SharedControl, record: Record, found: Recorded, state: DeclaredState
) -> list[StageFacts]:
    """What the recording says of each stage that was called."""
    events, iterations = found.events, len(found.duration_ns)
    names = control.names()
    inside, lanes = parents(events), lanes_of(events)
    time_ns, calls = time_and_calls(events, len(names))
    elsewhere = stages_beside_loop(
        events, np.array(found.start_ns), current_lane(), threading.get_ident()
    )
    stages = []
    for known in control.stages.values():
        index = known.index
        if not calls[index]:
            continue
        parent = inside.get(index)
        called_ns = [event.end_ns - event.start_ns for event in events if event.stage == index]
        stages.append(
            StageFacts(
                name=known.name,
                index=index,
                kind=known.kind,
                effect=known.effect,
                inside=None if parent is None else names[parent],
                calls_per_iteration=float(calls[index] / iterations),
                ns_per_call=float(time_ns[index] / calls[index]),
                # A worker's tape is not seen from here, its calls are.
                tape_ns=known.tape.durations_ns().tolist() or called_ns[:KEPT_CALLS],
                ns_per_iteration=float(time_ns[index] / iterations),
                share=float(time_ns[index] / sum(found.duration_ns)),
                cpu_share=known.tape.cpu_share(),
                beside_main=index in elsewhere,
                lanes=sorted(lanes[index]),
                outputs=_outputs(control, known),
                modes_ns=modes_of(known.tape.durations_ns()),
                bytes_per_call=known.bytes_per_call or known.tape.bytes_per_call(),
                not_replaced=_violation(record, known)
                or _why_not(control, known, state, index in elsewhere),
                is_whole=known.is_whole,
            )
        )
    return stages


def _groups(control: SharedControl, record: Record) -> dict[str, list[str]]:
    """The stages that are one part of the loop together, none within another, by its name."""
    groups: dict[str, list[str]] = {}
    replaceable = [stage for stage in record.stages if stage.replaceable]
    for stage in replaceable:
        name = control.stages[stage.name].part_of
        if name is not None and not any(record.is_inside(stage, other) for other in replaceable):
            groups.setdefault(name, []).append(stage.name)
    taken = {stage.name for stage in record.stages}
    return {name: each for name, each in groups.items() if len(each) > 1 and name not in taken}


def in_flight(control: SharedControl, record: Record) -> int:
    """Return the items between the first stage and the loop, by the calls that have begun.

    There are more calls than the iterations need, by what is in flight; that is right where the
    stages were counted from the loop's start. 0 for serial loops.

    A script has iterations before it is known where one begins: the loop's own stages tell how
    many there were.
    """
    if not record.concurrent:
        return 0
    reached = [
        (stage.beside_main, control.calls[stage.index] / paced)
        for stage in record.stages
        if (paced := _paced(stage.calls_per_iteration)) is not None
    ]
    own = [iterations for beside, iterations in reached if not beside]
    passed = max(record.iterations_kept, int(np.median(own)) if own else 0)
    seen = [math.ceil(iterations) - passed for beside, iterations in reached if beside]
    return max([count for count in seen if count > 0], default=UNKNOWN_IN_FLIGHT)


def _paced(calls: float) -> float | None:
    """The long-run calls of an iteration, if the loop paces them: whole, or one in so many.

    Items in flight make them a little more or less; calls that follow the clock are any number.
    """
    whole = float(round(calls)) if calls >= 1 else 1 / max(1, round(1 / max(calls, 1e-9)))
    return whole if abs(calls - whole) <= NEAR_WHOLE * whole else None


def _kinds(record: Record, found: Recorded) -> list[WorkKind]:
    """Divide the calls of each stage, and the rest of the iterations, into common and rare."""
    table = np.array(found.events, np.int64).reshape(-1, 4)
    kinds = []
    for stage in record.stages:
        waits = stage.cpu_share is not None and stage.cpu_share < 0.5
        if record.concurrent and waits and not stage.beside_main:
            continue  # it may wait for other stages: how long depends on the arm
        took = (table[:, 2] - table[:, 1])[table[:, 0] == stage.index].astype(float)
        kinds.append(kind_of_stage(stage.name, stage.index, took, stage.calls_per_iteration))
    if record.concurrent:
        return kinds
    begin = np.array(found.start_ns, np.int64)
    took_ns = np.array(found.duration_ns, np.int64)
    whole = begin >= (table[0, 1] if len(table) else 0)  # older events were not kept
    outermost = [stage.index for stage in record.stages if stage.inside is None]
    rest = rest_of_iterations(table, outermost, current_lane(), begin[whole], took_ns[whole])
    return [*kinds, kind_of_rest(rest, float(np.median(took_ns)))]


def _filled(control: SharedControl, known: StageView, more: bool) -> bool:
    """Whether a stage has all outputs that it can use; more: more than the fewest it needs."""
    fixed = known.is_block or known.effect == "effectful" or known.cannot_replace is not None
    if known.tape.problem is not None or fixed:
        return True
    wanted = max(WANTED_OUTPUTS, known.tape.wanted) if more else known.tape.needed
    return known.tape.full or known.tape.limited or _outputs(control, known) >= wanted


def _outputs(control: SharedControl, known: StageView) -> int:
    """Recorded outputs of a stage, in the process that has the fewest."""
    workers = [length for length, _ in control.workers.tapes(known.index)]
    own = len(known.tape)
    return min([*workers, *([own] if own or not workers else [])])


def _violation(record: Record, known: StageView) -> str | None:
    """What a stage was seen to do that its declaration rules out, and replaying would leave out."""
    for broken in record.broken:
        if broken["blocks"] and broken["stage"] == known.name:
            return f"declared {known.effect}, but it {broken['what']}"
    return None


def _why_not(
    control: SharedControl, known: StageView, state: DeclaredState, beside_main: bool
) -> str | None:
    """Why a stage cannot be replaced by its tape, or None if it can."""
    if known.is_block:
        return "a with block can be timed and delayed only"
    if known.effect == "effectful":
        return "effectful: delayed, never replaced"
    if known.cannot_replace is not None:
        return known.cannot_replace
    if known.effect == "stateful" and not any(state):
        return "its state is not declared"
    # A check says whether it works on what is stuck; a stage that was not checked may do so.
    if known.effect == "stateful" and state.stuck and not control.checks.get(known.name):
        return "a part of the loop's state cannot be put back"
    if known.effect == "stateful" and beside_main:
        return "its state cannot be put back while it runs beside the loop"
    if known.tape.problem is not None:
        return known.tape.problem
    if any(faults & PROBLEM for _, faults in control.workers.tapes(known.index)):
        return "a worker could not record it"
    outputs = _outputs(control, known)
    needed = known.tape.needed if known.tape.entries else MIN_OUTPUTS
    if outputs < needed:
        return f"{outputs} of {needed} outputs recorded; give a larger --budget"
    return None
