"""Containers that grow and keep tensors, and cycles that make the collector pause."""

import gc
import tracemalloc
from collections import deque
from typing import Any

import numpy as np
import pytest

from hotloop.loop.figures import Unknown
from support.loops import busy
from support.planted import figure, line_of, share, the_advice, watch

torch = pytest.importorskip("torch")


def test_a_list_of_losses_is_found_with_its_graphs() -> None:
    weight = torch.randn(32, 32, requires_grad=True)
    losses: list[Any] = []

    def body() -> None:
        busy(0.002)
        losses.append((torch.ones(32) @ weight).sum())  # fault

    advice = the_advice(body, "growing container")
    assert (advice.file, advice.line) == (__file__, line_of(body))
    assert "operations that computed it" in advice.sentence
    assert figure(advice, "items an iteration") == pytest.approx(1)
    assert figure(advice, "memory an iteration") == pytest.approx(4)
    assert isinstance(advice.at_most, Unknown)


class Recorder:
    def __init__(self) -> None:
        self.frames: dict[int, Any] = {}

    def record(self, frame: np.ndarray) -> None:
        self.frames[len(self.frames)] = {"frame": frame}  # fault


def test_a_dictionary_that_is_filled_without_a_call_is_found() -> None:
    recorder = Recorder()

    def body() -> None:
        busy(0.002)
        recorder.record(np.zeros(1000))

    advice = the_advice(body, "growing container")
    assert advice.line == line_of(Recorder.record)
    assert advice.function == "Recorder.record"
    assert figure(advice, "memory an iteration") == pytest.approx(8000)


def test_numbers_bounded_and_emptied_containers_are_silent() -> None:
    numbers: list[float] = []
    newest: deque[np.ndarray] = deque(maxlen=100_000)

    def body() -> None:
        busy(0.002)
        rollout = [np.zeros(100) for _ in range(10)]
        numbers.append(float(rollout[0].sum()))
        newest.append(rollout[0])

    assert watch(body, "growing container") == []


class Node:
    def __init__(self, size: int) -> None:  # fault
        self.children: list[Node] = []
        self.data = np.zeros(size)
        if size:
            child = Node(0)
            child.children.append(self)
            self.children.append(child)


def test_cycles_of_a_class_are_found() -> None:
    def body() -> None:
        for _ in range(300):
            Node(8)

    advice = the_advice(body, "reference cycles")
    assert (advice.file, advice.line) == (__file__, Node.__init__.__code__.co_firstlineno)
    assert advice.function == "Node.__init__"
    # Two nodes in each cycle, with a list each.
    assert figure(advice, "objects an iteration") == pytest.approx(1200, rel=0.25)
    assert figure(advice, "held an iteration") > 300 * 64
    assert share(advice) > 0.02


@pytest.mark.long
def test_cycles_of_functions_are_found_where_they_are_made() -> None:
    def go_down() -> int:
        def descend(depth: int) -> int:
            return descend(depth - 1) if depth else 0

        return descend(1)

    def body() -> None:
        for _ in range(1000):
            go_down()

    advice = the_advice(body, "reference cycles")
    assert advice.file == __file__
    assert advice.line == go_down.__code__.co_firstlineno + 1
    assert advice.function.endswith("descend")
    # At least a function, the tuple of its cells, and the cell.
    assert figure(advice, "objects an iteration") >= 2900


def test_objects_without_cycles_are_silent() -> None:
    def body() -> None:
        for _ in range(300):
            [np.zeros(8), {"a": (1, 2)}]
        busy(0.001)

    assert watch(body, "reference cycles") == []


def test_looking_at_cycles_leaves_the_collector_as_it_was() -> None:
    before = (gc.get_debug(), gc.isenabled(), list(gc.callbacks), tracemalloc.is_tracing())

    def body() -> None:
        for _ in range(300):
            Node(8)

    watch(body, "reference cycles")
    after = (gc.get_debug(), gc.isenabled(), list(gc.callbacks), tracemalloc.is_tracing())
    assert after == before
    assert not gc.garbage
