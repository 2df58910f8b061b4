"""Iterables as stages: attributes, length, truth and copies are those of the iterable."""

import copy
import pickle
from collections.abc import AsyncIterator, Iterator

import pytest

from hotloop.loop import FREE, Arm, SharedControl, Stage, stage
from hotloop.loop.arm import RECORD
from hotloop.loop.iterables import StageAsyncIterable, StageIterable, on_end_of_pass
from support.clock import FakeClock


class Loader:
    batch_size = 4

    def __init__(self) -> None:
        self.dataset = [1, 2, 3]

    def __iter__(self) -> Iterator[int]:
        return iter(self.dataset)

    def __len__(self) -> int:
        return 3

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class AsyncLoader(Loader):
    __iter__ = None  # type: ignore[assignment]

    async def __aiter__(self) -> AsyncIterator[int]:
        for item in self.dataset:
            yield item


KINDS = [(Loader, StageIterable), (AsyncLoader, StageAsyncIterable)]


@pytest.mark.parametrize(("loader", "kind"), KINDS)
def test_attributes_are_those_of_the_iterable(loader: type[Loader], kind: type) -> None:
    wrapped = loader()
    staged = stage("attributes", wrapped)
    assert type(staged) is kind
    assert staged.batch_size == 4
    assert staged.dataset is wrapped.dataset
    assert len(staged) == 3
    staged.set_epoch(7)
    assert wrapped.epoch == 7
    with pytest.raises(AttributeError, match="sampler"):
        _ = staged.sampler


@pytest.mark.parametrize(("loader", "kind"), KINDS)
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_it_can_be_copied_and_pickled(loader: type[Loader], kind: type, how: object) -> None:
    staged = stage("copied", loader())
    again = how(staged)
    assert type(again) is kind
    assert again.dataset == [1, 2, 3]
    assert again.stage.name == "copied"
    assert again.stage.is_iterable


def test_an_object_without_its_iterable_has_no_attributes() -> None:
    empty = StageIterable.__new__(StageIterable)
    with pytest.raises(AttributeError):
        _ = empty.anything


def test_truth_is_that_of_the_iterable() -> None:
    assert not stage("empty", [])
    assert stage("full", [0])
    assert stage("generator", (k for k in range(2)))


def test_the_end_of_a_pass_is_reported() -> None:
    ended: list[Stage] = []
    on_end_of_pass(ended.append)
    try:
        staged = stage("told", [1, 2])
        assert list(staged) == [1, 2]
        assert next(iter(staged)) == 1  # a pass that goes on
    finally:
        on_end_of_pass(None)
    assert [each.name for each in ended] == ["told"]


def test_what_starts_a_pass_belongs_to_its_first_call() -> None:
    """A loader that takes long to start: timed with the stage, and not started while it is free."""
    clock = FakeClock()
    control = SharedControl(clock)
    started: list[int] = []

    class Loader:
        def __iter__(self) -> Iterator[int]:
            started.append(1)
            clock.wait_ns(30_000_000)
            return iter(range(3))

    staged = Stage("load", control=control, effect="pure")(Loader())
    control.set(Arm("record", rest=RECORD))
    assert list(staged) == [0, 1, 2]
    (first, *others) = control.drain_events()
    assert first.end_ns - first.start_ns == 30_000_000
    assert all(event.end_ns == event.start_ns for event in others)
    control.set(Arm("free", rest=FREE))
    assert [item for item, _ in zip(staged, range(5), strict=False)] == [0, 1, 2, 0, 1]
    assert started == [1]
