"""The recognised parts of one script: its stages, what it counts, and the objects they work on."""

import functools
import importlib
import os
import sys
import weakref
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from inspect import iscoroutinefunction, isfunction, isgeneratorfunction
from pathlib import Path
from threading import get_ident
from types import ModuleType
from typing import Any, Self

from hotloop.errors import SettingError, did_you_mean
from hotloop.loop.after_import import after_import
from hotloop.loop.arm import Kind
from hotloop.loop.control import SharedControl
from hotloop.loop.stage import Stage
from hotloop.loop.stage_types import Effect, StageKind
from hotloop.recognise.counted_call import counted_first
from hotloop.recognise.one_argument import takes_one_argument, with_one_argument
from hotloop.recognise.patches import Patches
from hotloop.recognise.place_stage import (
    PLAIN,
    Elsewhere,
    Inside,
    PlaceStage,
    Replay,
)
from hotloop.recognise.places import PLACES

# What is counted, the one that says most about a training first.
ENV_STEPS, SAMPLES = "env steps", "samples"
MAIN = "__main__"


def _itself(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


class Recognition:
    """A context in which the places of the libraries that a script imports are stages.

    units: how many of each unit were seen since this was made, by its name.
    objects: by name of a stage, the objects whose state its calls change, such as envs.
    """

    def __init__(
        self,
        control: SharedControl,
        own: Sequence[str] = (),
        *,
        may_go_on: Sequence[str] = (),
        keeps_objects: bool = True,
    ) -> None:
        """Prepare it.

        own: functions of the user that are stages too, as module:function. may_go_on: stages whose
        objects go on where they cannot be put back. keeps_objects: whether `objects` are noted;
        what only times calls must not keep alive what they work on.
        """
        self.control = control
        self._own = own
        self.may_go_on = may_go_on
        self._left_out: frozenset[str] = frozenset()
        self._by_place = {place: Patches() for place in PLACES.values()}
        self._keeps_objects = keeps_objects
        self.folder: Path | None = None  # for files of hotloop's own, while the script's go nowhere
        self.inside = Inside()
        self.patches = Patches()
        self.units: dict[str, float] = {}
        self.objects: dict[str, list[Any]] = {}
        self.stages: dict[str, PlaceStage] = {}
        self.kept: dict[str, Any] = {}  # what the places of one stage share
        self.not_put_back: dict[str, None] = {}  # what the loop changes and no snapshot has, named
        self.own_names: list[str] = []  # stages that are functions of the user's
        self.turn = 0  # which optimiser steps, by its number, from 1 on
        self._turns: dict[int, int] = {}
        # What every stage does, one byte each; a forked child, which is no part of the loop that
        # is measured, has another one in which nothing is measured.
        self.modes: memoryview | bytes = control.modes
        self._seen: set[tuple[str, int]] = set()
        self._waiting: list[Callable[[], None]] = []

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Elsewhere, ()

    def __enter__(self) -> Self:
        _live.add(self)
        self.modes = self.control.modes
        for library, place in PLACES.items():
            self._after_import(library, self._installing(place))
        for each in self._own:
            module, _, name = each.partition(":")
            if module != MAIN:
                self._after_import(module, self._staging(name))
        return self

    def __exit__(self, *_raised: object) -> None:
        _live.discard(self)
        for stop_waiting in self._waiting:
            stop_waiting()
        self._waiting.clear()
        for patches in (*self._by_place.values(), self.patches):
            patches.undo()
        for stage in self.stages.values():
            stage.obey(Kind.OFF)
        # What stays within what somebody put over it calls the library's own, and nothing else.
        self.modes = Elsewhere.modes

    def drop_unused(self) -> None:
        """Put the library's own methods back where they were only called within others."""
        for patches in (*self._by_place.values(), self.patches):
            patches.drop_unused()

    def leave_out(self, places: Collection[str]) -> None:
        """Put the library's own functions back at these places, and only at these.

        places: files of `hotloop.recognise.places`. The stages stay the same ones.
        """
        before, self._left_out = self._left_out, frozenset(places)
        for place in self._left_out - before:
            self._by_place[place].undo()
        for library, place in PLACES.items():
            if place in before - self._left_out and library in sys.modules:
                self._installing(place)(sys.modules[library])

    def _installing(self, place: str) -> Callable[[ModuleType], None]:
        def install(library: ModuleType) -> None:
            if place in self._left_out:
                return
            outer, self.patches = self.patches, self._by_place[place]
            try:
                importlib.import_module(f"hotloop.recognise.places.{place}").install(self, library)
            finally:
                self.patches = outer

        return install

    def _after_import(self, library: str, install: Callable[[ModuleType], None]) -> None:
        """Change a further module of a library once it is imported, or now if it is."""
        self._waiting.append(after_import(library, install))

    def _staging(self, name: str) -> Callable[[ModuleType], None]:
        """What makes a function or method of the user's a stage once its module is there."""

        def install(module: ModuleType) -> None:
            owner: Any = module
            *outer, last = name.split(".")
            for part in [*outer, last]:
                if not hasattr(owner, part):
                    known = [each for each in vars(owner) if callable(getattr(owner, each))]
                    hint = did_you_mean(part, known)
                    raise SettingError(f"--stage {module.__name__}:{name}: no {part!r} there{hint}")
                holder, owner = owner, getattr(owner, part)
            self.patches.function(holder, last, self.own_stage(name))

        return install

    def own_stage(self, name: str) -> Callable[[Any], Any]:
        """Return what makes a function of the user's a stage.

        It is declared pure, which the experiment checks before anything is replaced: where it finds
        that more is changed, the stage is delayed only.
        """
        self.own_names.append(name)
        stage, inside = Stage(name, effect="pure", control=self.control), self.inside

        def make(function: Any) -> Any:
            staged = stage(function)
            if (
                not isfunction(function)
                or isgeneratorfunction(function)
                or iscoroutinefunction(function)
            ):
                return staged

            @functools.wraps(function)
            def own(*args: Any, **kwargs: Any) -> Any:
                inside.own += 1
                try:
                    return staged(*args, **kwargs)
                finally:
                    inside.own -= 1

            return own

        return make

    def is_within_own(self, name: str) -> bool:
        """Whether the call of a stage that now begins is within a function of the user's."""
        return self.inside.own > (name in self.own_names)

    def main_stages(self) -> Mapping[str, Callable[[Any], Any]]:
        """Return what is put around functions of the script itself, by their names."""
        names = [each.partition(":")[2] for each in self._own if each.startswith(f"{MAIN}:")]
        return {name: self.own_stage(name) for name in names}

    def stage(
        self,
        name: str,
        *,
        effect: Effect,
        kind: StageKind = "cpu",
        within: PlaceStage | None = None,
        alone: bool = True,
        part_of: str | None = None,
    ) -> PlaceStage:
        """Return the stage of this name, which is made by the first place that has calls of it.

        within: a stage that each of its calls is also one of. alone: whether it can be replaced
        while the rest of that stage is not. part_of: what it is a part of, with other stages: an
        experiment also says what they gain together.
        """
        if name not in self.stages:
            made = PlaceStage(name, effect=effect, kind=kind, control=self.control, within=within)
            if within is not None and not alone:
                made.cannot_replace = f"judged together, as {within.name}"
            made.part_of = part_of
            self.stages[name] = made
        return self.stages[name]

    def method(
        self,
        stage: PlaceStage,
        *,
        key: Callable[[Any, tuple[Any, ...], dict[str, Any]], Hashable] | None = None,
        replay: Replay = PLAIN,
        units: tuple[str, Callable[[Any, Any], float]] | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return what makes a method the stage's, for `Patches`.

        key: the kind of a call, of the object and the arguments; None: the object's identity.
        units: what a call counts, and how many, of the object and the output.
        """
        recognition, inside, index = self, self.inside, stage.index
        kind_of = _identity if key is None else key

        def make(function: Callable[..., Any]) -> Callable[..., Any]:
            used = [False]

            def measured(self: Any, *args: Any, **kwargs: Any) -> Any:
                used[0] = True
                if stage.effect == "stateful":
                    recognition.note(stage.name, self)
                kind = functools.partial(kind_of, self, args, kwargs)
                inside.now = True
                try:
                    output = stage.call(function, (self, *args), kwargs, kind, replay)
                finally:
                    inside.now = False
                if units is not None:
                    name, number = units
                    recognition.count(name, number(self, output))
                return output

            first = counted_first(function, measured, recognition, stage, inside)
            if takes_one_argument(function):
                first = with_one_argument(function, first, recognition, index, inside)
            first.used = used  # type: ignore[attr-defined]
            return first

        return make

    def function(
        self,
        stage: PlaceStage,
        *,
        replay: Replay = PLAIN,
        main_only: bool = False,
        measured_as: Callable[[Callable[..., Any]], Callable[..., Any]] = _itself,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return what makes a function the stage's, for `Patches`.

        main_only: whether calls of other threads than the script's own are left as they are.
        measured_as: what makes of the function the one that is called where calls are measured.
        """
        recognition, inside, index = self, self.inside, stage.index
        control = self.control

        def make(function: Callable[..., Any]) -> Callable[..., Any]:
            measured = measured_as(function)

            def kind() -> Hashable:
                return function

            def staged(*args: Any, **kwargs: Any) -> Any:
                if not recognition.modes[index] or inside.now:
                    return function(*args, **kwargs)
                if main_only and get_ident() != control.main_thread:
                    return function(*args, **kwargs)
                inside.now = True
                try:
                    return stage.call(measured, args, kwargs, kind, replay)
                finally:
                    inside.now = False

            return staged

        return make

    def iterator(
        self, stage: PlaceStage, units: tuple[str, Callable[[Any], float]]
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return what makes each item of a method that returns an iterator a call of the stage."""
        recognition, inside, index = self, self.inside, stage.index

        def make(function: Callable[..., Any]) -> Callable[..., Any]:
            def staged(self: Any, *args: Any, **kwargs: Any) -> Any:
                items = iter(function(self, *args, **kwargs))

                def kind() -> Hashable:
                    return type(self).__qualname__

                while True:
                    try:
                        if not recognition.modes[index] or inside.now:
                            item = next(items)
                        else:
                            inside.now = True
                            try:
                                item = stage.call(next, (items,), {}, kind)
                            finally:
                                inside.now = False
                            recognition.count(units[0], units[1](item))
                    except StopIteration:
                        return
                    yield item

            return staged

        return make

    def count(self, unit: str, number: float) -> None:
        """Count units of work."""
        self.units[unit] = self.units.get(unit, 0.0) + number

    def note(self, stage: str, worked_on: Any) -> None:
        """Note an object that calls of a stage work on."""
        if self._keeps_objects and (stage, id(worked_on)) not in self._seen:
            self._seen.add((stage, id(worked_on)))
            self.objects.setdefault(stage, []).append(worked_on)

    def note_within(self, stage: str, outer: Any, inner: Any) -> None:
        """Note an object in place of another one that passes calls on to it.

        Only what is noted is put back.
        """
        self._seen.add((stage, id(outer)))
        self.note(stage, inner)

    def note_step(self, optimiser: Any) -> None:
        """Note which optimiser steps next."""
        self.turn = self._turns.setdefault(id(optimiser), len(self._turns) + 1)

    def state(self) -> Sequence[object]:
        """Return all objects whose state the recognised calls change."""
        return [each for objects in self.objects.values() for each in objects]


def _identity(owner: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Hashable:
    return id(owner)


_live: "weakref.WeakSet[Recognition]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for recognition in list(_live):
        recognition.modes = Elsewhere.modes


os.register_at_fork(after_in_child=_after_fork_in_child)
