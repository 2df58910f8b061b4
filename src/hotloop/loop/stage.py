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
from hotloop.loop.arm import SUBSTITUTES, Kind, amount_of, epoch_of, kind_of
from hotloop.loop.board import Board, process_board
from hotloop.loop.effects import check_call, seen_by_the_loop
from hotloop.loop.gpu import GpuTimer, gpu_timer
from hotloop.loop.iterables import StageAsyncIterable, StageIterable, StageIterator
from hotloop.loop.lanes import current_lane, running_loop
from hotloop.loop.tape import Buffers, Entry, Tape, replay_writes

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

StageKind = Literal["cpu", "gpu", "io", "network"]
Effect = Literal["pure", "stateful", "effectful"]

# Plain integers: comparing with an enum member costs 20 ns more.
_OFF, _REAL, _FREE, _PAD, _BURN, _WAIT, _DELAY, _RECORD, _CHECK, _WORK = map(int, Kind)
_SUBSTITUTES = frozenset(int(kind) for kind in SUBSTITUTES)

# So many calls of a stage are compared with what it declares of its effects.
CHECKED_CALLS = 2
# Waits beyond this are slept; a sleeper wakes about so much later than it asked for.
SLEPT_NS, TIMER_SLACK_NS = 300_000, 60_000
# A replayed call that is ahead of the loop looks this often whether it may go on, and goes on
# anyway when no iteration has ended for so long: the loop may be waiting for this very call.
HOLD_NS = 200_000
LONGEST_HOLD_NS = 20_000_000
# So many iterations may a replayed stage run ahead of the loop: more than most queues hold.
AHEAD_ITERATIONS = 64


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
        self.reads_ahead = 0  # items that an iterable's own workers make before they are asked for
        self.function: Callable[..., Any] | None = None
        self.delayed_ns = 0
        self._replayed_epoch = -1
        self._waited_for = (0, 0)  # an iteration, and since when a call waits for it to end
        self._held: tuple[int, int, int] = (-1, 0, 0)  # epoch, iteration at its start, calls
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
            word = self.board.words[self.index]
            if error is None and word:
                if kind_of(word) == _DELAY:
                    self._note_delay(self.board.clock.wait_ns(self._delay_ns(word)))
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
        paces, tape = board.paces, self.tape
        self.function = function

        def staged(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                mode = modes[index]
                if not mode:
                    return function(*args, **kwargs)
                # What `measured` does where nothing else is to be done, for half of its price.
                if on_host and board.watcher is None:
                    if mode == _REAL:
                        start = now()
                        output = function(*args, **kwargs)
                        lane = get_ident() if running_loop() is None else current_lane()
                        self._log((index, start, now(), lane))
                        return output
                    if mode == _FREE and board.owner and not paces[index] and tape.entries:
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
            board.watcher(self)  # may set another arm
        # Read once: the arm may change during the call, and its number with it.
        word = board.words[self.index]
        kind = kind_of(word)
        if self.kind == "gpu" and kind:
            return self._measured_gpu(function, args, kwargs, word)
        start = self._now()
        if kind == _REAL:
            output = function(*args, **kwargs)
        elif kind in _SUBSTITUTES and (entry := self._replayed(word)) is not None:
            output = entry[0]
            if kind == _FREE:
                while self._is_ahead(word):
                    board.clock.sleep_ns(HOLD_NS)
            else:
                self._spend(word, start)
        elif kind == _RECORD:
            output = self._recorded(function, args, kwargs)
        elif kind == _CHECK:
            output = self._checked(function, args, kwargs)
        else:
            output = function(*args, **kwargs)
            if kind == _DELAY:
                self._note_delay(board.clock.wait_ns(self._delay_ns(word)))
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
        word = board.words[self.index]
        kind = kind_of(word)
        start = self._now()
        if kind in _SUBSTITUTES and (entry := self._replayed(word)) is not None:
            output = entry[0]
            if kind in (_BURN, _WORK):
                self._spend(word, start)
            else:
                # Also for FREE: a stage that never suspends would starve the others.
                owed = self._owed_ns(word) - (self._now() - start) if kind != _FREE else 0
                await board.clock.wait_async_ns(owed)
                while kind == _FREE and self._is_ahead(word):
                    await board.clock.wait_async_ns(HOLD_NS)
        else:
            output = await function(*args, **kwargs)
            if kind == _RECORD:
                self._record(function, (args, kwargs), output, self._now() - start, -1, 0)
            elif kind == _DELAY:
                self._note_delay(await board.clock.wait_async_ns(self._delay_ns(word)))
        self._write_log(start, current_lane())
        return output

    def _recorded(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run one call and keep what it returned, how long it took and what ran beside it."""
        clock = self.board.clock
        process, cpu, start = clock.process_cpu_ns(), clock.thread_cpu_ns(), self._now()
        output = function(*args, **kwargs)
        duration = self._now() - start
        cpu, process = clock.thread_cpu_ns() - cpu, clock.process_cpu_ns() - process
        self._record(function, (args, kwargs), output, duration, cpu, process)
        return output

    def _checked(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run one call and compare what it changed with what the stage declares."""
        # What an iterator changes is its own place, and asking it twice would lose an item.
        checks = self.board.checks
        enough = checks.get(self.name, 0) >= CHECKED_CALLS
        if self.effect == "effectful" or self.is_iterable or self.board.is_worker or enough:
            return function(*args, **kwargs)
        checks[self.name] = checks.get(self.name, 0) + 1
        output, broken, _complete = check_call(
            self.name,
            self.effect,
            function,
            args,
            kwargs,
            state=self.board.state,
            writes=self._buffers(),
            beside_main=get_ident() != self.board.main_thread,
            exempt=(self.board, self.board.clock),
            seen=seen_by_the_loop(),
        )
        self.board.broken_promises += broken
        return output

    def _measured_gpu(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], word: int
    ) -> Any:
        """Like `measured`, on the GPU's clock: no synchronisation but while recording."""
        kind = kind_of(word)
        timer, start = self._gpu(), self._now()
        mark = self._gpu_mark()
        if kind in _SUBSTITUTES and (entry := self._replayed(word)) is not None:
            output = entry[0]
            if kind != _FREE:
                timer.occupy_ns(self._owed_ns(word))
        elif kind == _RECORD:
            timer.synchronize()
            cpu_start, begin = self.board.clock.thread_cpu_ns(), self._now()
            output = function(*args, **kwargs)
            timer.synchronize()
            duration = self._now() - begin
            cpu = self.board.clock.thread_cpu_ns() - cpu_start
            self._record(function, (args, kwargs), output, duration, cpu, 0)
        else:
            output = function(*args, **kwargs)
            if kind == _DELAY:
                timer.occupy_ns(self._delay_ns(word))
                self._note_delay(round(self._delay_ns(word)))
        self._gpu_close(mark, start)
        return output

    def _replayed(self, word: int) -> Entry | None:
        if self.board.is_worker and epoch_of(word) != self._replayed_epoch:
            # The owner rewinds its own tapes between blocks; a worker does at a block's start,
            # which is drained.
            self._replayed_epoch = epoch_of(word)
            self.tape.rewind(self.board.replay_phase[0])
            self.board.note_tape(self.index, len(self.tape), self.tape.faults)
        entry = self.tape.next()
        if entry is not None and entry[1]:
            replay_writes(entry[1], self._buffers())
        return entry

    def _spend(self, word: int, start: int) -> None:
        """Let pass what the replayed call owes of its recorded time since `start`."""
        clock = self.board.clock
        on_cpu = kind_of(word) == _WORK
        owed = self._owed_ns(word) - (0 if on_cpu else self._now() - start)
        if on_cpu or kind_of(word) == _BURN:
            clock.burn_ns(
                owed,
                releases_lock=self.tape.releases_lock,
                moved_bytes=self.bytes_per_call or self.tape.bytes_per_call() or 0,
                on_cpu=on_cpu,
            )
        elif kind_of(word) == _WAIT and owed > SLEPT_NS:
            # No spinning at the end: among threads that compute it would ask for the interpreter
            # lock again and again. How long it really took is told by the log.
            clock.sleep_ns(owed - TIMER_SLACK_NS)
        else:
            clock.wait_ns(owed)

    def _owed_ns(self, word: int) -> float:
        duration_ns = float(self.tape.next_duration_ns(on_cpu=kind_of(word) == _WORK))
        if kind_of(word) != _PAD:
            duration_ns /= amount_of(word)
        return min(duration_ns, self.board.longest_wait_ns[0])

    def _delay_ns(self, word: int) -> float:
        return min(amount_of(word) * 1e9, self.board.longest_wait_ns[0])

    def _is_ahead(self, word: int) -> bool:
        """Whether a replayed call must wait for the loop, as a full queue would make it.

        A stage on another thread costs nothing while it is free, and would spin as fast as it can;
        the loop it feeds takes a known number of its calls in an iteration.
        """
        board = self.board
        pace = board.paces[self.index]
        if not pace or (board.owner and get_ident() == board.main_thread):
            return False
        epoch, first, calls = self._held
        if epoch != epoch_of(word):
            self._held = epoch_of(word), board.iteration[0], 1
            self._waited_for = board.iteration[0], self._now()
            return False
        if board.words[self.index] != word:
            return False
        allowed = pace * (board.iteration[0] - first + AHEAD_ITERATIONS)
        if calls >= allowed:
            iteration, since = self._waited_for
            if iteration != board.iteration[0]:
                self._waited_for = board.iteration[0], self._now()
                return True
            if self._now() - since < LONGEST_HOLD_NS:
                return True
            self._waited_for = iteration, self._now()
        self._held = epoch, first, calls + 1
        return False

    def _record(
        self,
        function: object,
        arguments: object,
        output: Any,
        duration_ns: int,
        cpu_ns: int,
        process_cpu_ns: int,
    ) -> None:
        self.tape.record(
            _identity(function),
            arguments,
            output,
            self._buffers(),
            duration_ns,
            cpu_ns,
            process_cpu_ns=process_cpu_ns,
            most_bytes=self.board.tape_bytes[0],
        )
        self.board.note_tape(self.index, len(self.tape), self.tape.faults)

    def _buffers(self) -> Sequence[Any]:
        return self.writes() if callable(self.writes) else self.writes

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
    if isinstance(owner, StageIterator):
        return type(owner.iterable)
    return getattr(function, "__code__", None) or (type(owner), getattr(target, "__name__", None))


def _rebuild(name: str, kind: StageKind, effect: Effect, bytes_per_call: int | None) -> Stage:
    return Stage(name, kind=kind, effect=effect, bytes_per_call=bytes_per_call)
