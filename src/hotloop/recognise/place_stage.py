"""A stage at a place where libraries meet: what one recognised call does under the current arm."""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from hotloop.loop.arm import SUBSTITUTES, Kind, kind_of
from hotloop.loop.control import SharedControl
from hotloop.loop.event import MAX_STAGES
from hotloop.loop.probe import Probe
from hotloop.loop.stage_types import Effect, StageKind
from hotloop.recognise.keyed_tape import KeyedTape

_DELAY, _RECORD, _FREE, _NAMED = map(int, (Kind.DELAY, Kind.RECORD, Kind.FREE, Kind.NAMED))
COUNTED = int(Kind.COUNTED)
_SUBSTITUTES = frozenset(int(kind) for kind in SUBSTITUTES)


class Inside(threading.local):
    """Whether this thread is within a recognised call: what that calls is a part of it."""

    now = False
    acts = False  # whether what this thread calls is acting, though gradients are on
    own = 0  # functions of the user's that are stages, and are under way, one within the other

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Inside, ()


class Elsewhere:
    """What a process unpickles in place of a stage or of all: nothing is measured there.

    A class of the script's own is sent to another process with what was put around its methods.
    """

    modes = bytes(MAX_STAGES)


@dataclass(frozen=True)
class Replay:
    """How a call is recorded, and what stands for it.

    frozen: what is recorded of an output, and thawed: the output that a replay makes of it, with
    the call's own arguments, those given by name last. None: the output itself. instead: is called
    in place of the function, with its arguments, where nothing need be recorded.
    """

    frozen: Callable[[Any, tuple[Any, ...]], Any] | None = None
    thawed: Callable[[Any, tuple[Any, ...]], Any] | None = None
    instead: Callable[..., Any] | None = None


PLAIN = Replay()


class Counting:
    """The calls of a stage on the loop's thread, while they are only counted.

    is_on: whether they are. is_under_way: whether one is: what it calls is a part of it. number: of
    all so far. thread: the loop's.
    """

    __slots__ = ("is_on", "is_under_way", "number", "thread")

    def __init__(self) -> None:
        self.is_on = self.is_under_way = False
        self.number = self.thread = 0


class PlaceStage(Probe):
    """One stage of a script that nobody prepared.

    Its calls are made by functions that were put in the place of a library's own. What stands for
    them is known from the place, so that nothing is checked by calling it twice.

    within: a stage that each call is also one of, such as all work on gradients.
    counting: its calls on the loop's thread under the mode COUNTED.
    """

    def __init__(
        self,
        name: str,
        *,
        effect: Effect,
        kind: StageKind = "cpu",
        control: SharedControl,
        within: "PlaceStage | None" = None,
    ) -> None:
        super().__init__(name, effect=effect, kind=kind, control=control)
        self.tape = self._by_kind = KeyedTape()
        self.effect_is_known = True
        self.counting = Counting()
        self.within = within
        if within is not None:
            within.is_whole = True

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Elsewhere, ()

    def call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: Callable[[], Hashable],
        replay: Replay = PLAIN,
    ) -> Any:
        """Do one call under the current arm.

        kind: returns of which kind it is, and is asked only where it is recorded or replaced.
        """
        control = self.control
        if control.modes[self.index] == COUNTED:
            self.counting.number += threading.get_ident() == control.main_thread
            return function(*args, **kwargs)
        if control.watcher is not None:
            control.watcher(self)  # may set another arm
            if self.counting.is_on and threading.get_ident() == control.main_thread:
                return self._counted_by_watcher(function, args, kwargs)
        if self.within is None:
            return self._do(function, args, kwargs, kind, replay)

        def part(*args: Any, **kwargs: Any) -> Any:
            return self._do(function, args, kwargs, kind, replay)

        return self.within._do(part, args, kwargs, kind, replay)

    def _counted_by_watcher(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self.counting.is_under_way = True
        try:
            return function(*args, **kwargs)
        finally:
            self.counting.is_under_way = False

    def obey(self, kind: Kind) -> None:
        """Count from now on, or no more."""
        self.counting.thread = self.control.main_thread
        self.counting.is_on = kind == Kind.COUNTED

    def note(self, start_ns: int) -> None:
        """Note a call that ends now, and that compiled code has made: a delay comes after it.

        It is a part of another call, which was shown to the watcher.
        """
        word = self.control.words[self.index]
        if kind_of(word) == _DELAY:
            self._note_delay(self.control.clock.wait_ns(self._delay_ns(word)))
        self._write_log(start_ns, threading.get_ident())

    def _do(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: Callable[[], Hashable],
        replay: Replay,
    ) -> Any:
        control = self.control
        word = control.words[self.index]
        mode = kind_of(word)
        start = self._now()
        if mode in _SUBSTITUTES:
            output = self._stand_in(function, args, kwargs, kind, replay)
            if mode != _FREE:
                self._spend(word, start)
        elif mode == _RECORD:
            output = self._keep(function, args, kwargs, kind, replay)
        elif mode == _NAMED:
            output = self.named(function, args, kwargs)
        else:
            output = function(*args, **kwargs)
            if mode == _DELAY:
                self._note_delay(control.clock.wait_ns(self._delay_ns(word)))
        # Of its thread, also in a task of asyncio: no other task goes on within such a call.
        self._write_log(start, threading.get_ident())
        return output

    def _stand_in(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: Callable[[], Hashable],
        replay: Replay,
    ) -> Any:
        entry = self._by_kind.next_of(kind())
        if entry is None:
            return function(*args, **kwargs)
        if replay.instead is not None:
            return replay.instead(*args, **kwargs)
        if replay.thawed is None:
            return entry[0]
        return replay.thawed(entry[0], (*args, *kwargs.values()))

    def _keep(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: Callable[[], Hashable],
        replay: Replay,
    ) -> Any:
        clock, key = self.control.clock, kind()
        process, cpu, start = clock.process_cpu_ns(), clock.thread_cpu_ns(), self._now()
        output = function(*args, **kwargs)
        duration = self._now() - start
        cpu, process = clock.thread_cpu_ns() - cpu, clock.process_cpu_ns() - process
        kept: Any = None
        if replay.instead is None:
            given = (*args, *kwargs.values())
            kept = output if replay.frozen is None else replay.frozen(output, given)
        self.tape.record(
            key,
            (args, kwargs),
            kept,
            (),
            duration,
            cpu,
            process_cpu_ns=process,
            most_bytes=self.control.tape_bytes[0],
        )
        return output
