"""A trace as a file for ui.perfetto.dev, by the package perfetto.

Tracks: one for each thread of each process with the calls of its stages, one for a card's stream,
one for the iterations, one for the arms; counters for what waits to be taken, and for the use of
the machine. An arrow goes from each thing that was handed over to the first call that works on it.
Format: perfetto.dev/docs/reference/synthetic-track-event.
"""

import bisect
import importlib.util
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.benchmark.meters import COLUMNS
from hotloop.benchmark.tracer import Tracer
from hotloop.errors import SettingError
from hotloop.loop.event import GPU_LANE, Event
from hotloop.loop.files import atomic_output
from hotloop.loop.handover import Handover

_SEQUENCE = 1
_NO_ENDS: Mapping[tuple[int, str], Sequence[int]] = {}
_COUNTERS = (("cpu_s", "cores in use"), ("memory_bytes", "memory, bytes"), ("gpu_duty", "GPU duty"))


def expect_perfetto() -> None:
    """Refuse to trace without the package. Raises: SettingError."""
    if importlib.util.find_spec("perfetto") is None:
        raise SettingError("--trace: needs perfetto: pip install 'hotloop[profile]'")


def write_trace(tracer: Tracer, meters: np.ndarray, path: Path) -> None:
    """Write what a tracer has kept. meters: (K, columns) samples of the machine.

    Raises: RunError if the file cannot be written.
    """
    trace = _Trace()
    if tracer.events:
        begin = min(event.start_ns for event in tracer.events)
        trace.loop(tracer, begin)
        flows = trace.handovers([h for h in tracer.handovers if h.came_ns >= begin])
        trace.stages(tracer, flows)
        trace.machine(meters[meters[:, 0] >= begin])
    with atomic_output(path, "the trace could not be written", "--trace") as scratch:
        Path(scratch).write_bytes(trace.builder.serialize())


class _Trace:
    """The packets of a trace, and the numbers of its tracks."""

    def __init__(self) -> None:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder

        self.builder: Any = TraceProtoBuilder()  # type: ignore[no-untyped-call]  # it has no types
        self._event: Any = TrackEvent
        self._descriptor: Any = TrackDescriptor
        self._tracks: dict[tuple[Any, ...], int] = {}

    # --- what is drawn -----------------------------------------------------------------------

    def loop(self, tracer: Tracer, begin: int) -> None:
        """The iterations and the arms, one after the other."""
        spans: list[Span] = [(start, end, "iteration", ()) for start, end in tracer.iterations]
        self._slices(self._track("iterations"), _since(begin, spans))
        arms: list[Span] = [(arm.start_ns, arm.end_ns, arm.arm, ()) for arm in tracer.arms]
        self._slices(self._track("arm"), _since(begin, arms))

    def handovers(self, handovers: Sequence[Handover]) -> list[tuple[int, int]]:
        """What waits to be taken, and how much; returns when each was taken, and its arrow."""
        flows: list[tuple[int, int]] = []
        changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
        by_track: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for number, each in enumerate(sorted(handovers, key=lambda h: h.came_ns), start=1):
            flows.append((each.taken_ns, number))
            changes[each.name] += [(each.came_ns, 1), (each.taken_ns, -1)]
            by_track[each.name, each.maker].append((each.came_ns, each.taken_ns, each.name, number))
        for (name, maker), waits in by_track.items():
            for row, packed in enumerate(_rows(waits)):
                track = self._track(f"{name}s of {maker}", row)
                self._slices(track, ((s, e, n, (flow,)) for s, e, n, flow in packed))
        for name, steps in changes.items():
            counter = self._counter(f"{name}s that wait")
            waiting = 0
            for at, step in sorted(steps):
                waiting += step
                self._count(counter, at, waiting)
        return flows

    def stages(self, tracer: Tracer, flows: Sequence[tuple[int, int]]) -> None:
        """The calls of the stages, lane by lane; the loop's own ends the arrows."""
        names = tracer.names
        by_lane: dict[int, list[Event]] = defaultdict(list)
        for event in tracer.events:
            by_lane[event.lane].append(event)
        for lane, events in by_lane.items():
            spans = [(e.start_ns, e.end_ns, names[e.stage], ()) for e in events]
            ends = _ended(flows, events, names) if lane == tracer.main_lane else {}
            self._slices(self._lane(tracer, lane), spans, ends)

    def machine(self, meters: np.ndarray) -> None:
        """Counters of the machine's use."""
        times = meters[:, 0]
        for column, name in _COUNTERS:
            values = meters[:, COLUMNS.index(column)]
            if column == "cpu_s" and len(values) > 1:
                values = np.append(np.diff(values) / np.diff(times * 1e-9), np.nan)
            if not np.isfinite(values).any():
                continue
            counter = self._counter(name)
            for at, value in zip(times, values, strict=True):
                if np.isfinite(value):
                    self._count(counter, int(at), float(value))

    # --- tracks ------------------------------------------------------------------------------

    def _lane(self, tracer: Tracer, lane: int) -> int:
        if lane == GPU_LANE:
            return self._track("card")
        named = tracer.lane(lane)
        key = ("lane", named.name) if lane < 0 else ("lane", lane)
        if key not in self._tracks:
            packet = self._packet_of_track(key)
            thread = packet.track_descriptor.thread
            thread.pid, thread.tid = named.process, named.thread
            is_loop = lane == tracer.main_lane
            thread.thread_name = "the loop" if is_loop else named.name
            packet.track_descriptor.process.pid = named.process
        return self._tracks[key]

    def _track(self, name: str, row: int = 0) -> int:
        key = ("track", name, row)
        if key not in self._tracks:
            self._packet_of_track(key).track_descriptor.name = name
        return self._tracks[key]

    def _counter(self, name: str) -> int:
        key = ("counter", name)
        if key not in self._tracks:
            packet = self._packet_of_track(key)
            packet.track_descriptor.name = name
            packet.track_descriptor.counter.SetInParent()
        return self._tracks[key]

    def _packet_of_track(self, key: tuple[Any, ...]) -> Any:
        packet = self.builder.add_packet()
        self._tracks[key] = packet.track_descriptor.uuid = len(self._tracks) + 1
        return packet

    # --- packets -----------------------------------------------------------------------------

    def _slices(
        self,
        track: int,
        spans: Iterable["Span"],
        ended: Mapping[tuple[int, str], Sequence[int]] = _NO_ENDS,
    ) -> None:
        """Calls on a track, with the arrows that begin in them, and those that end in them."""
        open_ends: list[int] = []
        # Of two that start together the longer one is the outer one.
        for start, end, name, flows in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start:
                self._end(track, open_ends.pop())
            end = min(end, open_ends[-1]) if open_ends else end
            packet = self._packet(track, start, self._event.TYPE_SLICE_BEGIN)
            packet.track_event.name = name
            packet.track_event.flow_ids.extend(flows)
            packet.track_event.terminating_flow_ids.extend(ended.get((start, name), ()))
            open_ends.append(end)
        while open_ends:
            self._end(track, open_ends.pop())

    def _end(self, track: int, at: int) -> None:
        self._packet(track, at, self._event.TYPE_SLICE_END)

    def _count(self, track: int, at: int, value: float) -> None:
        packet = self._packet(track, at, self._event.TYPE_COUNTER)
        packet.track_event.double_counter_value = value

    def _packet(self, track: int, at: int, kind: int) -> Any:
        packet = self.builder.add_packet()
        packet.timestamp = at
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet


Span = tuple[int, int, str, tuple[int, ...]]  # start, end, name, the arrows that begin in it


def _since(begin: int, spans: Iterable[Span]) -> Iterator[Span]:
    """What is not over at the begin, cut to it."""
    for start, end, name, flows in spans:
        if end > begin:
            yield max(start, begin), end, name, flows


def _ended(
    flows: Sequence[tuple[int, int]], events: Sequence[Event], names: Sequence[str]
) -> dict[tuple[int, str], list[int]]:
    """The arrows that end in each call, by its start and name: an update after a thing was taken.

    It is the first one; where no stage is called update, the first call.
    """
    calls = [(event.start_ns, names[event.stage]) for event in events]
    calls = sorted([call for call in calls if call[1] == "update"] or calls)
    ending: dict[tuple[int, str], list[int]] = defaultdict(list)
    for taken_ns, flow in flows:
        at = bisect.bisect_left(calls, (taken_ns, ""))
        if at < len(calls):
            ending[calls[at]].append(flow)
    return ending


def _rows(waits: Sequence[tuple[int, int, str, int]]) -> list[list[tuple[int, int, str, int]]]:
    """Put what waits side by side on as few rows as possible, without overlap in a row."""
    rows: list[list[tuple[int, int, str, int]]] = []
    for wait in waits:
        row = next((row for row in rows if row[-1][1] <= wait[0]), None)
        if row is None:
            rows.append([wait])
        else:
            row.append(wait)
    return rows
