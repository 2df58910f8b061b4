"""Waiting for a loader, pickling between processes, equal inputs, and float64."""

import concurrent.futures
import contextlib
import itertools
import multiprocessing
import os
import pickle
import queue
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from benchmarks.spinning import spinning

from hotloop.optimize.detectors.equal_inputs import NotComparableError, digest
from support.loops import busy
from support.planted import figure, line_of, share, the_advice, watch

torch = pytest.importorskip("torch")


class Slow(torch.utils.data.Dataset):  # type: ignore[misc,name-defined]
    """Eight items that each take a millisecond to load."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        busy(0.001)
        return torch.full((4,), float(index) + time.perf_counter())


def test_a_loader_that_works_in_the_loop_is_found() -> None:
    loader = torch.utils.data.DataLoader(Slow(), batch_size=4)

    def body() -> None:
        for _ in loader:  # fault
            busy(0.002)

    advice = the_advice(body, "loader")
    assert (advice.file, advice.line) == (__file__, line_of(body))
    assert 0.4 < share(advice) < 0.95  # 8 of 12 ms
    assert "itself" in advice.sentence
    assert figure(advice, "waited an iteration") >= 0.008


def test_workers_that_are_waited_for_are_found() -> None:
    loader = torch.utils.data.DataLoader(
        Slow(), batch_size=4, num_workers=1, multiprocessing_context="fork"
    )

    def body() -> None:
        for _ in loader:  # fault
            busy(0.0005)

    advice = the_advice(body, "loader")
    assert advice.line == line_of(body)
    assert "workers" in advice.sentence


@pytest.fixture
def filled() -> Iterator[Callable[[float], Any]]:
    """A queue that a thread fills, one item after a pause."""
    items: queue.Queue[int] = queue.Queue(4)
    stop = threading.Event()

    def start(pause_s: float) -> Any:
        def fill() -> None:
            while not stop.is_set():
                time.sleep(pause_s)
                try:
                    items.put(1, timeout=0.05)
                except queue.Full:
                    continue

        threading.Thread(target=fill, name="filler", daemon=True).start()
        return items

    yield start
    stop.set()


def test_a_queue_that_is_waited_for_is_found(filled: Callable[[float], Any]) -> None:
    items = filled(0.02)  # far more than the loop computes, also where others have its core

    def body() -> None:
        items.get()  # fault
        busy(0.001)

    advice = the_advice(body, "loader")
    assert advice.line == line_of(body)
    assert share(advice) > 0.4


def test_loaders_that_keep_up_are_silent() -> None:
    items: queue.Queue[int] = queue.Queue()
    for item in range(100_000):
        items.put(item)
    # Its items are batches; both the loader and the work after it are slower on a busy machine.
    quick = torch.utils.data.DataLoader(torch.zeros(1, 64, 4), batch_size=None)
    x = torch.randn(400, 400)

    def body() -> None:
        items.get()
        for _ in quick:
            for _ in range(20):
                x.matmul(x)

    # For so long that one turn of another program, while the loader is at it, is no tenth of it.
    assert watch(body, "loader", seconds=4.0) == []


def square(part: np.ndarray) -> np.ndarray:
    return part * part


def total(part: np.ndarray) -> float:
    return float(part.sum())


def first(count: int) -> int:
    return count + 1


@pytest.fixture
def pool() -> Iterator[Any]:
    with multiprocessing.get_context("fork").Pool(1) as made:
        yield made
        made.terminate()
        made.join()


def test_arrays_that_are_pickled_for_a_pool_are_found(pool: Any) -> None:
    x = np.ones((512, 512))

    def body() -> None:
        pool.map(square, [x, x])  # fault

    advice = the_advice(body, "pickling")
    assert (advice.file, advice.line) == (__file__, line_of(body))
    # Two arrays of 2 MiB there, and two back.
    assert figure(advice, "bytes of arrays an iteration") == pytest.approx(4 * x.nbytes, rel=0.1)


@pytest.fixture
def executor() -> Iterator[Any]:
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as made:
        made.submit(first, 1).result()
        yield made


def test_arrays_that_are_pickled_for_an_executor_are_found(executor: Any) -> None:
    x = np.ones((512, 512))

    def body() -> None:
        executor.submit(square, x).result()  # fault

    advice = the_advice(body, "pickling")
    assert advice.line == line_of(body)
    # 2 MiB there, and as much back.
    assert figure(advice, "bytes of arrays an iteration") == pytest.approx(2 * x.nbytes, rel=0.1)


def test_arrays_put_into_a_queue_are_found() -> None:
    context = multiprocessing.get_context("fork")
    items, done = context.Queue(), context.SimpleQueue()

    def work() -> None:
        while items.get() is not None:
            done.put(1)

    worker = context.Process(target=work, daemon=True)
    worker.start()
    x = np.ones((256, 512))

    def body() -> None:
        items.put(x)  # fault
        done.get()

    advice = the_advice(body, "pickling")
    items.put(None)
    worker.join()
    items.close()
    items.join_thread()
    assert advice.line == line_of(body)
    assert figure(advice, "bytes of arrays an iteration") == pytest.approx(x.nbytes, rel=0.1)


PIECE = 1 << 16


class Slowly:
    """The other end of a pipe, which lets 64 KiB pass in 20 ms, in a thread.

    Beside that, what pickling takes is less than is worth a word.
    """

    def __init__(self, step: Callable[[], Any]) -> None:
        self._step, self._ends = step, False
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self._ends:
            self._step()
            time.sleep(0.02)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_raised: object) -> None:
        self._ends = True
        self._thread.join()


def expect_found_on_its_way(body: Callable[[], Any], x: np.ndarray) -> None:
    advice = the_advice(body, "pickling")
    assert advice.line == line_of(body)
    assert share(advice) > 0.7
    assert figure(advice, "bytes of arrays an iteration") == pytest.approx(x.nbytes, rel=0.1)
    assert figure(advice, "messages an iteration") == 1


def test_arrays_that_are_long_on_their_way_out_are_found() -> None:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    os.set_blocking(receiver.fileno(), False)
    x = np.ones((256, 256))

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(receiver.fileno(), PIECE)

    def body() -> None:
        sender.send(x)  # fault

    with receiver, sender, Slowly(read):
        expect_found_on_its_way(body, x)


def test_arrays_that_are_long_on_their_way_in_are_found() -> None:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    x = np.ones((256, 256))
    message = pickle.dumps(x)
    framed = struct.pack("!i", len(message)) + message  # as multiprocessing sends it
    pieces = itertools.cycle(framed[at : at + PIECE] for at in range(0, len(framed), PIECE))
    left = [b""]

    def write() -> None:
        with contextlib.suppress(BlockingIOError):
            left[0] = left[0] or next(pieces)
            left[0] = left[0][os.write(sender.fileno(), left[0]) :]

    def body() -> None:
        receiver.recv()  # fault

    os.set_blocking(sender.fileno(), False)
    with receiver, sender, Slowly(write):
        expect_found_on_its_way(body, x)


def test_small_messages_are_silent(pool: Any) -> None:
    def body() -> None:
        pool.map(first, range(8))

    assert watch(body, "pickling") == []


TABLE = np.random.default_rng(1).random((64, 64))


def costly(table: np.ndarray, power: int) -> np.ndarray:
    for _ in range(4):
        table = np.linalg.matrix_power(table / np.linalg.norm(table), power)
    return table


def test_equal_inputs_are_found_with_the_hit_rate_of_a_cache() -> None:
    count = [0]

    def body() -> None:
        count[0] += 1
        costly(TABLE, 3)  # fault
        costly(TABLE + count[0], 3)

    advice = the_advice(body, "equal inputs", seconds=1.5)
    assert (advice.file, advice.line) == (__file__, line_of(body))
    assert "costly" in advice.sentence
    assert 0.25 < figure(advice, "hit rate of a cache") <= 0.5  # of every two calls one is equal
    assert 0.1 < share(advice) < 0.6


def test_a_frozen_module_of_torch_is_found() -> None:
    frozen = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Linear(512, 512))
    x = torch.randn(128, 64)

    def body() -> None:
        with torch.no_grad():
            frozen(x)  # fault

    advice = the_advice(body, "equal inputs", seconds=2.0)
    assert advice.line == line_of(body)
    assert "Sequential" in advice.sentence
    assert figure(advice, "different inputs") == 1


def test_what_learns_draws_or_only_acts_is_silent() -> None:
    net = torch.nn.Linear(64, 256)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(128, 64)
    rng = np.random.default_rng(0)

    def draw(size: int) -> np.ndarray:
        return rng.random((size, size))

    def act(size: int) -> None:
        np.linalg.norm(draw(size))

    def body() -> None:
        loss = net(x).pow(2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        act(100)

    assert watch(body, "equal inputs") == []


def test_what_a_library_calls_within_is_not_what_its_caller_may_cache() -> None:
    rng = np.random.default_rng(0)

    def body() -> None:
        for _ in range(100):
            rng.integers(0, 40, 16)  # calls numpy.prod of the shape, which is always the same

    assert watch(body, "equal inputs") == []


def brief(last: int) -> int:
    return sum(range(last))  # 4 us: a cache would take a good part of it


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a thread cannot choose its core")
def test_short_calls_are_not_longer_where_others_want_the_core() -> None:
    def body() -> None:
        for _ in range(1000):
            brief(400)

    with one_core(), spinning(8):
        assert watch(body, "equal inputs") == []


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """This thread, and all that it starts, share one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def test_a_function_that_waits_for_the_same_answer_is_found() -> None:
    def body() -> None:
        asked(3)  # fault

    advice = the_advice(body, "equal inputs")
    assert advice.line == line_of(body)
    assert share(advice) > 0.5


def asked(number: int) -> int:
    time.sleep(0.002)
    return number


def test_digests_are_equal_for_equal_values_alone() -> None:
    x = np.arange(6.0)
    assert digest([x, 1, "a"]) == digest([x.copy(), 1, "a"])
    assert digest([x, 1]) != digest([x, 2])
    assert digest(x) != digest(x.reshape(2, 3))
    assert digest(x) != digest(x.astype(np.float32))
    assert digest({"a": torch.ones(2)}) == digest({"a": torch.ones(2)})
    assert digest(1) != digest(True)
    with pytest.raises(NotComparableError):
        digest(torch.ones(2, device="meta"))
    with pytest.raises(NotComparableError):
        digest(np.array([object()]))


X32 = np.random.default_rng(2).random((256, 64), dtype=np.float32)
X64 = X32.astype(np.float64)
SCALE = np.float64(0.5)
WEIGHTS = np.random.default_rng(3).random((64, 64))


def by_number() -> None:
    y = X32 * SCALE  # fault
    np.tanh(y).sum()


def by_operand() -> None:
    hidden = np.tanh(X32 @ WEIGHTS)  # fault
    hidden.sum()


def by_copy() -> None:
    batch = X64.astype(np.float32)  # fault
    np.tanh(batch).sum()


def by_noise() -> None:
    noise = np.random.default_rng(0).normal(size=X32.shape)
    y = X32 + noise  # fault
    np.tanh(y).sum()


class Normaliser:
    def __init__(self) -> None:
        self.mean = np.zeros(64)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x - self.mean  # fault


NORMALISE = Normaliser()


def by_attribute() -> None:
    np.tanh(NORMALISE(X32)).sum()


@pytest.mark.parametrize(
    ("body", "where", "held"),
    [
        (by_number, by_number, X64.nbytes),
        (by_operand, by_operand, X64.nbytes),
        (by_copy, by_copy, X64.nbytes),
        (by_noise, by_noise, X64.nbytes),
        (by_attribute, Normaliser.__call__, X64.nbytes),
    ],
)
def test_float64_in_numpy_is_found(
    body: Callable[[], None], where: Callable[..., Any], held: int
) -> None:
    advice = the_advice(body, "float64")
    assert (advice.file, advice.line) == (__file__, line_of(where))
    assert figure(advice, "times an iteration") == pytest.approx(1, rel=0.2)
    assert figure(advice, "float64 an iteration") == pytest.approx(held, rel=0.2)


def test_float64_in_torch_is_found() -> None:
    x, wide = torch.randn(256, 64), torch.randn(256, 64, dtype=torch.float64)

    def promotes() -> None:
        (x + wide).tanh().sum()  # fault

    def narrows() -> None:
        wide.float().tanh().sum()  # fault

    for body in (promotes, narrows):
        advice = the_advice(body, "float64")
        assert advice.line == line_of(body)
        assert figure(advice, "float64 an iteration") == wide.nbytes


def asked_for() -> None:
    wide = X32.astype(np.float64)
    np.tanh(wide).sum()


def stays_single() -> None:
    y = X32 * np.float32(0.5) + X32.mean() - 1.0
    rewards = np.zeros(64) + X32[0].sum()
    np.tanh(y).sum()
    rewards.sum()


def all_double() -> None:
    y = X64 * SCALE
    np.tanh(y).sum()


def test_only_the_line_where_float64_begins_is_named() -> None:
    def body() -> None:
        y = X32 * SCALE  # fault
        z = y + X32
        np.tanh(z).sum()

    advice = the_advice(body, "float64")
    assert advice.line == line_of(body)
    # The lines after it are wide because of it, so that it can explain their time as well.
    assert share(advice) > 0.5


@pytest.mark.parametrize("body", [asked_for, stays_single, all_double])
def test_float32_and_float64_on_purpose_are_silent(body: Callable[[], None]) -> None:
    assert watch(body, "float64") == []
