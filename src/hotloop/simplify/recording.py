"""Filling the tapes, and learning from the same iterations how a loop's stages hang together."""

import math
import threading

import numpy as np

from hotloop.benchmark.timeline import beside, busy, lanes_of, parents, to_array
from hotloop.errors import LoopError
from hotloop.loop.arm import RECORD, Arm
from hotloop.loop.board import Board, Event
from hotloop.loop.conduct import Measurement, Request
from hotloop.loop.lanes import current_lane
from hotloop.loop.stage import Stage
from hotloop.loop.tape import MIN_OUTPUTS, PROBLEM, WANTED_OUTPUTS, modes_of
from hotloop.simplify.rare import WorkKind, kind_of_rest, kind_of_stage, rest_of_iterations
from hotloop.simplify.record import Record, StageFacts

KEPT_EVENTS = 200_000
KEPT_CALLS = 4_000
# The guess where neither the loop nor the counts say how much is in flight.
UNKNOWN_IN_FLIGHT = 4
# Calls an iteration so near to a whole number are paced by the loop.
NEAR_WHOLE = 0.1


def record_stages(
    board: Board,
    record: Record,
    state_complete: bool,
    deadline_ns: int,
    enough_ns: int,
    in_flight: int = 0,
) -> Measurement[None]:
    """Record until every stage that may be replaced has enough outputs, or the time is up.

    state_complete: whether the loop declares state, and all of it can be put back.
    deadline_ns: when to end in any case; enough_ns: until when more outputs than are needed are
    recorded, both on the board's clock.
    in_flight: items made ahead, as declared: so many iterations may pass without a producer's call.
    Raises: LoopError if no stage is called.
    """
    assert record.warm_up is not None
    for known in board.stages.values():
        known.tape.clear()
    arm = Arm("recording", rest=RECORD)
    events: list[Event] = []
    boundaries: list[int] = []
    durations: list[int] = []
    total_ns, iterations = 0, 0
    while True:
        block = yield Request(
            arm, iterations=max(1, 2 * iterations), seconds=0.5, phase="recording"
        )
        events = (events + block.events)[-KEPT_EVENTS:]
        boundaries += block.start_ns
        durations += block.duration_ns
        total_ns += sum(block.duration_ns)
        iterations += len(block.duration_ns)
        called = {event.stage for event in events}
        if not called:
            raise LoopError(
                f"{record.name}: no stage was called, so there is nothing to replace. Put a "
                'stage around each part of the loop: act = hotloop.stage("act", act)'
            )
        now = board.clock.now_ns()
        recorded = [stage for stage in board.stages.values() if stage.index in called]
        filled = all(_filled(board, stage, more=now < enough_ns) for stage in recorded)
        late = now >= deadline_ns
        if iterations > in_flight and (late or (filled and iterations >= in_flight + 3)):
            break
    record.iterations_kept += record.warm_up.iterations + iterations
    record.events = to_array(block.events)
    names = board.names()
    inside, lanes = parents(events), lanes_of(events)
    time_ns, calls = busy(events, len(names))
    broken = {
        of["stage"]: f"declared {board.stages[of['stage']].effect}, but it {of['what']}"
        for of in reversed(record.broken)
        if of["blocks"]
    }
    elsewhere = beside(events, np.array(boundaries), current_lane(), threading.get_ident())
    for known in board.stages.values():
        index = known.index
        if not calls[index]:
            continue
        parent = inside.get(index)
        called_ns = [event.end_ns - event.start_ns for event in events if event.stage == index]
        record.stages.append(
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
                share=float(time_ns[index] / total_ns),
                cpu_share=known.tape.cpu_share(),
                beside_main=index in elsewhere,
                lanes=sorted(lanes[index]),
                outputs=_outputs(board, known),
                modes_ns=modes_of(known.tape.durations_ns()),
                bytes_per_call=known.bytes_per_call or known.tape.bytes_per_call(),
                not_replaced=_why_not(
                    board, known, state_complete, index in elsewhere, broken.get(known.name)
                ),
            )
        )
    record.concurrent = any(stage.beside_main for stage in record.stages)
    record.kinds = _kinds(record, events, boundaries, durations)


def in_flight(board: Board, record: Record) -> int:
    """Items between the first stage and the loop, by the calls that have begun.

    Those are more than the iterations account for by what is in flight; right where the stages
    were watched from the loop's start, a negative number where they were not. 0 for serial loops.
    """
    if not record.concurrent:
        return 0
    seen = [
        math.ceil(board.calls[stage.index] / paced) - record.iterations_kept
        for stage in record.stages
        if stage.beside_main and (paced := _paced(stage.calls_per_iteration)) is not None
    ]
    return max([count for count in seen if count > 0], default=UNKNOWN_IN_FLIGHT)


def _paced(calls: float) -> float | None:
    """The calls of an iteration in the long run, if the loop paces them: whole, or one in so many.

    What is in flight now makes them a little more or less; what goes by the clock is any number.
    """
    whole = float(round(calls)) if calls >= 1 else 1 / max(1, round(1 / max(calls, 1e-9)))
    return whole if abs(calls - whole) <= NEAR_WHOLE * whole else None


def _kinds(
    record: Record, events: list[Event], starts: list[int], durations: list[int]
) -> list[WorkKind]:
    """Divide the calls of each stage, and the rest of the iterations, into common and rare."""
    table = np.array(events, np.int64).reshape(-1, 4)
    kinds = []
    for stage in record.stages:
        waits = stage.cpu_share is not None and stage.cpu_share < 0.5
        if record.concurrent and waits and not stage.beside_main:
            continue  # it may wait for other stages: how long depends on the arm
        took = (table[:, 2] - table[:, 1])[table[:, 0] == stage.index].astype(float)
        kinds.append(kind_of_stage(stage.name, stage.index, took, stage.calls_per_iteration))
    if record.concurrent:
        return kinds
    begin = np.array(starts, np.int64)
    took_ns = np.array(durations, np.int64)
    whole = begin >= (table[0, 1] if len(table) else 0)  # older events were not kept
    outermost = [stage.index for stage in record.stages if stage.inside is None]
    rest = rest_of_iterations(table, outermost, current_lane(), begin[whole], took_ns[whole])
    return [*kinds, kind_of_rest(rest, float(np.median(took_ns)))]


def _filled(board: Board, known: Stage, more: bool) -> bool:
    """Whether recording on could not make more of this stage; more: than it needs at the least."""
    if known.tape.problem is not None or known.is_block or known.effect == "effectful":
        return True
    wanted = max(WANTED_OUTPUTS, known.tape.wanted) if more else known.tape.needed
    return known.tape.full or known.tape.limited or _outputs(board, known) >= wanted


def _outputs(board: Board, known: Stage) -> int:
    """Recorded outputs of a stage, in the process that has fewest of those that call it."""
    workers = [length for length, _ in board.worker_tapes(known.index)]
    own = len(known.tape)
    return min([*workers, *([own] if own or not workers else [])])


def _why_not(
    board: Board, known: Stage, state_complete: bool, beside_main: bool, broken: str | None
) -> str | None:
    """Why a stage cannot be replaced by its tape, or None if it can."""
    if broken is not None:
        return broken
    if known.is_block:
        return "a with block can be timed and delayed only"
    if known.effect == "effectful":
        return "effectful: delayed, never replaced"
    if known.effect == "stateful" and not state_complete:
        return "its state is not declared, or cannot be put back"
    if known.effect == "stateful" and beside_main:
        return "its state cannot be put back while it runs beside the loop"
    if known.tape.problem is not None:
        return known.tape.problem
    if any(faults & PROBLEM for _, faults in board.worker_tapes(known.index)):
        return "a worker could not record it"
    outputs = _outputs(board, known)
    needed = known.tape.needed if known.tape.entries else MIN_OUTPUTS
    if outputs < needed:
        return f"{outputs} of {needed} outputs recorded; give a larger --budget"
    return None
