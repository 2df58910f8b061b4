"""Looking inside a stage: the same experiment on the functions that it calls.

The call tree is sampled while the loop runs; the children that make up most of the stage become
stages, where they can be wrapped, and the experiment is run on them; then on the children of the
one that gains most, until that is native code, at the machine's roof, or not worth it.
"""

import gc
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hotloop.benchmark.stack_sampler import StackSampler
from hotloop.errors import StageError
from hotloop.loop.arm import REAL, Arm
from hotloop.loop.conduct import Measurement, Request
from hotloop.loop.control import SharedControl
from hotloop.loop.figures import Interval
from hotloop.loop.loop import Loop
from hotloop.loop.stage import Stage
from hotloop.loop.stage_types import StageView
from hotloop.simplify.experiment import Experiment
from hotloop.simplify.judge import judge
from hotloop.simplify.record import Record
from hotloop.simplify.settings import SimplifySettings
from hotloop.simplify.verdict import Verdict

COVERED = 0.8  # of the stage's samples, by the children that are looked at
LEAST_NS = 20_000  # a cheaper call would be mostly probe
NEAR_ROOF = 0.8
MAX_DEPTH = 4
SAMPLE_S = 1.5
HOT_LINES = 5


@dataclass
class CallTree:
    """The sampled time of the stack below a stage, in ns."""

    inside: int = 0
    children: Counter[types.CodeType] = field(default_factory=Counter)
    lines: Counter[tuple[str, int, str]] = field(default_factory=Counter)

    def take(self, code: types.CodeType, stack: Sequence[types.FrameType], seconds: float) -> None:
        """Count one sample for so much time, if `code` is running in it."""
        codes = [frame.f_code for frame in stack]
        depth = next((k for k, each in enumerate(codes) if each is code), None)
        if depth is None:
            return
        ns = round(seconds * 1e9)
        self.inside += ns
        at = codes[0]
        self.lines[(at.co_filename, stack[0].f_lineno, at.co_name)] += ns
        if depth:
            self.children[_past_probe(codes[:depth])] += ns


@dataclass
class Level:
    """One stage looked into."""

    stage: str
    children: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # with why
    hot_lines: list[tuple[str, int, str, float]] = field(default_factory=list)
    record: Record | None = None
    verdict: Verdict | None = None
    stopped: str | None = None  # why no deeper level follows


class Deepening:
    """Looks into one stage, level by level; `run` is the measurement, `levels` its findings."""

    def __init__(
        self, control: SharedControl, settings: SimplifySettings, stage: str, target: str
    ) -> None:
        self.levels: list[Level] = []
        self._control = control
        self._settings = settings
        self._stage = stage
        self._target = target
        self._undo: list[Callable[[], None]] = []
        self._codes: dict[str, types.CodeType] = {}

    def run(self, loop: Loop) -> Measurement[None]:
        """Sample, wrap, experiment, and go on into the child that gains most."""
        begin = self._control.clock.now_ns()
        name = self._stage
        try:
            # A stage is known from its first call on.
            yield Request(Arm("first", rest=REAL), iterations=2, phase="first iterations")
            self._check(name)
            for depth in range(MAX_DEPTH):
                level = Level(name)
                self.levels.append(level)
                yield from self._look_into(level)
                spent = (self._control.clock.now_ns() - begin) * 1e-9
                left = self._settings.budget - spent
                # Half of what is left for each level: the last ones have the fewest arms.
                budget = left if depth == MAX_DEPTH - 1 or not level.children else max(left / 2, 3)
                experiment = Experiment(
                    self._control,
                    replace(self._settings, budget=budget),
                    focus=frozenset([name, *level.children]),
                )
                level.record = experiment.record
                try:
                    yield from experiment.run(loop)
                finally:  # also what a level had measured when it was cut short
                    if level.record.ns:
                        level.verdict = judge(
                            level.record, self._target, self._settings.worth, self._settings.seed
                        )
                chosen = self._next(level)
                if chosen is None:
                    return
                if left - budget < 3:
                    level.stopped = f"the budget is used up; go on with --deepen {chosen!r}"
                    return
                name = chosen
        finally:
            for undo in reversed(self._undo):
                undo()

    def _check(self, name: str) -> None:
        known = self._control.stages.get(name)
        if known is None:
            stages = ", ".join(self._control.stages)
            raise StageError(f"--deepen {name!r}: the loop has no such stage; it has {stages}")
        if known.function is None:
            raise StageError(
                f"--deepen {name!r}: only a stage around a function can be looked into; put one "
                "around the function that does its work"
            )
        self._codes[name] = _code_of(known.function)

    def _look_into(self, level: Level) -> Measurement[None]:
        tree = CallTree()
        sampler = StackSampler(partial(tree.take, self._codes[level.stage]))
        try:
            yield Request(
                Arm("sampling", rest=REAL),
                seconds=SAMPLE_S,
                before=sampler.start,
                phase=f"sampling {level.stage}",
            )
        finally:
            sampler.stop()
        level.hot_lines = [
            (file, line, function, spent / max(tree.inside, 1))
            for (file, line, function), spent in tree.lines.most_common(HOT_LINES)
        ]
        parent = self._control.stages[level.stage]
        covered = 0
        for code, spent in tree.children.most_common():
            if covered >= COVERED * tree.inside:
                break
            covered += spent
            name = f"{level.stage}/{code.co_name.strip('_')}"
            share = spent / tree.inside
            if not self._wrap(code, name, parent):
                level.left_out.append(f"{code.co_name} ({share:.0%}): found nowhere to wrap it")
            else:
                level.children.append(name)
                self._codes[name] = code
        if level.children:
            yield from self._drop_cheap(level)

    def _drop_cheap(self, level: Level) -> Measurement[None]:
        block = yield Request(Arm("trial", rest=REAL), seconds=0.3, phase="trying the children")
        for name in list(level.children):
            index = self._control.stages[name].index
            times = [e.end_ns - e.start_ns for e in block.events if e.stage == index]
            if not times or sum(times) / len(times) < LEAST_NS:
                took = f"{sum(times) / len(times) / 1e3:.0f} µs a call" if times else "not called"
                level.children.remove(name)
                level.left_out.append(f"{name} ({took}): cheaper than it can be measured")

    def _next(self, level: Level) -> str | None:
        """The child to look into next, or None with `stopped` set."""
        assert level.record is not None
        if level.verdict is None:
            level.stopped = "the budget ended before its first round; give a larger --budget"
            return None
        if level.verdict.refused is not None:
            level.stopped = level.verdict.refused
            return None
        rows = [row for row in level.verdict.rows if row.name in level.children]
        if not rows:
            level.stopped = f"{level.stage} is one piece: what it calls is native, or too short"
            return None
        worth = [row for row in rows if row.verdict == "fix"]
        if not worth:
            level.stopped = "no part of it alone is worth it, as far as parts can be replaced"
            return None
        top = max(worth, key=lambda row: row.gain.value if isinstance(row.gain, Interval) else 0.0)
        if _is_native(self._codes[top.name]):
            level.stopped = f"{top.name} is a library's own operation"
            return None
        roof = _share_of_roof(level.record, top.name)
        if roof is not None and roof >= NEAR_ROOF:
            level.stopped = f"{top.name} runs at {roof:.0%} of what this machine can do"
            return None
        return top.name

    def _wrap(self, code: types.CodeType, name: str, parent: StageView) -> bool:
        wrapped = False
        assert parent.function is not None
        for function in _functions_of(code):
            for get, put in _holders(function, parent.function):
                before = get()
                bound = isinstance(before, staticmethod | classmethod)
                inner = before.__func__ if bound else before
                # What a parent declares of its effects holds for the functions that it calls.
                made = Stage(name, kind=parent.kind, effect=parent.effect, control=self._control)
                staged: Any = made(inner)
                put(type(before)(staged) if bound else staged)
                self._undo.append(_putter(put, before))
                wrapped = True
        return wrapped


def _past_probe(below: Sequence[types.CodeType]) -> types.CodeType:
    """The outermost function that is the user's: the child may be a stage's own wrapper."""
    here = str(Path(__file__).parents[1] / "loop")
    users = (code for code in reversed(below) if not code.co_filename.startswith(here))
    return next(users, below[-1])


def _code_of(function: Callable[..., Any]) -> types.CodeType:
    inner = getattr(function, "__func__", function)
    while hasattr(inner, "__wrapped__") and not hasattr(inner, "__code__"):
        inner = inner.__wrapped__
    code = getattr(inner, "__code__", None)
    if code is None:
        code = getattr(type(function).__dict__.get("__call__"), "__code__", None)
    if not isinstance(code, types.CodeType):
        raise StageError(
            f"{function!r} is native code: there is nothing inside it that Python could see"
        )
    return code


def _functions_of(code: types.CodeType) -> list[types.FunctionType]:
    return [
        function
        for function in gc.get_referrers(code)
        if isinstance(function, types.FunctionType) and function.__code__ is code
    ]


Holder = tuple[Callable[[], Any], Callable[[Any], None]]


def _holders(function: types.FunctionType, user: Callable[..., Any]) -> Iterator[Holder]:
    """Yield where `user` finds `function`: module names, closure, or the function's class."""
    using = getattr(user, "__func__", user)
    scopes = [getattr(using, "__globals__", {}), function.__globals__]
    seen: set[tuple[int, str]] = set()
    for scope in scopes:
        for name in [name for name, value in scope.items() if value is function]:
            if (id(scope), name) not in seen:
                seen.add((id(scope), name))
                yield _item(scope, name)
    for cell in getattr(using, "__closure__", None) or ():
        if cell.cell_contents is function:
            yield _cell(cell)
    owner: Any = sys.modules.get(function.__module__)
    *path, name = function.__qualname__.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    if isinstance(owner, type):
        held = vars(owner).get(name)
        inner = held.__func__ if isinstance(held, staticmethod | classmethod) else held
        if inner is function:
            yield _attribute(owner, name)


def _item(scope: dict[str, Any], name: str) -> Holder:
    return (lambda: scope[name]), (lambda value: scope.__setitem__(name, value))


def _cell(cell: types.CellType) -> Holder:
    return (lambda: cell.cell_contents), (lambda value: setattr(cell, "cell_contents", value))


def _attribute(owner: type, name: str) -> Holder:
    return (lambda: vars(owner)[name]), (lambda value: setattr(owner, name, value))


def _putter(put: Callable[[Any], None], value: Any) -> Callable[[], None]:
    return lambda: put(value)


def _is_native(code: types.CodeType) -> bool:
    """Whether a function belongs to an installed library, which its user cannot change."""
    return "site-packages" in code.co_filename or code.co_filename.startswith(sys.base_prefix)


def _share_of_roof(record: Record, name: str) -> float | None:
    work, peaks = record.work, record.peaks
    if work is None or peaks is None or name not in work.by_stage:
        return None
    flops, moved = work.by_stage[name]
    if not flops:
        return None
    least_ns = max(flops / peaks.flops_per_s, moved / peaks.bytes_per_s) * 1e9
    return least_ns / record.stage(name).ns_per_iteration
