"""Checking what a stage promised of its effects, on a call that the loop makes anyway.

Recorded outputs take the place of stages declared pure or stateful. A wrong declaration makes a
wrong measurement without any sign: so the declarations are held against a few calls before
anything is replaced.
"""

import inspect
import re
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from hotloop.errors import StateError
from hotloop.loop.code import globals_named, is_own_file, is_users
from hotloop.loop.compare import Difference, differences
from hotloop.loop.observe import (
    MAX_OBJECTS,
    MAX_SECONDS,
    Observation,
    argument_roots,
    call_roots,
    observe,
    parts_by_id,
)
from hotloop.loop.others import Beside, others_run
from hotloop.loop.reading import Part
from hotloop.loop.state import Snapshot

Effect = Literal["pure", "stateful", "effectful"]

# More broken promises of one call than this are not told one by one.
MAX_TOLD = 8


@dataclass(frozen=True)
class BrokenPromise:
    """What a call did that its stage's declared effect rules out, and what to do about it."""

    stage: str
    what: str
    remedy: str
    blocks: bool = True  # whether replaying the stage would change what the loop does

    def __str__(self) -> str:
        return f"stage {self.stage!r} {self.what}; {self.remedy}"


class Checked(NamedTuple):
    """A checked call: its output, which promises it broke, and whether all could be looked at.

    complete: False where a limit of objects or time ended an observation, where the declared state
    cannot be saved, and where other threads change what the call seemed to have changed.
    """

    output: Any
    broken: list[BrokenPromise]
    complete: bool


def check_call(
    name: str,
    effect: Effect,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    state: Sequence[object],
    writes: Sequence[Any] = (),
    beside_main: bool = False,
    exempt: Sequence[object] = (),
    seen: tuple[Part, ...] | None = None,
    max_objects: int = MAX_OBJECTS,
    max_seconds: float = MAX_SECONDS,
) -> Checked:
    """Call `function` once for the loop and say which promises of its stage it broke.

    The output is the call's, its effects stand, and the loop goes on as after one call: a pure
    function is called a second time where nothing was seen to change, and what that changes of
    `state` is put back. An effectful stage promised nothing and is only called.
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

    For calls during which others run, such as those of a coroutine: make it before the call, and
    ask it after.
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
        self._call = _Call(name, effect, function, args, kwargs, (), writes, exempt, limits, None)
        self._before = self._look()

    def broken(self) -> tuple[list[BrokenPromise], bool]:
        """What was changed since, and whether all could be looked at."""
        after = self._look()
        found = list(differences(self._before, after))
        return self._call.told(found), self._before.complete and after.complete

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
    state: Sequence[object]
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

    def told(self, found: Sequence[Difference]) -> list[BrokenPromise]:
        """The differences as sentences; beyond `MAX_TOLD` only how many more there are."""
        told = [_promise(self, difference) for difference in found[:MAX_TOLD]]
        if len(found) > MAX_TOLD:
            more = f"changes {len(found) - MAX_TOLD} more objects"
            told.append(BrokenPromise(self.name, more, "see the first ones"))
        return told


# --- pure ----------------------------------------------------------------------------------------


def _check_pure(call: _Call) -> Checked:
    iterator = _iterator_of(call.function)
    # To advance is what an iterator is for; a replayed `next` leaves it where it is.
    exempt = frozenset() if iterator is None else frozenset({id(iterator)})

    def look() -> Observation:
        return call.observe(call_roots(call.function, call.args, call.kwargs), exempt=exempt)

    beside = Beside()
    before, seen_before = look(), call.observe_seen()
    output = call.run()
    after, seen_after = look(), call.observe_seen()
    beside.end()
    complete = before.complete and after.complete and seen_before.complete
    found = list(differences(before, after))
    if found:
        kept = _made_by_the_call(found, after, look, beside)
        complete = complete and len(kept) == len(found)
        if call.seen is not None:
            # What only the function itself can see, such as a source's count of its calls, is
            # missed by nobody when the call is replayed; arguments and draws always matter.
            other = [d for d in kept if not (d.style in ("argument", "generator") or d.drawn)]
            seen = list(differences(seen_before, seen_after))
            kept = [d for d in kept if d not in other] + (
                _made_by_the_call(seen, seen_after, call.observe_seen, beside) if other else []
            )
        return Checked(output, call.told(kept), complete)
    if iterator is not None:
        return Checked(output, [], complete)
    broken, whole = _call_again(call, output)
    return Checked(output, broken, complete and whole)


def seen_by_the_loop() -> tuple[Part, ...]:
    """What the functions that are running can name: locals, and globals that their code names.

    From the stage's caller outwards, up to what drives the loop: where `check_call` looks for
    changes that somebody would miss.
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


def _call_again(call: _Call, output: Any) -> tuple[list[BrokenPromise], bool]:
    """A second call, which must return the same; what it changes of the state is put back."""
    first = call.observe((Part("output", {"": output}),), as_output=True)
    snapshot = None
    if not others_run():
        try:
            snapshot = Snapshot(call.state)
        except StateError:
            return [], False
    try:
        again = call.run()
    except Exception as error:
        what = f"raised {type(error).__name__} when called again with the same input"
        return [BrokenPromise(call.name, what, _REPEATABLE, blocks=False)], True
    finally:
        if snapshot is not None:
            snapshot.restore()
    second = call.observe((Part("output", {"": again}),), as_output=True)
    complete = first.complete and second.complete
    for difference in differences(first, second):
        where = f" (`{difference.path}`)" if difference.path != "output" else ""
        what = f"returned something else for the same input{where}"
        return [BrokenPromise(call.name, what, _REPEATABLE, blocks=False)], complete
    return [], complete


def _iterator_of(function: Any) -> Any:
    """The iterator whose `next` this is, or None."""
    if getattr(function, "__name__", None) != "__next__":
        return None
    return getattr(function, "__self__", None)


# --- stateful ------------------------------------------------------------------------------------


def _check_stateful(call: _Call) -> Checked:
    try:
        before_call = Snapshot(call.state)
    except StateError:
        return Checked(call.run(), [], False)
    covered = {id(part) for part in before_call.objects}
    # An object that saves itself is believed: what it leaves out is its own affair, such as
    # counters and scratch memory.
    own = parts_by_id(before_call.saved_by_themselves)
    iterator = _iterator_of(call.function)
    if iterator is not None and type(iterator).__module__ == "builtins":
        # Its position cannot be state, nor does replaying need it to be.
        own[id(iterator)] = iterator
    classes = {type(part) for part in before_call.objects if is_users(type(part))}

    def look() -> Observation:
        roots = call_roots(call.function, call.args, call.kwargs)
        return call.observe(roots, covered=covered, exempt=own, classes=classes)

    beside = Beside()
    before = look()
    output = call.run()
    if others_run():
        # Putting the state back for a moment could undo what another thread does in it.
        after = look()
        beside.end()
        found = list(differences(before, after, may_change=covered))
        kept = _made_by_the_call(found, after, look, beside)
    else:
        try:
            after_call = Snapshot(call.state)
        except StateError:
            return Checked(output, [], False)
        try:
            before_call.restore()
            after = look()
        finally:
            after_call.restore()
        kept = found = list(differences(before, after))
    complete = before.complete and after.complete and len(kept) == len(found)
    return Checked(output, call.told(kept), complete)


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
    return Checked(output, *watch.broken())


# --- other threads -------------------------------------------------------------------------------


def _made_by_the_call(
    found: list[Difference], after: Observation, look: Callable[[], Observation], beside: Beside
) -> list[Difference]:
    """Leave out what other threads change while nobody calls the function."""
    if not found or not others_run():
        return found
    beside.again()
    moving = {difference.path for difference in differences(after, look())}
    return [difference for difference in found if difference.path not in moving]


# --- sentences -----------------------------------------------------------------------------------

_REPEATABLE = (
    'declare it effect="stateful" and put everything that its output depends on into the loop\'s '
    'state, or declare it effect="effectful"'
)


def _promise(call: _Call, difference: Difference) -> BrokenPromise:
    where, owner = (_with_name(call, path) for path in (difference.path, difference.owner))
    uncovered = ", which is not in the loop's state" if call.effect == "stateful" else ""
    if difference.style == "generator":
        what, remedy = f"draws random numbers from {where}", _declare(call, "")
        return BrokenPromise(call.name, what, remedy, blocks=call.effect != "pure")
    if difference.drawn:
        what = f"draws random numbers from `{where}`{uncovered}"
        remedy = _declare(call, f"put `{where}` into")
        return BrokenPromise(call.name, what, remedy, blocks=call.effect != "pure")
    if difference.style == "argument":
        what = f"changes its {where}{uncovered}"
        remedy = (
            "return a new object, or name the buffer in writes= if it is an array or a tensor, "
            'or declare it effect="effectful"'
        )
        return BrokenPromise(call.name, what, remedy)
    if issubclass(difference.kind, types.FunctionType):  # a variable, not a part of an object
        what = f"changes `{where}`{uncovered}"
        return BrokenPromise(call.name, what, _declare(call, f"keep `{where}` in an object of"))
    kind = "" if owner == where else f" (in a {difference.kind.__qualname__})"
    what = f"changes `{where}`{kind}{uncovered}"
    return BrokenPromise(call.name, what, _declare(call, f"put `{owner or where}` into"))


def _declare(call: _Call, action: str) -> str:
    """What to declare: `action` is what to do with the loop's state, if anything."""
    steps = [] if call.effect == "stateful" else ['declare it effect="stateful"']
    if action:
        steps.append(f"{action} the loop's state")
    return " and ".join(steps)


def _with_name(call: _Call, path: str) -> str:
    """`argument 1` with the name that the function gives it."""
    found = re.match(r"argument (\d+)", path)
    if found is None:
        return path
    try:
        names = list(inspect.signature(call.function).parameters.values())
    except (TypeError, ValueError):
        return path
    number = int(found[1])
    if number >= len(names) or names[number].kind is inspect.Parameter.VAR_POSITIONAL:
        return path
    return f"{found[0]} ({names[number].name}){path[found.end() :]}"
