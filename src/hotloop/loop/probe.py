"""What one call of a stage does under the current arm: run, replay, wait, log.

`hotloop.loop.stage` wraps a user's functions and iterables, and calls this while it is measured.
"""

import itertools
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from threading import get_ident
from typing import Any

from hotloop.errors import StageError
from hotloop.loop.arm import SUBSTITUTES, Kind, amount_of, epoch_of, kind_of
from hotloop.loop.control import SharedControl, process_control
from hotloop.loop.effects import check_call, seen_by_the_loop
from hotloop.loop.event import current_lane
from hotloop.loop.gpu import GpuTimer, gpu_timer
from hotloop.loop.named_call import named_await, named_call
from hotloop.loop.stage_types import Effect, IterablePass, StageKind
from hotloop.loop.tape import Buffers, Entry, Tape, replay_writes

# Plain integers: comparing with an enum member costs 20 ns more.
_OFF, _REAL, _FREE, _PAD, _BURN, _WAIT, _DELAY, _RECORD, _CHECK, _WORK, _NAMED, _ = map(int, Kind)
_SUBSTITUTES = frozenset(int(kind) for kind in SUBSTITUTES)

# So many calls of a stage are checked against what it declares of its effects.
CHECKED_CALLS = 2
# Waits beyond this are slept; a sleeper wakes about so much later than it asked for.
SLEPT_NS, TIMER_SLACK_NS = 300_000, 60_000
# A replayed call that is ahead of the loop looks this often whether it may go on, and goes on
# anyway when no iteration has ended for so long: the loop may be waiting for this call.
HOLD_NS = 200_000
LONGEST_HOLD_NS = 20_000_000
# So many iterations may a replayed stage run ahead of the loop: more than most queues hold.
AHEAD_ITERATIONS = 64
_made = itertools.count()


class Probe:
    """One stage apart from what it wraps: its declaration, its tape, and its calls.

    Stages of one name are one stage: they share number and tape.
    """

    def __init__(
        self,
        name: str,
        *,
        kind: StageKind = "cpu",
        effect: Effect | None = None,
        writes: Buffers = (),
        bytes_per_call: int | None = None,
        control: SharedControl | None = None,
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
        self.made = next(_made)
        self.kind: StageKind = kind
        self.effect: Effect = effect or "effectful"
        self.writes = writes
        self.bytes_per_call = bytes_per_call
        self.control = control or process_control()
        self.index = self.control.index(name)
        before = self.control.stages.get(name)
        self.tape: Tape = before.tape if before is not None else Tape()
        self.is_block = False
        self.is_iterable = False
        self.effect_is_known = False
        self.cannot_replace: str | None = None
        self.part_of: str | None = None
        self.is_whole = False  # whether its calls are all calls of other stages too
        self.reads_ahead = 0  # items that an iterable's own workers make before they are asked for
        self._function: Callable[[], Callable[..., Any] | None] = lambda: None
        self.delayed_ns = 0
        self._replayed_epoch = -1
        self._waited_for = (0, 0)  # an iteration, and since when a call waits for it to end
        self._held: tuple[int, int, int] = (-1, 0, 0)  # epoch, iteration at its start, calls
        self._named_call: Callable[..., Any] | None = None
        self._entered = threading.local()  # when `with` blocks began, by lane
        self.rebind()
        self.control.stages[name] = self

    def obey(self, kind: Kind) -> None:
        """Do nothing: each call looks up what it does."""

    def rebind(self) -> None:
        """Take what depends on the process from the control: called again after a fork."""
        control = self.control
        self._now = control.clock.now_ns
        self._log: Callable[[tuple[int, int, int, int]], None] = self._first_log

    @property
    def function(self) -> Callable[..., Any] | None:
        """What a call of the stage calls, as long as the loop holds it.

        The process knows a stage for ever: by it alone nothing of a loop that is gone stays alive.
        """
        return self._function()

    # --- calls ---------------------------------------------------------------------------------

    def measured(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Do one call under the current arm: run, replay, wait, and log it."""
        control = self.control
        if control.watcher is not None:
            control.watcher(self)  # may set another arm
        # Read once: the arm may change during the call, and its number with it.
        word = control.words[self.index]
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
                    control.clock.sleep_ns(HOLD_NS)
            else:
                self._spend(word, start)
        elif kind == _RECORD:
            output = self._recorded(function, args, kwargs)
        elif kind == _CHECK:
            output = self._checked(function, args, kwargs)
        elif kind == _NAMED:
            output = self.named(function, args, kwargs)
        else:
            output = function(*args, **kwargs)
            if kind == _DELAY:
                self._note_delay(control.clock.wait_ns(self._delay_ns(word)))
        self._write_log(start, current_lane())
        return output

    async def measured_async(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Do one call of a coroutine function under the current arm."""
        control = self.control
        if control.watcher is not None:
            control.watcher(self)
        word = control.words[self.index]
        kind = kind_of(word)
        start = self._now()
        if kind in _SUBSTITUTES and (entry := self._replayed(word)) is not None:
            output = entry[0]
            if kind in (_BURN, _WORK):
                self._spend(word, start)
            else:
                # Also for FREE: a stage that never suspends would starve the others.
                owed = self._owed_ns(word) - (self._now() - start) if kind != _FREE else 0
                await control.clock.wait_async_ns(owed)
                while kind == _FREE and self._is_ahead(word):
                    await control.clock.wait_async_ns(HOLD_NS)
        else:
            if kind == _NAMED:
                output = await self._named_async(function, args, kwargs)
            else:
                output = await function(*args, **kwargs)
            if kind == _RECORD:
                self._record(function, (args, kwargs), output, self._now() - start, -1, 0)
            elif kind == _DELAY:
                self._note_delay(await control.clock.wait_async_ns(self._delay_ns(word)))
        self._write_log(start, current_lane())
        return output

    def named(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run one call within a frame that has the stage's name, and within its annotation."""
        if self._named_call is None:
            self._named_call = named_call(self.name)
        annotate = self.control.annotate
        if annotate is None:
            return self._named_call(function, args, kwargs)
        with annotate(self.name):
            return self._named_call(function, args, kwargs)

    async def _named_async(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """`named` for a coroutine function; what is entered then stays so while it waits."""
        annotate = self.control.annotate
        with nullcontext() if annotate is None else annotate(self.name):
            return await named_await(self.name)(function, args, kwargs)

    def _recorded(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run one call and record its output, its duration and its processor time."""
        clock, helpers = self.control.clock, self.control.helpers
        process = clock.process_cpu_ns() - helpers.read_ns()
        cpu, start = clock.thread_cpu_ns(), self._now()
        output = function(*args, **kwargs)
        duration = self._now() - start
        cpu = clock.thread_cpu_ns() - cpu
        process = clock.process_cpu_ns() - helpers.read_ns() - process
        self._record(function, (args, kwargs), output, duration, cpu, process)
        return output

    def _checked(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run one call and compare what it changed with what the stage declares."""
        # An iterator changes its own position, and calling it twice would lose an item.
        checks = self.control.checks
        enough = checks.get(self.name, 0) >= CHECKED_CALLS
        if self.effect == "effectful" or self.is_iterable or self.control.is_worker or enough:
            return function(*args, **kwargs)
        checks[self.name] = checks.get(self.name, 0) + 1
        output, broken, _complete = check_call(
            self.name,
            self.effect,
            function,
            args,
            kwargs,
            state=self.control.state,
            writes=self._buffers(),
            beside_main=get_ident() != self.control.main_thread,
            exempt=(self.control, self.control.clock),
            seen=seen_by_the_loop(),
        )
        self.control.violations += broken
        return output

    def _measured_gpu(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], word: int
    ) -> Any:
        """Do one call by the GPU's clock: without synchronisation except while recording."""
        kind = kind_of(word)
        timer, start = self._gpu(), self._now()
        mark = self._gpu_mark()
        if kind in _SUBSTITUTES and (entry := self._replayed(word)) is not None:
            output = entry[0]
            if kind != _FREE:
                timer.occupy_ns(self._owed_ns(word))
        elif kind == _RECORD:
            timer.synchronize()
            cpu_start, begin = self.control.clock.thread_cpu_ns(), self._now()
            output = function(*args, **kwargs)
            timer.synchronize()
            duration = self._now() - begin
            cpu = self.control.clock.thread_cpu_ns() - cpu_start
            self._record(function, (args, kwargs), output, duration, cpu, 0)
        elif kind == _NAMED:
            output = self.named(function, args, kwargs)
        else:
            output = function(*args, **kwargs)
            if kind == _DELAY:
                timer.occupy_ns(self._delay_ns(word))
                self._note_delay(round(self._delay_ns(word)))
        self._gpu_close(mark, start)
        return output

    def _replayed(self, word: int) -> Entry | None:
        if self.control.is_worker and epoch_of(word) != self._replayed_epoch:
            # The owner rewinds its own tapes between blocks; a worker does at a block's start,
            # which is drained.
            self._replayed_epoch = epoch_of(word)
            self.tape.rewind(self.control.replay_phase[0])
            self.control.note_tape(self.index, len(self.tape), self.tape.faults)
        entry = self.tape.next()
        if entry is not None and entry[1]:
            replay_writes(entry[1], self._buffers())
        return entry

    def _spend(self, word: int, start: int) -> None:
        """Let the rest of the replayed call's recorded time pass, counted from `start`."""
        clock = self.control.clock
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
            # No busy loop at the end: among threads that compute it would ask for the interpreter
            # lock again and again. How long it really took is in the log.
            clock.sleep_ns(owed - TIMER_SLACK_NS)
        else:
            clock.wait_ns(owed)

    def _owed_ns(self, word: int) -> float:
        duration_ns = float(self.tape.next_duration_ns(on_cpu=kind_of(word) == _WORK))
        if kind_of(word) != _PAD:
            duration_ns /= amount_of(word)
        return min(duration_ns, self.control.longest_wait_ns[0])

    def _delay_ns(self, word: int) -> float:
        return min(amount_of(word) * 1e9, self.control.longest_wait_ns[0])

    def _is_ahead(self, word: int) -> bool:
        """Whether a replayed call must wait for the loop, as a full queue would make it.

        A stage on another thread costs nothing while it is free, and would spin as fast as it can;
        the loop it feeds takes a known number of its calls in an iteration.
        """
        control = self.control
        pace = control.paces[self.index]
        if not pace or (control.owner and get_ident() == control.main_thread):
            return False
        epoch, first, calls = self._held
        if epoch != epoch_of(word):
            self._held = epoch_of(word), control.iteration[0], 1
            self._waited_for = control.iteration[0], self._now()
            return False
        if control.words[self.index] != word:
            return False
        allowed = pace * (control.iteration[0] - first + AHEAD_ITERATIONS)
        if calls >= allowed:
            iteration, since = self._waited_for
            if iteration != control.iteration[0]:
                self._waited_for = control.iteration[0], self._now()
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
            most_bytes=self.control.tape_bytes[0],
        )
        self.control.note_tape(self.index, len(self.tape), self.tape.faults)

    def _buffers(self) -> Sequence[Any]:
        return self.writes() if callable(self.writes) else self.writes

    def _note_delay(self, passed_ns: int) -> None:
        self.delayed_ns += passed_ns
        self.control.note_delay(self.index, passed_ns)

    def _write_log(self, start: int, lane: int) -> None:
        self._log((self.index, start, self._now(), lane))

    def _first_log(self, event: tuple[int, int, int, int]) -> None:
        self._log = self.control.log_for_this_process()
        self._log(event)

    # --- the GPU's clock ---------------------------------------------------------------------

    def _gpu(self) -> GpuTimer:
        if self.control.gpu is None:
            self.control.gpu = gpu_timer(self.control.clock)
        return self.control.gpu

    def _gpu_mark(self) -> object:
        return self._gpu().mark() if self.kind == "gpu" else None

    def _gpu_close(self, mark: object, start: int) -> None:
        if self.control.owner:
            self.control.gpu_intervals.append((self.index, mark, self._gpu().mark()))
        else:  # a worker's events cannot be read from outside: its launches are timed instead
            self._write_log(start, current_lane())


def _identity(target: Any) -> object:
    """What distinguishes two functions under one name, though each may be made anew every time."""
    function = getattr(target, "__func__", target)
    owner = getattr(target, "__self__", None)
    if isinstance(owner, IterablePass):
        return type(owner.iterable)
    return getattr(function, "__code__", None) or (type(owner), getattr(target, "__name__", None))
