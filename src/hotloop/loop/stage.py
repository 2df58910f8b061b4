"""A named part of a loop: a probe that costs about 100 ns until somebody measures.

A stage wraps a function, a coroutine function, an iterable or an async iterable; what it does when
called is one byte on the board. A wrapped call can be timed, delayed, and replaced by what it
returned before. As a `with` block a stage can be timed and delayed only: nothing can be handed
back in a block's place.
"""

import functools
import inspect
import threading
from collections.abc import (
    AsyncIterable,
    Callable,
    Coroutine,
    Iterable,
    Sequence,
)
from threading import get_ident
from typing import Any, Literal, ParamSpec, Self, TypeVar, cast, overload

from hotloop.errors import StageError
from hotloop.loop.arm import SUBSTITUTES, Kind
from hotloop.loop.board import Board, process_board
from hotloop.loop.gpu import GpuTimer, gpu_timer
from hotloop.loop.iterables import StageAsyncIterable, StageIterable
from hotloop.loop.lanes import current_lane, running_loop
from hotloop.loop.tape import Buffers, Entry, Tape, replay_writes

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

StageKind = Literal["cpu", "gpu", "io", "network"]
Effect = Literal["pure", "stateful", "effectful"]

# Plain integers: comparing with an enum member costs 20 ns more.
_REAL, _FREE, _PAD, _BURN, _DELAY, _RECORD = (
    int(kind) for kind in (Kind.REAL, Kind.FREE, Kind.PAD, Kind.BURN, Kind.DELAY, Kind.RECORD)
)
_SUBSTITUTES = frozenset(int(kind) for kind in SUBSTITUTES)


@overload
def stage(
    name: str,
    target: Callable[P, R],
    *,
    kind: StageKind = "cpu",
    effect: Effect | None = None,
    writes: Buffers = (),
    bytes_per_call: int | None = None,
) -> Callable[P, R]: ...
@overload
def stage(
    name: str,
    target: Iterable[T],
    *,
    kind: StageKind = "cpu",
    effect: Effect | None = None,
    writes: Buffers = (),
    bytes_per_call: int | None = None,
) -> Iterable[T]: ...
@overload
def stage(
    name: str,
    target: AsyncIterable[T],
    *,
    kind: StageKind = "cpu",
    effect: Effect | None = None,
    writes: Buffers = (),
    bytes_per_call: int | None = None,
) -> AsyncIterable[T]: ...
@overload
def stage(
    name: str,
    target: None = None,
    *,
    kind: StageKind = "cpu",
    effect: Effect | None = None,
    writes: Buffers = (),
    bytes_per_call: int | None = None,
) -> "Stage": ...
def stage(
    name: str,
    target: Any = None,
    *,
    kind: StageKind = "cpu",
    effect: Effect | None = None,
    writes: Buffers = (),
    bytes_per_call: int | None = None,
) -> Any:
    """Make a part of a loop visible: `decode = stage("decode", decode, effect="pure")`.

    target: a function, coroutine function, generator function, iterable or async iterable; the
    result is used in its place. Without a target the result is a `Stage`, for use as a decorator
    or in a `with` statement.
    kind: what the stage keeps busy. A "gpu" stage is timed by CUDA events.
    effect: what replacing a call would leave undone. "pure": nothing. "stateful": changes to
    objects that the loop declares as its state, all of them. Anything else, and what is not said,
    is "effectful": such a stage is timed and delayed, never replaced.
    writes: arrays or tensors that a call writes in place, or a function that returns them; a
    replayed call writes the recorded contents.
    bytes_per_call: data moved by a call, if known better than by the size of the arrays it takes
    and returns.

    Raises: StageError for a name that cannot be used or a target that cannot be wrapped.
    """
    made = Stage(name, kind=kind, effect=effect, writes=writes, bytes_per_call=bytes_per_call)
    return made if target is None else made(target)


class Stage:
    """One named part of a loop. Stages of one name are one stage: they share number and tape."""

    def __init__(
        self,
        name: str,
        *,
        kind: StageKind = "cpu",
        effect: Effect | None = None,
        writes: Buffers = (),
        bytes_per_call: int | None = None,
        board: Board | None = None,
    ) -> None:
        if kind not in ("cpu", "gpu", "io", "network"):
            raise StageError(
                f"stage {name!r}: kind {kind!r} is none of 'cpu', 'gpu', 'io', 'network'"
            )
        if effect not in (None, "pure", "stateful", "effectful"):
            raise StageError(
                f"stage {name!r}: effect {effect!r} is none of 'pure', 'stateful', 'effectful'"
            )
        self.name = name
        self.kind: StageKind = kind
        self.effect: Effect = effect or "effectful"
        self.writes = writes
        self.bytes_per_call = bytes_per_call
        self.board = board or process_board()
        self.index = self.board.index(name)
        before = self.board.stages.get(name)
        self.tape: Tape = before.tape if before is not None else Tape()
        self.is_block = False
        self.is_iterable = False
        self.function: Callable[..., Any] | None = None
        self.delayed_ns = 0
        self._replayed_epoch = -1
        self._entered = threading.local()
        self.rebind()
        self.board.stages[name] = self

    def rebind(self) -> None:
        """Take what depends on the process from the board: called anew after a fork."""
        board = self.board
        self._now = board.clock.now_ns
        self._log: Callable[[tuple[int, int, int, int]], None] = self._first_log

    @overload
    def __call__(self, target: Callable[P, R]) -> Callable[P, R]: ...
    @overload
    def __call__(self, target: Iterable[T]) -> Iterable[T]: ...
    @overload
    def __call__(self, target: AsyncIterable[T]) -> AsyncIterable[T]: ...
    def __call__(self, target: Any) -> Any:
        """`target`, as this stage."""
        if inspect.isgeneratorfunction(target):
            return self._wrap_factory(target, StageIterable)
        if inspect.isasyncgenfunction(target):
            return self._wrap_factory(target, StageAsyncIterable)
        if inspect.iscoroutinefunction(target):
            return self._wrap_coroutine(target)
        if callable(target):
            return self._wrap_function(target)
        if hasattr(target, "__aiter__"):
            return StageAsyncIterable(self, target)
        if hasattr(target, "__iter__"):
            return StageIterable(self, target)
        raise StageError(
            f"stage {self.name!r}: expected a function or an iterable, "
            f"got {type(target).__qualname__}"
        )

    def __enter__(self) -> Self:
        """Start timing a block; it can be delayed, not replaced."""
        self.is_block = True
        if self.board.modes[self.index]:
            if self.board.watcher is not None:
                self.board.watcher(self)
            stack = self._entered.__dict__.setdefault("starts", {})
            stack.setdefault(current_lane(), []).append((self._now(), self._gpu_mark()))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop timing the block."""
        lane = current_lane()
        starts = self._entered.__dict__.get("starts", {}).get(lane)
        if starts:
            start, mark = starts.pop()
            if error is None and self.board.modes[self.index]:
                if self.board.modes[self.index] == _DELAY:
                    self._note_delay(self.board.clock.wait_ns(self._amount() * 1e9))
                if mark is not None:
                    self._gpu_close(mark, start)
                else:
                    self._write_log(start, lane)
        if isinstance(error, Exception):
            error.add_note(f"in stage {self.name!r}")

    def __reduce__(self) -> Any:
        """Spawned workers make the stage anew and attach it to their own board."""
        return (_rebuild, (self.name, self.kind, self.effect, self.bytes_per_call))

    def __repr__(self) -> str:
        return f"Stage({self.name!r}, kind={self.kind!r}, effect={self.effect!r})"

    # --- wrapping ----------------------------------------------------------------------------

    def _wrap_function(self, function: Callable[P, R]) -> Callable[P, R]:
        modes, index, name, measured = self.board.modes, self.index, self.name, self.measured
        board, now, on_host = self.board, self._now, self.kind != "gpu"
        self.function = function

        def staged(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                mode = modes[index]
                if not mode:
                    return function(*args, **kwargs)
                if mode == _REAL and on_host and board.watcher is None:
                    # What `measured` does, without its price: 150 ns of 450.
                    start = now()
                    output = function(*args, **kwargs)
                    lane = get_ident() if running_loop() is None else current_lane()
                    self._log((index, start, now(), lane))
                    return output
                return measured(function, args, kwargs)  # type: ignore[no-any-return]
            except Exception as error:
                error.add_note(f"in stage {name!r}")
                raise

        return cast(Callable[P, R], self._dressed(staged, function))

    def _wrap_coroutine(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        modes, index, name, measured = self.board.modes, self.index, self.name, self.measured_async

        async def staged(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                if modes[index]:
                    return await measured(function, args, kwargs)  # type: ignore[no-any-return]
                return await function(*args, **kwargs)
            except Exception as error:
                error.add_note(f"in stage {name!r}")
                raise

        return cast(Callable[P, Coroutine[Any, Any, R]], self._dressed(staged, function))

    def _wrap_factory(
        self, function: Callable[..., Any], iterable: Callable[["Stage", Any], Any]
    ) -> Any:
        def staged(*args: Any, **kwargs: Any) -> Any:
            return iterable(self, function(*args, **kwargs))

        return self._dressed(staged, function)

    def _dressed(self, staged: Callable[..., Any], target: Any) -> Any:
        # An nn.Module or another callable object has a large __dict__ that is not ours to copy.
        functools.update_wrapper(staged, target, updated=())
        staged.stage = self  # type: ignore[attr-defined]
        return staged

    # --- what a call does while a board is in force -------------------------------------------

    def measured(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """One call under the arm in force: run, replay, wait, and log it."""
        board = self.board
        if board.watcher is not None:
            board.watcher(self)  # may put another arm into force
        kind = board.modes[self.index]
        if self.kind == "gpu" and kind:
            return self._measured_gpu(function, args, kwargs, kind)
        start = self._now()
        if kind == _REAL:
            output = function(*args, **kwargs)
        elif kind in _SUBSTITUTES and (entry := self._replayed()) is not None:
            output = entry.working
            if kind != _FREE:
                owed = self._owed_ns(kind) - (self._now() - start)
                (board.clock.burn_ns if kind == _BURN else board.clock.wait_ns)(owed)
        elif kind == _RECORD:
            cpu_start = board.clock.thread_cpu_ns()
            output = function(*args, **kwargs)
            duration = self._now() - start
            cpu = board.clock.thread_cpu_ns() - cpu_start
            self._record(function, (args, kwargs), output, duration, cpu)
        else:
            output = function(*args, **kwargs)
            if kind == _DELAY:
                self._note_delay(board.clock.wait_ns(self._amount() * 1e9))
        self._write_log(start, current_lane())
        return output

    async def measured_async(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """`measured` for a coroutine."""
        board = self.board
        if board.watcher is not None:
            board.watcher(self)
        kind = board.modes[self.index]
        start = self._now()
        if kind in _SUBSTITUTES and (entry := self._replayed()) is not None:
            output = entry.working
            owed = self._owed_ns(kind) - (self._now() - start) if kind != _FREE else 0
            if kind == _BURN:
                board.clock.burn_ns(owed)
            else:
                # Also for FREE: a stage that never suspends would starve the others.
                await board.clock.wait_async_ns(owed)
        else:
            output = await function(*args, **kwargs)
            if kind == _RECORD:
                self._record(function, (args, kwargs), output, self._now() - start, -1)
            elif kind == _DELAY:
                self._note_delay(await board.clock.wait_async_ns(self._amount() * 1e9))
        self._write_log(start, current_lane())
        return output

    def _measured_gpu(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], kind: int
    ) -> Any:
        """Like `measured`, on the GPU's clock: no synchronisation but while recording."""
        timer, start = self._gpu(), self._now()
        mark = self._gpu_mark()
        if kind in _SUBSTITUTES and (entry := self._replayed()) is not None:
            output = entry.working
            if kind != _FREE:
                timer.occupy_ns(self._owed_ns(kind))
        elif kind == _RECORD:
            timer.synchronize()
            cpu_start, begin = self.board.clock.thread_cpu_ns(), self._now()
            output = function(*args, **kwargs)
            timer.synchronize()
            duration = self._now() - begin
            cpu = self.board.clock.thread_cpu_ns() - cpu_start
            self._record(function, (args, kwargs), output, duration, cpu)
        else:
            output = function(*args, **kwargs)
            if kind == _DELAY:
                timer.occupy_ns(self._amount() * 1e9)
                self._note_delay(round(self._amount() * 1e9))
        self._gpu_close(mark, start)
        return output

    def _replayed(self) -> Entry | None:
        if self.board.is_worker and self.board.epoch != self._replayed_epoch:
            # The owner rewinds its own tapes between blocks; a worker does at a block's start,
            # which is drained.
            self._replayed_epoch = self.board.epoch
            self.tape.rewind()
            self.board.note_tape(self.index, len(self.tape), self.tape.faults)
        entry = self.tape.next()
        if entry is not None and entry.writes:
            replay_writes(entry, self._buffers())
        return entry

    def _owed_ns(self, kind: int) -> float:
        duration_ns = self.tape.next_duration_ns()
        return duration_ns if kind == _PAD else duration_ns / self._amount()

    def _record(
        self, function: object, arguments: object, output: Any, duration_ns: int, cpu_ns: int
    ) -> None:
        self.tape.record(
            _identity(function), arguments, output, self._buffers(), duration_ns, cpu_ns
        )
        self.board.note_tape(self.index, len(self.tape), self.tape.faults)

    def _buffers(self) -> Sequence[Any]:
        return self.writes() if callable(self.writes) else self.writes

    def _amount(self) -> float:
        return self.board.amounts[self.index]

    def _note_delay(self, passed_ns: int) -> None:
        self.delayed_ns += passed_ns
        self.board.note_delay(self.index, passed_ns)

    def _write_log(self, start: int, lane: int) -> None:
        self._log((self.index, start, self._now(), lane))

    def _first_log(self, event: tuple[int, int, int, int]) -> None:
        self._log = self.board.log_for_this_process()
        self._log(event)

    # --- the GPU's clock ---------------------------------------------------------------------

    def _gpu(self) -> GpuTimer:
        if self.board.gpu is None:
            self.board.gpu = gpu_timer(self.board.clock)
        return self.board.gpu

    def _gpu_mark(self) -> object:
        return self._gpu().mark() if self.kind == "gpu" else None

    def _gpu_close(self, mark: object, start: int) -> None:
        if self.board.owner:
            self.board.gpu_spans.append((self.index, mark, self._gpu().mark()))
        else:  # a worker's events cannot be read from outside: its launches are timed instead
            self._write_log(start, current_lane())


def _identity(target: Any) -> object:
    """What tells two functions under one name apart, though each may be made anew every time."""
    function = getattr(target, "__func__", target)
    owner = getattr(target, "__self__", None)
    return getattr(function, "__code__", None) or (type(owner), getattr(target, "__name__", None))


def _rebuild(name: str, kind: StageKind, effect: Effect, bytes_per_call: int | None) -> Stage:
    return Stage(name, kind=kind, effect=effect, bytes_per_call=bytes_per_call)
