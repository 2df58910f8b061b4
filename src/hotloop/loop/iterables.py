"""Iterables and async iterables as stages: each `next` is one call."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, cast

from hotloop.loop.probe import Probe
from hotloop.loop.stage_types import IterablePass, StageView


class StageIterable:
    """An iterable as a stage: each `next` is one call.

    Attributes that it does not have are those of the iterable: `.dataset`, `.batch_size`.
    """

    def __init__(self, stage: Probe, iterable: Iterable[Any]) -> None:
        self.stage = stage
        stage.is_iterable = True
        stage.reads_ahead = reads_ahead(iterable)
        self._iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        return StageIterator(self.stage, self._iterable)

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # raises TypeError as the original

    def __bool__(self) -> bool:
        return bool(self._iterable)  # by its length only where it has one

    def __getattr__(self, name: str) -> Any:
        return _of_wrapped(self, name)

    def __reduce__(self) -> Any:
        return (type(self), (self.stage, self._iterable))


class StageIterator(IterablePass):
    """One pass over an iterable as a stage.

    Starting the pass is part of the first `next`: a loader that starts its workers anew in each
    epoch spends time there, which a free stage would save.
    """

    def __init__(self, stage: Probe, iterable: Iterable[Any]) -> None:
        super().__init__(iterable)
        self._stage = stage
        self._next: Callable[[], Any] = self._start
        self._modes, self._index = stage.control.modes, stage.index

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            if self._modes[self._index]:
                return self._stage.measured(self._advance, (), {})
            return self._next()
        except StopIteration:
            _report_end_of_pass(self._stage)
            raise
        except Exception as error:
            error.add_note(f"in stage {self._stage.name!r}")
            raise

    def _start(self) -> Any:
        self._next = iter(self.iterable).__next__
        return self._next()

    def _advance(self) -> Any:
        return self._next()


class StageAsyncIterable:
    """An async iterable as a stage: each `anext` is one call; attributes as of the iterable."""

    def __init__(self, stage: Probe, iterable: AsyncIterable[Any]) -> None:
        self.stage = stage
        stage.is_iterable = True
        self._iterable = iterable

    def __aiter__(self) -> AsyncIterator[Any]:
        return StageAsyncIterator(self.stage, self._iterable.__aiter__())

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # raises TypeError as the original

    def __bool__(self) -> bool:
        return bool(self._iterable)

    def __getattr__(self, name: str) -> Any:
        return _of_wrapped(self, name)

    def __reduce__(self) -> Any:
        return (type(self), (self.stage, self._iterable))


class StageAsyncIterator:
    """One pass over an async iterable as a stage."""

    def __init__(self, stage: Probe, iterator: AsyncIterator[Any]) -> None:
        self._stage = stage
        self._next = iterator.__anext__
        self._modes, self._index = stage.control.modes, stage.index

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            if self._modes[self._index]:
                next_item = cast(Callable[..., Coroutine[Any, Any, Any]], self._next)
                return await self._stage.measured_async(next_item, (), {})
            return await self._next()
        except StopAsyncIteration:
            _report_end_of_pass(self._stage)
            raise
        except Exception as error:
            error.add_note(f"in stage {self._stage.name!r}")
            raise


def on_end_of_pass(listener: Callable[[StageView], None] | None) -> None:
    """Call `listener` with the stage whenever a pass over an iterable has ended; None: no call."""
    global _listener
    _listener = listener


_listener: Callable[[StageView], None] | None = None


def _report_end_of_pass(stage: Probe) -> None:
    if _listener is not None:
        _listener(stage)


def _of_wrapped(wrapper: StageIterable | StageAsyncIterable, name: str) -> Any:
    # Special methods are looked up on types, and copying asks for them before there is an
    # iterable: forwarding them would recurse without end.
    if name == "_iterable" or (name.startswith("__") and name.endswith("__")):
        raise AttributeError(f"{type(wrapper).__name__!r} object has no attribute {name!r}")
    return getattr(wrapper._iterable, name)


def reads_ahead(iterable: object) -> int:
    """Return how many items an iterable's own workers make ahead; 0 if it has no workers.

    Loaders in the manner of `torch.utils.data.DataLoader` and their iterators say so.
    """
    for prefix in ("", "_"):
        workers = getattr(iterable, f"{prefix}num_workers", 0)
        each = getattr(iterable, f"{prefix}prefetch_factor", 0)
        if isinstance(workers, int) and isinstance(each, int) and workers * each > 0:
            return workers * each
    return 0
