"""What a stage does with the code that it wraps: nothing, until an arm says otherwise."""

import asyncio
import multiprocessing
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from hotloop.errors import StageError
from hotloop.loop import BURN, DELAY, FREE, PAD, REAL, WAIT, Arm, Mode, SharedControl, Stage, stage
from hotloop.loop.arm import OFF, RECORD
from hotloop.loop.control import process_control
from hotloop.loop.tape import MIN_OUTPUTS
from support.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def control(clock: FakeClock) -> SharedControl:
    return SharedControl(clock)


def put(control: SharedControl, mode: Mode, **stages: Mode) -> None:
    control.set(Arm("test", stages, rest=mode))


def test_an_idle_stage_passes_everything_through(control: SharedControl) -> None:
    @Stage("add", control=control)
    def add(a: int, *, b: int = 1) -> int:
        """Adds."""
        return a + b

    assert add(1, b=2) == 3
    assert add.__name__ == "add"
    assert add.__doc__ == "Adds."
    assert control.drain_events() == []


def test_a_stage_around_a_method_binds_like_one(control: SharedControl) -> None:
    class Env:
        def __init__(self) -> None:
            self.steps = 0

        @Stage("step", control=control)
        def step(self, by: int) -> int:
            self.steps += by
            return self.steps

    env = Env()
    put(control, REAL)
    assert [env.step(2), env.step(3)] == [2, 5]
    assert len(control.drain_events()) == 2


@pytest.mark.parametrize("mode", [OFF, REAL, RECORD, DELAY(0.001)])
def test_exceptions_pass_with_the_stage_named(control: SharedControl, mode: Mode) -> None:
    error = KeyError("lost")

    @Stage("find", control=control)
    def find() -> None:
        raise error

    put(control, mode)
    with pytest.raises(KeyError) as caught:
        find()
    assert caught.value is error
    assert caught.value.__notes__ == ["in stage 'find'"]


def test_times_are_exact_and_nested_stages_contain_each_other(
    control: SharedControl, clock: FakeClock
) -> None:
    inner = Stage("inner", control=control)(lambda: clock.burn_ns(300))

    @Stage("outer", control=control)
    def outer() -> None:
        clock.wait_ns(100)
        inner()

    put(control, REAL)
    outer()
    first, second = control.drain_events()
    assert (first.stage, first.end_ns - first.start_ns) == (control.index("outer"), 400)
    assert (second.stage, second.end_ns - second.start_ns) == (control.index("inner"), 300)
    assert first.start_ns <= second.start_ns
    assert second.end_ns <= first.end_ns


@pytest.mark.parametrize(
    ("mode", "expected_ns", "expected_cpu_ns"),
    [(FREE, 0, 0), (PAD, 800, 0), (WAIT(4), 200, 0), (BURN(2), 400, 400)],
)
def test_substitutes_replay_outputs_and_take_the_time_asked_for(
    control: SharedControl, clock: FakeClock, mode: Mode, expected_ns: int, expected_cpu_ns: int
) -> None:
    calls: list[int] = []

    def work(x: int) -> int:
        calls.append(x)
        clock.burn_ns(800)
        return x * x

    work_stage = Stage("work", effect="pure", control=control)(work)
    put(control, RECORD)
    recorded = [work_stage(x) for x in range(5)]
    put(control, REAL, work=mode)
    before, cpu_before = clock.time_ns, clock.cpu_ns
    replayed = [work_stage(100) for _ in range(7)]
    assert replayed == recorded + recorded[:2], "in order, and round again"
    assert len(calls) == 5, "a replaced stage does not run"
    assert clock.time_ns - before == 7 * expected_ns
    assert clock.cpu_ns - cpu_before == 7 * expected_cpu_ns


def test_delay_runs_the_stage_and_reports_what_really_passed(
    control: SharedControl, clock: FakeClock
) -> None:
    calls: list[int] = []
    made = Stage("work", control=control)
    work = made(calls.append)
    put(control, REAL, work=DELAY(2e-6))
    before = clock.time_ns
    work(1)
    work(2)
    assert calls == [1, 2]
    assert clock.time_ns - before == 4000
    assert made.delayed_ns == 4000


def test_an_iterable_is_timed_and_replayed_item_by_item(
    control: SharedControl, clock: FakeClock
) -> None:
    def source() -> Iterator[int]:
        for k in range(8):
            clock.wait_ns(50)
            yield k

    made = Stage("fetch", effect="pure", control=control)
    put(control, RECORD)
    assert list(made(source)()) == list(range(8))
    assert made.tape.durations_ns().tolist() == [50] * 8
    control.drain_events()
    put(control, FREE)
    before = clock.time_ns
    replayed = iter(made([7, 7, 7]))
    assert [next(replayed) for _ in range(3)] == [0, 1, 2]
    assert clock.time_ns == before


def test_an_iterable_ends_as_it_would_without_a_stage(control: SharedControl) -> None:
    items = Stage("fetch", control=control)([1, 2])
    assert len(items) == 2  # type: ignore[arg-type]
    for mode in (OFF, REAL):
        put(control, mode)
        assert list(items) == [1, 2]


def test_coroutines_and_async_iterables(control: SharedControl, clock: FakeClock) -> None:
    async def get(x: int) -> int:
        await clock.wait_async_ns(70)
        return -x

    class Source:
        def __aiter__(self) -> "Source":
            self.k = 0
            return self

        async def __anext__(self) -> int:
            if self.k == 3:
                raise StopAsyncIteration
            self.k += 1
            return self.k

    get_stage = Stage("get", effect="pure", control=control)(get)
    source = Stage("source", effect="pure", control=control)(Source())

    async def everything() -> tuple[list[int], list[int]]:
        return [await get_stage(x) for x in (1, 2)], [item async for item in source]

    put(control, OFF)
    assert asyncio.run(everything()) == ([-1, -2], [1, 2, 3])
    put(control, RECORD)
    assert asyncio.run(everything()) == ([-1, -2], [1, 2, 3])
    put(control, PAD, source=REAL)
    before = clock.time_ns
    assert asyncio.run(everything())[0] == [-1, -2]
    assert clock.time_ns - before == 140


def test_a_block_is_timed_and_delayed_and_never_replaced(
    control: SharedControl, clock: FakeClock
) -> None:
    made = Stage("train", effect="pure", control=control)
    put(control, DELAY(1e-6))
    ran = 0
    for mode in (REAL, DELAY(1e-6), FREE):
        put(control, mode)
        with made:
            ran += 1
            clock.wait_ns(10)
    assert ran == 3
    durations = [event.end_ns - event.start_ns for event in control.drain_events()]
    assert durations == [10, 1010, 10]
    assert made.is_block


def test_replayed_calls_write_what_the_recorded_ones_wrote(control: SharedControl) -> None:
    buffer = np.zeros(3)

    def fill(value: float) -> None:
        buffer[:] = value

    fill_stage = Stage("fill", effect="stateful", writes=[buffer], control=control)(fill)
    put(control, RECORD)
    fill_stage(1.0)
    fill_stage(2.0)
    buffer[:] = 9
    put(control, FREE)
    fill_stage(5.0)
    assert buffer.tolist() == [1, 1, 1]
    fill_stage(5.0)
    assert buffer.tolist() == [2, 2, 2]


def test_recorded_outputs_are_copies_and_downstream_writes_are_noticed(
    control: SharedControl,
) -> None:
    shared = np.zeros(4)

    def step() -> np.ndarray:
        shared[:] += 1  # the same array every time, as with copy=False
        return shared

    made = Stage("step", effect="pure", control=control)
    step_stage = made(step)
    put(control, RECORD)
    for _ in range(3):
        step_stage()
    put(control, FREE)
    assert [float(step_stage()[0]) for _ in range(3)] == [1, 2, 3]
    made.tape.rewind()
    assert not made.tape.mutated
    step_stage()[:] = 77
    made.tape.rewind()
    assert made.tape.mutated
    assert float(step_stage()[0]) == 1, "the next block replays a fresh copy"


def test_what_cannot_be_replayed_says_why(control: SharedControl) -> None:
    torch = pytest.importorskip("torch")
    weight = torch.ones(2, requires_grad=True)
    cases = {
        "graph": lambda: weight * 2,
        "stream": lambda: (k for k in range(3)),
        "lock": lambda: [threading.Lock()],
    }
    put(control, RECORD)
    for name, function in cases.items():
        made = Stage(name, effect="pure", control=control)
        made(function)()
        assert made.tape.problem is not None
    assert "autograd" in str(control.stages["graph"].tape.problem)
    assert "generator" in str(control.stages["stream"].tape.problem)


def test_two_functions_under_one_name_are_refused_as_a_replay(control: SharedControl) -> None:
    put(control, RECORD)
    Stage("work", effect="pure", control=control)(lambda: 1)()
    second = Stage("work", effect="pure", control=control)
    second(lambda: "other")()
    assert "two functions" in str(second.tape.problem)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "1 to 64 bytes"),
        ({"name": "n" * 65}, "1 to 64 bytes"),
        ({"name": "x", "kind": "tpu"}, "'cpu', 'gpu', 'io', 'network'"),
        ({"name": "x", "effect": "clean"}, "'pure', 'stateful', 'effectful'"),
    ],
)
def test_bad_declarations_are_refused_at_once(options: dict[str, str], message: str) -> None:
    with pytest.raises(StageError, match=message):
        stage(**options)  # type: ignore[call-overload]


def test_what_cannot_be_a_stage_is_refused() -> None:
    with pytest.raises(StageError, match="expected a function or an iterable, got int"):
        stage("number", 3)  # type: ignore[call-overload]


def test_threads_have_lanes_of_their_own(control: SharedControl, clock: FakeClock) -> None:
    work = Stage("work", control=control)(lambda: None)
    put(control, REAL)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    lanes = {event.lane for event in control.drain_events()}
    assert threading.get_ident() in lanes
    assert len(lanes) >= 2  # an ended thread's number may be used again


def _forked_worker(control: SharedControl, replies: object, turn: object) -> None:
    calls = 0

    def decode() -> int:
        nonlocal calls
        calls += 1
        return calls

    decode_stage = Stage("decode", effect="pure", control=control)(decode)
    while (count := turn.get()) is not None:  # type: ignore[attr-defined]
        replies.put([decode_stage() for _ in range(count)])  # type: ignore[attr-defined]


def test_a_forked_worker_obeys_the_arm_and_keeps_its_own_tape() -> None:
    control = SharedControl()
    context = multiprocessing.get_context("fork")
    replies, turn = context.SimpleQueue(), context.SimpleQueue()
    index = control.index("decode")
    worker = context.Process(target=_forked_worker, args=(control, replies, turn))
    worker.start()
    try:
        put(control, RECORD)
        turn.put(MIN_OUTPUTS)
        assert replies.get() == list(range(1, MIN_OUTPUTS + 1))
        assert control.workers.tapes(index) == [(MIN_OUTPUTS, 0)]
        events = control.drain_events()
        assert [event.stage for event in events] == [index] * MIN_OUTPUTS
        assert events[0].lane != threading.get_ident(), "a fork has its parent's thread numbers"
        put(control, FREE)
        turn.put(3)
        assert replies.get() == [1, 2, 3]
        put(control, REAL)
        turn.put(1)
        assert replies.get() == [MIN_OUTPUTS + 1], "it had not run in between"
        put(control, DELAY(0.002))
        turn.put(1)
        replies.get()
        assert control.workers.delay_ns(index) >= 2_000_000
        assert control.workers.pids() == [worker.pid]
    finally:
        turn.put(None)
        worker.join()


def _calls_in_turn(control: SharedControl, calls: int) -> None:
    parts = [Stage(name, control=control)(lambda: None) for name in ("one", "two", "three")]
    for _ in range(calls):
        for part in parts:
            part()


def test_no_event_of_a_worker_with_several_stages_is_lost() -> None:
    control = SharedControl()
    put(control, REAL)
    names = ("one", "two", "three")
    numbers = [Stage(name, control=control).index for name in names]
    worker = multiprocessing.get_context("fork").Process(target=_calls_in_turn, args=(control, 500))
    worker.start()
    worker.join(timeout=30)
    assert worker.exitcode == 0
    events = control.drain_events()
    assert [event.stage for event in events] == numbers * 500
    assert control.workers.dropped_events == 0


def test_a_spawned_process_attaches_through_the_environment() -> None:
    control = process_control()
    index = control.index("spawned")
    put(control, REAL)
    code = "from hotloop import stage; work = stage('spawned', lambda: None); work(); work()"
    subprocess.run([sys.executable, "-c", code], check=True)
    put(control, OFF)
    assert [event.stage for event in control.drain_events()].count(index) == 2


def test_a_stage_can_be_pickled_for_a_spawned_worker() -> None:
    again = pickle.loads(pickle.dumps(stage("pickled", effect="pure", kind="io")))
    assert (again.name, again.kind, again.effect) == ("pickled", "io", "pure")


def test_more_names_than_fit_are_refused(control: SharedControl) -> None:
    for number in range(256):
        control.index(f"stage {number}")
    with pytest.raises(StageError, match="at most 256 names"):
        control.index("one more")


class FakeGpu:
    """A stream that does its work later: marks are positions in a list of durations."""

    def __init__(self) -> None:
        self.queued_ns = 0
        self.synchronised = 0

    def mark(self) -> int:
        return self.queued_ns

    def interval_ns(self, start: object, end: object) -> tuple[int, int]:
        assert isinstance(start, int)
        assert isinstance(end, int)
        return start, end

    def occupy_ns(self, duration_ns: float) -> None:
        self.queued_ns += round(duration_ns)

    def synchronize(self) -> None:
        self.synchronised += 1


def test_a_gpu_stage_is_timed_on_the_stream_without_synchronising(control: SharedControl) -> None:
    gpu = FakeGpu()
    control.gpu = gpu
    made = Stage("update", kind="gpu", effect="pure", control=control)
    update = made(lambda: gpu.occupy_ns(500))
    put(control, REAL)
    update()
    update()
    assert gpu.synchronised == 0
    events = control.drain_events()
    assert gpu.synchronised == 1, "once, when the events are read"
    assert [(e.start_ns, e.end_ns, e.lane) for e in events] == [(0, 500, -1), (500, 1000, -1)]


def test_a_padded_gpu_stage_keeps_the_stream_busy_and_not_the_host(
    control: SharedControl, clock: FakeClock
) -> None:
    gpu = FakeGpu()
    control.gpu = gpu
    update = Stage("update", kind="gpu", effect="pure", control=control)(lambda: clock.wait_ns(600))
    put(control, RECORD)
    update()
    put(control, PAD)
    before = clock.time_ns
    update()
    assert clock.time_ns == before
    assert gpu.queued_ns == 600


@pytest.mark.gpu
def test_cuda_events_agree_with_the_host_clock() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    control = SharedControl()
    x = torch.randn(2048, 2048, device="cuda")
    multiply = Stage("multiply", kind="gpu", effect="pure", control=control)(lambda: x @ x)
    multiply()
    put(control, REAL)
    torch.cuda.synchronize()
    start = control.clock.now_ns()
    for _ in range(20):
        multiply()
    torch.cuda.synchronize()
    wall = control.clock.now_ns() - start
    events = control.drain_events()
    assert len(events) == 20
    assert 0.3 * wall < sum(e.end_ns - e.start_ns for e in events) <= 1.05 * wall


def test_a_gpu_stage_without_a_gpu_says_what_to_do(control: SharedControl) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    work = Stage("update", kind="gpu", control=control)(lambda: None)
    work()
    put(control, REAL)
    with pytest.raises(StageError, match="no CUDA device"):
        work()
