"""Iterables and async iterables as stages: each `next` is one call."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from hotloop.loop.stage import Stage


class StageIterable:
    """An iterable as a stage: each `next` is one call."""

    def __init__(self, stage: "Stage", iterable: Iterable[Any]) -> None:
        self.stage = stage
        stage.is_iterable = True
        self._iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        return StageIterator(self.stage, iter(self._iterable))

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # raises TypeError as the original


class StageIterator:
    """One pass over an iterable."""

    def __init__(self, stage: "Stage", iterator: Iterator[Any]) -> None:
        self._stage = stage
        self._next = iterator.__next__
        self._modes, self._index = stage.board.modes, stage.index

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            if self._modes[self._index]:
                return self._stage.measured(self._next, (), {})
            return self._next()
        except StopIteration:
            raise
        except Exception as error:
            error.add_note(f"in stage {self._stage.name!r}")
            raise


class StageAsyncIterable:
    """An async iterable as a stage: each `anext` is one call."""

    def __init__(self, stage: "Stage", iterable: AsyncIterable[Any]) -> None:
        self.stage = stage
        stage.is_iterable = True
        self._iterable = iterable

    def __aiter__(self) -> AsyncIterator[Any]:
        return StageAsyncIterator(self.stage, self._iterable.__aiter__())


class StageAsyncIterator:
    """One pass over an async iterable."""

    def __init__(self, stage: "Stage", iterator: AsyncIterator[Any]) -> None:
        self._stage = stage
        self._next = iterator.__anext__
        self._modes, self._index = stage.board.modes, stage.index

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            if self._modes[self._index]:
                next_item = cast(Callable[..., Coroutine[Any, Any, Any]], self._next)
                return await self._stage.measured_async(next_item, (), {})
            return await self._next()
        except StopAsyncIteration:
            raise
        except Exception as error:
            error.add_note(f"in stage {self._stage.name!r}")
            raise
