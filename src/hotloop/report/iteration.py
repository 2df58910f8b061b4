"""The figure "One iteration": which part of the logged calls is drawn, and in which rows.

A run keeps the calls of its last iterations. Here one typical iteration is chosen, its calls are
cut to it, and threads, tasks and GPU streams become the lanes of `hotloop.report.charts.timeline`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hotloop.benchmark.timeline import KEPT_EVENTS, by_lane, from_array
from hotloop.loop.event import GPU_LANE, Event
from hotloop.loop.run import Run
from hotloop.report.charts.svg import COLOURS, NARROW, WIDE
from hotloop.report.charts.timeline import Call, Lane, timeline
from hotloop.report.section import ChartView

MOST_LANES = 12


@dataclass(frozen=True)
class Window:
    """The time to draw, in ns. main: the lanes known to be the loop's own."""

    start: int
    end: int
    note: str
    main: frozenset[int] = frozenset()


def iteration_charts(
    key: str,
    run: Run,
    colours: Mapping[str, int],
    choose: Callable[[Run, Sequence[Event]], Window | None],
) -> list[ChartView]:
    """The timeline of one iteration; empty where no call of a stage was logged.

    choose: selects the iteration; there is one such function for each kind of run.
    """
    names = {int(stage["index"]): str(stage["name"]) for stage in run.facts.get("stages") or []}
    array = run.arrays.get("events", np.zeros((0, 4), np.int64))
    events = [event for event in from_array(array) if event.stage in names]
    if not events:
        return []
    window = choose(run, events)
    if window is None:
        return []
    lanes, left_out = _lanes(events, names, window)
    notes = [window.note]
    if left_out:
        notes.append(f"{left_out} more lanes are not drawn.")
    seen = [name for name in colours if any(s.stage == name for lane in lanes for s in lane.calls)]
    return [
        ChartView(
            "One iteration",
            "Who did what when: a row for each thread, task or GPU stream; stages inside others "
            "are thinner. Calls too short to draw are joined, as high as the part of the time they "
            "take.",
            [
                timeline(
                    lanes,
                    window.end - window.start,
                    colours,
                    width=width,
                    name=f"{key}-timeline-{width}",
                )
                for width in (WIDE, NARROW)
            ],
            legend=[(name, colours[name] % COLOURS) for name in seen],
            notes=notes,
        )
    ]


def benchmark_window(run: Run, events: Sequence[Event]) -> Window | None:
    """The iteration of median length among those of the last block that were logged whole."""
    blocks = run.arrays["block_of"]
    if not len(blocks):
        return None
    last = blocks == blocks[-1]
    starts, lengths = run.arrays["start_ns"][last], run.arrays["duration_ns"][last]
    ends = starts + lengths
    whole = np.ones(len(starts), bool)
    if len(run.arrays["events"]) >= KEPT_EVENTS:
        whole = ends <= max(event.end_ns for event in events)
    if not whole.any():
        end = max(event.end_ns for event in events)
        return Window(
            int(starts[0]), end, f"The first {len(events):,} calls of an iteration, not all of it."
        )
    candidates = np.flatnonzero(whole)
    middle = candidates[np.argsort(lengths[candidates], kind="stable")[(len(candidates) - 1) // 2]]
    return Window(
        int(starts[middle]),
        int(ends[middle]),
        f"The iteration of median length among {len(candidates)} of the steady state.",
    )


def simplify_window(run: Run, events: Sequence[Event]) -> Window | None:
    """One iteration from the time in which the stages were recorded.

    The begin of an iteration was not logged; it is found by a stage that is called once in each.
    """
    stages = run.facts["stages"]
    own = [stage for stage in stages if not stage["beside_main"]]
    main = frozenset(int(lane) for stage in own for lane in stage["lanes"] if lane >= 0)
    note = "An iteration while the stages were recorded, a little slower than the steady state."
    starts = sorted(event.start_ns for event in events if event.lane in main) or sorted(
        event.start_ns for event in events
    )
    once = [
        sorted(event.start_ns for event in events if event.stage == stage["index"])
        for stage in own
        if 0.95 <= stage["calls_per_iteration"] <= 1.05
    ]
    calls = min((each for each in once if len(each) > 2), default=None)
    if calls is not None:
        # The first event was the first of its iteration; others begin as long before the call.
        turns = np.array(calls) - (calls[0] - starts[0])
        snapped = np.array(starts)[np.abs(np.subtract.outer(turns, starts)).argmin(axis=1)]
        lengths = np.diff(snapped)
        middle = int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])
        if lengths[middle] > 0:
            return Window(int(snapped[middle]), int(snapped[middle + 1]), note, main)
    warm_up = run.facts.get("warm_up") or {}
    length = round(warm_up.get("ns_per_iteration") or 0)
    if length <= 0:
        return None
    begin = starts[len(starts) // 2] if len(starts) > 2 else starts[0]
    return Window(begin, begin + length, f"About one iteration’s time. {note}", main)


def _lanes(
    events: Sequence[Event], names: Mapping[int, str], window: Window
) -> tuple[list[Lane], int]:
    """The rows to draw, the loop's own first, and how many were left out."""
    rows: dict[int, list[Call]] = {}
    for lane, calls in by_lane(events).items():
        rows[lane] = _cut_calls(calls, names, window)
    threads = sorted(
        (lane for lane in rows if lane > GPU_LANE),
        key=lambda lane: (lane not in window.main, min(e.start_ns for e in by_lane(events)[lane])),
    )
    found = []
    beside = 0
    for lane in threads:
        if lane in window.main or len(threads) == 1:
            label = "the loop’s thread"
        else:
            beside += 1
            label = f"thread {beside}"
        found.append(Lane(label, rows[lane]))
    tasks = _packed([rows[lane] for lane in rows if lane < GPU_LANE and rows[lane]])
    for k, row in enumerate(tasks):
        found.append(Lane("asyncio tasks" if k == 0 else "asyncio tasks, side by side", row))
    kept, left_out = found[:MOST_LANES], max(0, len(found) - MOST_LANES)
    if rows.get(GPU_LANE):
        kept.append(Lane("GPU", rows[GPU_LANE]))
    return kept, left_out


def _cut_calls(calls: Sequence[Event], names: Mapping[int, str], window: Window) -> list[Call]:
    """The calls of one lane inside the window, cut to it, each with its depth of nesting."""
    found = []
    open_ends: list[int] = []
    # Of two that start together the longer one is the outer one.
    for event in sorted(calls, key=lambda event: (event.start_ns, -event.end_ns)):
        while open_ends and open_ends[-1] < event.end_ns:
            open_ends.pop()
        depth = len(open_ends)
        open_ends.append(event.end_ns)
        start, end = max(event.start_ns, window.start), min(event.end_ns, window.end)
        if start < end:
            found.append(Call(names[event.stage], start - window.start, end - window.start, depth))
    return found


def _packed(tasks: Sequence[list[Call]]) -> list[list[Call]]:
    """Put short-lived tasks on as few rows as possible, without overlap in a row."""
    rows: list[list[Call]] = []
    for calls in sorted(tasks, key=lambda calls: min(call.start for call in calls)):
        begin = min(call.start for call in calls)
        row = next((row for row in rows if max(call.end for call in row) <= begin), None)
        if row is None:
            rows.append(list(calls))
        else:
            row.extend(calls)
    return rows
