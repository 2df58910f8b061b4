"""Checking what a stage declares of its effects, on a call that the loop makes anyway.

Recorded outputs take the place of stages declared pure or stateful. A wrong declaration would make
a wrong measurement without any sign: so a few calls are compared with the declarations before
anything is replaced.
"""

import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hotloop.errors import StateError
from hotloop.loop.code import globals_named, is_own_file, is_users, module_of
from hotloop.loop.compare import Difference, differences
from hotloop.loop.declared_state import DeclaredState
from hotloop.loop.observe import (
    MAX_OBJECTS,
    MAX_SECONDS,
    Observation,
    argument_roots,
    call_roots,
    observe,
    parts_by_id,
)
from hotloop.loop.other_threads import OtherThreads, other_threads_run
from hotloop.loop.reading import Part
from hotloop.loop.stage_types import Effect
from hotloop.loop.state import Snapshot, reachable, reachable_ids
from hotloop.loop.violation import REPEATABLE, Violation, violations_of


class Checked(NamedTuple):
    """A checked call: its output, its violations, and whether all could be looked at.

    complete: False where a limit of objects or time ended an observation, where the declared state
    cannot be saved, and where other threads change what the call seemed to have changed.
    """

    output: Any
    violations: list[Violation]
    complete: bool


def check_call(
    name: str,
    effect: Effect,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    state: DeclaredState,
    writes: Sequence[Any] = (),
    beside_main: bool = False,
    exempt: Sequence[object] = (),
    seen: tuple[Part, ...] | None = None,
    max_objects: int = MAX_OBJECTS,
    max_seconds: float = MAX_SECONDS,
) -> Checked:
    """Call `function` once for the loop and say what it did against its stage's declaration.

    The output is the call's, its effects stand, and the loop goes on as after one call: a pure
    function is called a second time where nothing was seen to change, and what that changes of
    `state` is put back. An effectful stage declares nothing and is only called.
    state: what the loop declares as its state. writes: arrays and tensors that the stage declares.
    beside_main: the loop goes on meanwhile, in another thread: only the arguments are looked at.
    exempt: objects that are not looked into, nor what only they lead to.
    seen: what the loop can see besides the function; of what a pure call changes elsewhere nothing
    is said then. None: everything that the function reaches may be seen.
    max_objects, max_seconds: limits of one observation; a checked call makes up to five.

    Raises: what the function raises.
    """
    limits = (max_objects, max_seconds)
    call = _Call(name, effect, function, args, kwargs, state, writes, exempt, limits, seen)
    if effect == "effectful":
        return Checked(call.run(), [], True)
    if beside_main:
        return _check_arguments(call)
    return _check_pure(call) if effect == "pure" else _check_stateful(call)


class ArgumentWatch:
    """The arguments of a call, before and after it.

    For calls during which other code runs, such as those of a coroutine: make it before the call,
    and ask for its violations after.
    """

    def __init__(
        self,
        name: str,
        effect: Effect,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        writes: Sequence[Any] = (),
        exempt: Sequence[object] = (),
        limits: tuple[int, float] = (MAX_OBJECTS, MAX_SECONDS),
    ) -> None:
        state = DeclaredState()
        self._call = _Call(
            name, effect, function, args, kwargs, state, writes, exempt, limits, seen=None
        )
        self._before = self._look()

    def violations(self) -> tuple[list[Violation], bool]:
        """Return what was changed since, and whether all could be looked at."""
        after = self._look()
        found = list(differences(self._before, after))
        return self._call.violations(found), self._before.complete and after.complete

    def _look(self) -> Observation:
        return self._call.observe(argument_roots(self._call.args, self._call.kwargs))


@dataclass(frozen=True)
class _Call:
    """One call that is to be checked."""

    name: str
    effect: Effect
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    state: DeclaredState
    writes: Sequence[Any]
    exempt: Sequence[object]
    limits: tuple[int, float]
    seen: tuple[Part, ...] | None

    def observe_seen(self) -> Observation:
        """What the loop can see without this function; empty where that is not asked for."""
        return self.observe(self.seen or (), exempt={id(self.function)})

    def run(self) -> Any:
        return self.function(*self.args, **self.kwargs)

    def observe(
        self,
        roots: tuple[Part, ...],
        *,
        covered: Collection[int] = frozenset(),
        exempt: Collection[int] = frozenset(),
        classes: Collection[type] = (),
        as_output: bool = False,
    ) -> Observation:
        return observe(
            roots,
            covered=covered,
            exempt={*exempt, *map(id, self.exempt)},
            buffers=() if as_output else self.writes,
            classes=classes,
            as_output=as_output,
            max_objects=self.limits[0],
            max_seconds=self.limits[1],
        )

    def violations(self, found: Sequence[Difference]) -> list[Violation]:
        return violations_of(self.name, self.effect, self.function, found)


# --- pure ----------------------------------------------------------------------------------------


def _check_pure(call: _Call) -> Checked:
    iterator = _iterator_of(call.function)
    # To advance is what an iterator is for; a replayed `next` leaves it where it is.
    exempt = frozenset() if iterator is None else frozenset({id(iterator)})

    def look() -> Observation:
        return call.observe(call_roots(call.function, call.args, call.kwargs), exempt=exempt)

    others = OtherThreads()
    before, seen_before = look(), call.observe_seen()
    output = call.run()
    after, seen_after = look(), call.observe_seen()
    others.end_of_call()
    complete = before.complete and after.complete and seen_before.complete
    found = list(differences(before, after))
    if found:
        kept = _made_by_the_call(found, after, look, others)
        complete = complete and len(kept) == len(found)
        if call.seen is not None:
            # What only the function itself can see, such as a source's count of its calls, is
            # not missed when the call is replayed; arguments and draws always matter.
            other = [d for d in kept if not (d.style in ("argument", "generator") or d.drawn)]
            seen = list(differences(seen_before, seen_after))
            kept = [d for d in kept if d not in other] + (
                _made_by_the_call(seen, seen_after, call.observe_seen, others) if other else []
            )
        return Checked(output, call.violations(kept), complete)
    if iterator is not None:
        return Checked(output, [], complete)
    broken, whole = _call_again(call, output)
    return Checked(output, broken, complete and whole)


def seen_by_the_loop() -> tuple[Part, ...]:
    """Return what the functions that are running can name: locals, and globals of their code.

    From the stage's caller outwards, up to what drives the loop: where `check_call` looks for
    changes that the loop would miss.
    """
    found: list[Part] = []
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if is_own_file(code.co_filename):
            if code.co_name in _DRIVERS:
                break
        else:
            names = globals_named(code).loaded
            space = frame.f_globals
            if frame.f_locals is not space:
                found.append(Part("variable", dict(frame.f_locals)))
            found.append(Part("global", {n: space[n] for n in names if n in space}))
        frame = frame.f_back
    return tuple(found)


_DRIVERS = ("drive", "drive_script")


def _call_again(call: _Call, output: Any) -> tuple[list[Violation], bool]:
    """A second call, which must return the same; what it changes of the state is put back."""
    first = call.observe((Part("output", {"": output}),), as_output=True)
    if call.state.stuck or call.state.going_on:
        return [], False  # what a second call did to it could not be put back
    snapshot = None
    if not other_threads_run():
        try:
            snapshot = Snapshot(call.state.put_back)
        except StateError:
            return [], False
    try:
        again = call.run()
    except Exception as error:
        what = f"raised {type(error).__name__} when called again with the same input"
        return [Violation(call.name, what, REPEATABLE, blocks=False)], True
    finally:
        if snapshot is not None:
            snapshot.restore()
    second = call.observe((Part("output", {"": again}),), as_output=True)
    complete = first.complete and second.complete
    for difference in differences(first, second):
        where = f" (`{difference.path}`)" if difference.path != "output" else ""
        what = f"returned something else for the same input{where}"
        return [Violation(call.name, what, REPEATABLE, blocks=False)], complete
    return [], complete


def _iterator_of(function: Any) -> Any:
    """The iterator whose `next` this is, or None."""
    if getattr(function, "__name__", None) != "__next__":
        return None
    return getattr(function, "__self__", None)


# --- stateful ------------------------------------------------------------------------------------


def _check_stateful(call: _Call) -> Checked:
    try:
        before_call = Snapshot(call.state.put_back)
    except StateError:
        return Checked(call.run(), [], False)
    covered = {id(part) for part in before_call.objects}
    # An object that saves itself is believed: what it leaves out does not matter, such as
    # counters and scratch memory.
    own = parts_by_id([*before_call.saved_by_themselves, *call.state.going_on])
    iterator = _iterator_of(call.function)
    if iterator is not None and module_of(type(iterator)) == "builtins":
        # Its position cannot be state, nor does replaying need it to be.
        own[id(iterator)] = iterator
    classes = {type(part) for part in before_call.objects if is_users(type(part))}

    def look() -> Observation:
        roots = call_roots(call.function, call.args, call.kwargs)
        return call.observe(roots, covered=covered, exempt=own, classes=classes)

    others = OtherThreads()
    before = look()
    if call.state.stuck and (stuck := _stuck_parts(call.state, before)):
        what = f"works on {stuck}, which cannot be put back"
        return Checked(call.run(), [Violation(call.name, what, _STUCK)], before.complete)
    output = call.run()
    if other_threads_run():
        # Putting the state back for a moment could undo what another thread does in it.
        after = look()
        others.end_of_call()
        found = list(differences(before, after, may_change=covered))
        kept = _made_by_the_call(found, after, look, others)
    else:
        seen = _look_as_before(call, before_call, look)
        if seen is None:
            return Checked(output, [], False)
        after = seen
        kept = found = list(differences(before, after))
    complete = before.complete and after.complete and len(kept) == len(found)
    return Checked(output, call.violations(kept), complete)


def _look_as_before(
    call: _Call, before_call: Snapshot, look: Callable[[], Observation]
) -> Observation | None:
    """Look while the state is as it was before the call; None if it cannot be saved now."""
    try:
        after_call = Snapshot(call.state.put_back)
    except StateError:
        return None
    try:
        before_call.restore()
        return look()
    finally:
        after_call.restore()


_STUCK = (
    "give it get_state() and set_state(), or name it in may_go_on, if any content of it at the end "
    "of an iteration is as good as another"
)


def _stuck_parts(state: DeclaredState, seen: Observation) -> str:
    """Which of the declared objects that are stuck a call may work on; empty if none."""
    put_back = reachable_ids(state.put_back)
    found = [
        f"the {type(each).__qualname__} of the state"
        for each in state.stuck
        if not seen.complete
        or any(
            id(part) in seen.nodes and id(part) not in put_back and not isinstance(part, type)
            for part in reachable([each])
        )
    ]
    return " and ".join(found)


# --- beside the main thread ----------------------------------------------------------------------


def _check_arguments(call: _Call) -> Checked:
    watch = ArgumentWatch(
        call.name,
        call.effect,
        call.function,
        call.args,
        call.kwargs,
        writes=call.writes,
        exempt=call.exempt,
        limits=call.limits,
    )
    output = call.run()
    return Checked(output, *watch.violations())


# --- other threads -------------------------------------------------------------------------------


def _made_by_the_call(
    found: list[Difference],
    after: Observation,
    look: Callable[[], Observation],
    others: OtherThreads,
) -> list[Difference]:
    """Leave out what other threads change while the function is not called."""
    if not found or not other_threads_run():
        return found
    others.wait_for_repetition()
    moving = {difference.path for difference in differences(after, look())}
    return [difference for difference in found if difference.path not in moving]
