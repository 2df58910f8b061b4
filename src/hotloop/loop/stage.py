"""A named part of a loop: a probe that costs about 100 ns while it is not measured.

A stage wraps a function, a coroutine function, an iterable or an async iterable; what it does when
called is one byte of the shared control. A wrapped call can be timed, delayed, and replaced by what
it returned before. As a `with` block a stage can be timed and delayed only: a block returns nothing
that could be replayed.
"""

import functools
import inspect
import types
import weakref
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable
from threading import get_ident
from typing import Any, ParamSpec, Self, TypeVar, cast, overload

from hotloop.errors import StageError
from hotloop.loop.arm import Kind, kind_of
from hotloop.loop.event import current_lane, running_loop
from hotloop.loop.iterables import StageAsyncIterable, StageIterable
from hotloop.loop.probe import Probe
from hotloop.loop.stage_types import Effect, StageKind
from hotloop.loop.tape import Buffers, replay_writes

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# Plain integers: comparing with an enum member costs 20 ns more.
_REAL, _FREE, _DELAY, _NAMED = map(int, (Kind.REAL, Kind.FREE, Kind.DELAY, Kind.NAMED))


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
    effect: what a call does besides returning a value. "pure": nothing. "stateful": it changes only
    objects that the loop declares as its state. "effectful", the default: anything else; such a
    stage is timed and delayed, never replaced.
    writes: arrays or tensors that a call writes in place, or a function that returns them; a
    replayed call writes the recorded contents.
    bytes_per_call: data moved by a call, if known better than by the size of the arrays it takes
    and returns.

    Raises: StageError for a name that cannot be used or a target that cannot be wrapped.
    """
    made = Stage(name, kind=kind, effect=effect, writes=writes, bytes_per_call=bytes_per_call)
    return made if target is None else made(target)


class Stage(Probe):
    """One named part of a loop. Stages of one name are one stage: they share number and tape."""

    @overload
    def __call__(self, target: Callable[P, R]) -> Callable[P, R]: ...
    @overload
    def __call__(self, target: Iterable[T]) -> Iterable[T]: ...
    @overload
    def __call__(self, target: AsyncIterable[T]) -> AsyncIterable[T]: ...
    def __call__(self, target: Any) -> Any:
        """Wrap `target` as this stage."""
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
        if self.control.modes[self.index]:
            if self.control.watcher is not None:
                self.control.watcher(self)
            annotation = None
            if self.control.modes[self.index] == _NAMED and self.control.annotate is not None:
                annotation = self.control.annotate(self.name)
                annotation.__enter__()
            stack = self._entered.__dict__.setdefault("starts", {})
            begun = self._now(), self._gpu_mark(), annotation
            stack.setdefault(current_lane(), []).append(begun)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop timing the block."""
        lane = current_lane()
        starts = self._entered.__dict__.get("starts", {}).get(lane)
        if starts:
            start, mark, annotation = starts.pop()
            if annotation is not None:
                annotation.__exit__(kind, error, trace)
            word = self.control.words[self.index]
            if error is None and word:
                if kind_of(word) == _DELAY:
                    self._note_delay(self.control.clock.wait_ns(self._delay_ns(word)))
                if mark is not None:
                    self._gpu_close(mark, start)
                else:
                    self._write_log(start, lane)
        if isinstance(error, Exception):
            error.add_note(f"in stage {self.name!r}")

    def __reduce__(self) -> Any:
        """Make the stage anew in a spawned worker, attached to the worker's control."""
        return (_rebuild, (self.name, self.kind, self.effect, self.bytes_per_call))

    def __repr__(self) -> str:
        return f"Stage({self.name!r}, kind={self.kind!r}, effect={self.effect!r})"

    # --- wrapping ----------------------------------------------------------------------------

    def _wrap_function(self, function: Callable[P, R]) -> Callable[P, R]:
        modes, index, name, measured = self.control.modes, self.index, self.name, self.measured
        control, now, on_host = self.control, self._now, self.kind != "gpu"
        paces, tape = control.paces, self.tape
        self._function = _weakly(function)

        def staged(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                mode = modes[index]
                if not mode:
                    return function(*args, **kwargs)
                # The same as `measured` in the two commonest cases, at half of its cost.
                if on_host and control.watcher is None:
                    if mode == _REAL:
                        start = now()
                        output = function(*args, **kwargs)
                        lane = get_ident() if running_loop() is None else current_lane()
                        self._log((index, start, now(), lane))
                        return output
                    if mode == _FREE and control.owner and not paces[index] and tape.entries:
                        start = now()
                        replayed, writes, _, _ = tape.following()
                        if writes:
                            replay_writes(writes, self._buffers())
                        lane = get_ident() if running_loop() is None else current_lane()
                        self._log((index, start, now(), lane))
                        return replayed  # type: ignore[no-any-return]
                return measured(function, args, kwargs)  # type: ignore[no-any-return]
            except Exception as error:
                error.add_note(f"in stage {name!r}")
                raise

        return cast(Callable[P, R], self._dressed(staged, function))

    def _wrap_coroutine(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        modes, index, name, measured = (
            self.control.modes,
            self.index,
            self.name,
            self.measured_async,
        )

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


def _rebuild(name: str, kind: StageKind, effect: Effect, bytes_per_call: int | None) -> Stage:
    return Stage(name, kind=kind, effect=effect, bytes_per_call=bytes_per_call)


def _weakly(function: Callable[..., Any]) -> Callable[[], Callable[..., Any] | None]:
    """Return what gives the function as long as something else holds it."""
    try:
        if isinstance(function, types.MethodType):
            return weakref.WeakMethod(function)
        return weakref.ref(function)
    except TypeError:  # a callable of another kind: no weak reference to it can be made
        return lambda: function
