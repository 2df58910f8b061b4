"""A trace holds what happened: stages by lane, iterations, arms, handovers with their arrows."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hotloop.benchmark import tracer as tracing
from hotloop.benchmark.benchmark import BenchmarkSettings
from hotloop.benchmark.meters import COLUMNS
from hotloop.benchmark.perfetto import write_trace
from hotloop.benchmark.tracer import Tracer, traced
from hotloop.errors import SettingError
from hotloop.loop import drive
from hotloop.loop.arm import DELAY, NAMED, REAL, Arm
from hotloop.loop.conduct import Measurement, Request
from hotloop.loop.control import SharedControl
from hotloop.loop.event import GPU_LANE, Event
from hotloop.loop.handover import Handover
from hotloop.loop.loop import Loop
from hotloop.loop.stage import Stage
from hotloop.results.benchmark import measure_benchmark

MS = 1_000_000


class Drawn:
    """A trace file, read: slices as (name, start, end) by the name of their track, and counters."""

    def __init__(self, path: Path) -> None:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

        trace = Trace()
        trace.ParseFromString(path.read_bytes())
        names: dict[int, str] = {}
        self.slices: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
        self.counts: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self.begun: dict[int, str] = {}  # by the number of an arrow
        self.ended: dict[int, tuple[str, int]] = {}
        self.threads: dict[str, int] = {}
        open_: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for packet in trace.packet:
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                names[track.uuid] = track.thread.thread_name or track.name
                if track.HasField("thread"):
                    self.threads[track.thread.thread_name] = track.thread.pid
                continue
            event, at = packet.track_event, packet.timestamp
            name = names[event.track_uuid]
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                open_[event.track_uuid].append((event.name, at))
                self.begun |= dict.fromkeys(event.flow_ids, name)
                self.ended |= dict.fromkeys(event.terminating_flow_ids, (event.name, at))
            elif event.type == TrackEvent.TYPE_SLICE_END:
                begun, start = open_[event.track_uuid].pop()
                assert start <= at
                self.slices[name].append((begun, start, at))
            else:
                self.counts[name].append((at, event.double_counter_value))
        assert not any(open_.values())


def no_meters() -> np.ndarray:
    return np.zeros((0, len(COLUMNS)))


def test_a_measurement_goes_on_as_it_would_without_a_tracer(tmp_path: Path) -> None:
    control = SharedControl()
    act, learn = (Stage(name, control=control)(lambda: None) for name in ("act", "learn"))

    def body() -> int:
        act()
        learn()
        return 1

    def measurement() -> Measurement[str]:
        first = yield Request(Arm("first", rest=REAL), iterations=3, phase="a")
        delayed = Arm("slow", {"act": DELAY(0.001)})
        second = yield Request(delayed, iterations=2, phase="b")
        return f"{len(first.duration_ns)} and {len(second.duration_ns)}"

    tracer = Tracer(control)
    loop = Loop(body=body, unit="turns")
    assert drive(loop, traced(measurement(), control, tracer), control) == "3 and 2"
    assert control.handovers is None
    write_trace(tracer, no_meters(), tmp_path / "it.perfetto")
    drawn = Drawn(tmp_path / "it.perfetto")
    assert [name for name, _, _ in drawn.slices["arm"]] == ["first", "slow"]
    assert len(drawn.slices["iterations"]) == 5
    assert [name for name, _, _ in drawn.slices["the loop"]] == ["act", "learn"] * 5
    ends = [end - start for name, start, end in drawn.slices["the loop"] if name == "act"]
    assert min(ends[3:]) >= MS


def test_an_error_of_the_loop_is_its_own_and_nothing_stays(tmp_path: Path) -> None:
    control = SharedControl()

    def body() -> int:
        raise ValueError("planted")

    def measurement() -> Measurement[None]:
        yield Request(Arm("first", rest=REAL), iterations=3)

    tracer = Tracer(control)
    with pytest.raises(ValueError, match="planted"):
        drive(Loop(body=body, unit="turns"), traced(measurement(), control, tracer), control)
    assert control.handovers is None
    assert control.annotate is None
    write_trace(tracer, no_meters(), tmp_path / "empty.perfetto")
    assert Drawn(tmp_path / "empty.perfetto").slices == {}


def planted(tmp_path: Path, events: list[Event], handovers: list[Handover]) -> Drawn:
    control = SharedControl()
    for name in ("act", "update", "inner"):
        control.index(name)
    tracer = Tracer(control)
    tracer.events.extend(events)
    tracer.handovers.extend(handovers)
    tracer.iterations.append((10 * MS, 40 * MS))
    meters = np.full((3, len(COLUMNS)), np.nan)
    meters[:, 0] = [10 * MS, 20 * MS, 30 * MS]
    meters[:, COLUMNS.index("cpu_s")] = [1.0, 1.01, 1.015]
    meters[:, COLUMNS.index("memory_bytes")] = 512.0
    write_trace(tracer, meters, tmp_path / "it.perfetto")
    return Drawn(tmp_path / "it.perfetto")


def test_arrows_lead_from_what_waits_to_the_update_that_takes_it(tmp_path: Path) -> None:
    main = threading.get_ident()
    events = [
        Event(0, 10 * MS, 12 * MS, main),
        Event(1, 13 * MS, 20 * MS, main),
        Event(2, 13 * MS, 15 * MS, main),
        Event(1, 30 * MS, 39 * MS, main),
        Event(0, 11 * MS, 14 * MS, GPU_LANE),
        Event(0, 11 * MS, 14 * MS, main + 1),
    ]
    handovers = [
        Handover("fragment", "worker 0", 10 * MS, 12 * MS),
        Handover("fragment", "worker 1", 11 * MS, 25 * MS),
        Handover("fragment", "worker 1", 12 * MS, 25 * MS),
    ]
    drawn = planted(tmp_path, events, handovers)
    assert drawn.begun == {
        1: "fragments of worker 0",
        2: "fragments of worker 1",
        3: "fragments of worker 1",
    }
    assert drawn.ended == {
        1: ("update", 13 * MS),
        2: ("update", 30 * MS),
        3: ("update", 30 * MS),
    }
    assert drawn.counts["fragments that wait"] == [
        (10 * MS, 1.0),
        (11 * MS, 2.0),
        (12 * MS, 1.0),
        (12 * MS, 2.0),
        (25 * MS, 1.0),
        (25 * MS, 0.0),
    ]
    assert ("inner", 13 * MS, 15 * MS) in drawn.slices["the loop"]
    assert drawn.slices["card"] == [("act", 11 * MS, 14 * MS)]
    assert drawn.slices["elsewhere"] == [("act", 11 * MS, 14 * MS)]
    assert drawn.counts["cores in use"] == [
        (10 * MS, pytest.approx(1.0)),
        (20 * MS, pytest.approx(0.5)),
    ]
    assert drawn.counts["memory, bytes"][0] == (10 * MS, 512.0)
    assert "GPU duty" not in drawn.counts


def test_the_newest_calls_are_kept_and_the_others_counted() -> None:
    tracer = Tracer(SharedControl(), most_events=3)
    from hotloop.loop.conduct import Block

    block = Block(Request(Arm("a", rest=REAL)), events=[Event(0, k, k + 1, 5) for k in range(10)])
    tracer.take(block)
    assert [event.start_ns for event in tracer.events] == [7, 8, 9]
    assert tracer.left_out == 7


@pytest.mark.long
def test_a_benchmark_of_actors_draws_their_processes_and_their_fragments(tmp_path: Path) -> None:
    path = tmp_path / "it.perfetto"
    settings = BenchmarkSettings(seconds=2.0)
    ending = measure_benchmark("impala:CartPole-v1", settings, trace=path)
    assert ending.error is None
    drawn = Drawn(path)
    assert {"update"} <= {name for name, _, _ in drawn.slices["the loop"]}
    assert drawn.begun
    assert set(drawn.ended) <= set(drawn.begun)
    assert {name for name, _ in drawn.ended.values()} == {"update"}
    assert any(value > 0 for _, value in drawn.counts["fragments that wait"])
    processes = set(drawn.threads.values())
    assert len(processes) > 1  # the loop's and the workers'


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found: Any = __import__("importlib.util").util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "perfetto" else found(name)
    )
    with pytest.raises(SettingError, match="pip install"):
        measure_benchmark("it.py:make", BenchmarkSettings(), trace=tmp_path / "it")


def test_on_a_card_stages_are_nvtx_ranges_while_tracing_and_only_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranges: list[str] = []

    @contextmanager
    def entered(name: str) -> Iterator[None]:
        ranges.append(f"+{name}")
        yield
        ranges.append(f"-{name}")

    cuda = SimpleNamespace(is_available=lambda: True, nvtx=SimpleNamespace(range=entered))
    monkeypatch.setattr(tracing, "torch_if_loaded", lambda: SimpleNamespace(cuda=cuda))
    control = SharedControl()
    step = Stage("step", control=control)(lambda: 1)

    def measurement() -> Measurement[None]:
        yield Request(Arm("named", rest=NAMED), iterations=2)

    def twice() -> Measurement[None]:
        yield from traced(measurement(), control, Tracer(control))
        yield Request(Arm("named", rest=NAMED), iterations=1)  # after the trace

    drive(Loop(body=step, unit="turns"), twice(), control)
    assert ranges == ["+step", "-step"] * 2
    assert control.annotate is None
