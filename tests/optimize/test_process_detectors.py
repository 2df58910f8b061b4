"""More threads than cores, and compilation while the loop runs."""

from collections.abc import Iterator

import numba
import numpy as np
import pytest

from hotloop.loop.host import whole_cores
from support.loops import busy
from support.planted import figure, line_of, share, the_advice, watch

torch = pytest.importorskip("torch")


def _restored(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    for turn, now in enumerate((count, before)):
        torch.set_num_threads(now)  # fault
        if turn == 0:
            yield


@pytest.fixture
def too_many() -> Iterator[int]:
    count = 2 * whole_cores() + 2
    for _ in _restored(count):
        yield count


@pytest.fixture
def _one() -> Iterator[None]:
    yield from _restored(1)


def test_more_threads_than_cores_are_found_where_their_number_is_set(too_many: int) -> None:
    x = torch.randn(4_000_000)

    def body() -> None:
        torch.exp(x)

    advice = the_advice(body, "threads", seconds=2.0)
    assert advice.file == __file__
    assert advice.line == line_of(_restored)
    assert figure(advice, "computing threads") == too_many
    assert figure(advice, "processes that compute") == 1
    assert 0 < share(advice) <= 1


@pytest.mark.usefixtures("_one")
def test_one_thread_is_silent() -> None:
    x = torch.randn(1_000_000)

    def body() -> None:
        torch.exp(x)

    assert watch(body, "threads", seconds=1.0) == []


def test_compilation_by_numba_is_found() -> None:
    def body() -> None:
        add = numba.njit(lambda x: x + 1)
        add(1)  # fault
        busy(0.01)

    advice = the_advice(body, "compilation")
    assert (advice.file, advice.line) == (__file__, line_of(body))
    assert "numba" in advice.sentence
    assert figure(advice, "time of one") > 0.001
    assert share(advice) > 0.2


# What torch forgets in its reset may raise in a callback of its own, when a code object dies later.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_compilation_by_torch_is_found() -> None:
    x = torch.randn(8)

    def body() -> None:
        compiled = torch.compile(lambda y: y * 2 + 1, backend="eager")
        compiled(x)  # fault
        torch._dynamo.reset()

    advice = the_advice(body, "compilation")
    assert advice.line == line_of(body)
    assert "torch.compile" in advice.sentence
    handler = torch._dynamo.callback.callback_handler
    assert handler.start_callbacks == []
    assert handler.end_callbacks == []


def test_what_was_compiled_before_is_silent() -> None:
    add = numba.njit(lambda x: x + 1)
    compiled = torch.compile(lambda y: y * 2 + 1, backend="eager")
    x = torch.randn(8)

    def body() -> None:
        add(1)
        compiled(x)
        np.tanh(np.ones(100))

    assert watch(body, "compilation") == []
