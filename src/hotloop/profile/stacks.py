"""Stacks that were sampled, by stage: where the time goes, down to the line."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hotloop.loop.named_call import FRAME

_PACKAGE = Path(__file__).parents[1]
_LOOP = str(_PACKAGE / "loop")
# What runs the iterations, and what of it works for the measurement between two of them.
_CONDUCT, _DRIVING, _BETWEEN = str(_PACKAGE / "loop" / "conduct.py"), "drive", ("boundary", "begin")
# Whose functions work for the measurement alone.
_METHOD = tuple(str(_PACKAGE / name) for name in ("benchmark", "profile", "report"))
REST = "the rest"
# Of a lane's samples; what is rarer is not in the tables, and is still in the flame graph.
LEAST_SHARE = 0.005


class Frame(NamedTuple):
    """One function under way, at one of its lines; 0 where there is none, as in native code."""

    function: str
    file: str
    line: int


class Lane(NamedTuple):
    """A thread of a process; is_loop: whether it runs the iterations."""

    name: str
    is_loop: bool


Stack = tuple[Frame, ...]  # the outermost first


@dataclass(frozen=True)
class HotFunction:
    """A function in a stage, with the line of it that takes the most.

    own and total: shares of the stage's samples, in the function and with what it calls; at_line:
    in this line, without what it calls.
    """

    stage: str
    function: str
    file: str
    line: int
    own: float
    total: float
    at_line: float


@dataclass(frozen=True)
class StageShare:
    """A stage in a lane, with its share of the lane's samples, inner stages included."""

    lane: str
    stage: str
    share: float
    samples: int


class Stacks:
    """Counts of stacks, by lane. A stack begins where the loop's iteration or a stage does."""

    def __init__(self) -> None:
        self.counts: dict[Lane, Counter[Stack]] = defaultdict(Counter)

    def add(self, lane: Lane, stack: Iterable[Frame], count: int = 1) -> None:
        """Count a stack, the outermost frame first, unless hotloop itself was at work."""
        frames = tuple(stack)
        if not is_own_work(frames):
            self.counts[lane][_of_the_loop(frames)] += count

    @property
    def samples(self) -> int:
        """Of the lane that runs the loop."""
        return sum(sum(counts.values()) for lane, counts in self.counts.items() if lane.is_loop)

    def stages(self) -> list[StageShare]:
        """The shares of the stages of each lane, the loop's own lane first, and of its rest."""
        found = []
        for lane, counts in sorted(self.counts.items(), key=lambda item: not item[0].is_loop):
            total = sum(counts.values())
            inside: Counter[str] = Counter()
            for stack, count in counts.items():
                for name in stages_in(stack) or ({REST} if lane.is_loop else ()):
                    inside[name] += count
            found += [
                StageShare(lane.name, name, count / total, count)
                for name, count in inside.most_common()
            ]
        return found

    def functions(self) -> list[HotFunction]:
        """The functions that take the most by themselves, by stage."""
        by_stage: dict[str, Counter[Stack]] = defaultdict(Counter)
        for lane, counts in self.counts.items():
            for stack, count in counts.items():
                name = innermost_stage(stack) or (REST if lane.is_loop else None)
                if name is not None:
                    by_stage[name][tuple(f for f in stack if not _is_stage(f))] += count
        found = [
            (sum(counts.values()) * each.own, each)
            for name, counts in by_stage.items()
            for each in _functions(name, counts)
        ]
        return [each for _, each in sorted(found, key=lambda pair: -pair[0])]


def _functions(stage: str, counts: Counter[Stack]) -> Iterator[HotFunction]:
    """The functions of one stage that have enough samples of their own."""
    samples = sum(counts.values())
    total: Counter[tuple[str, str]] = Counter()
    lines: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for stack, count in counts.items():
        for place in {(frame.function, frame.file) for frame in stack}:
            total[place] += count
        if stack:
            lines[stack[-1].function, stack[-1].file][stack[-1].line] += count
    for (function, file), at in lines.items():
        own = sum(at.values())
        if own >= LEAST_SHARE * samples:
            (line, most), *_ = at.most_common(1)
            shares = (count / samples for count in (own, total[function, file], most))
            yield HotFunction(stage, function, file, line, *shares)


def stages_in(stack: Stack) -> set[str]:
    """The stages that a stack is inside of."""
    return {frame.function.removeprefix(FRAME) for frame in stack if _is_stage(frame)}


def innermost_stage(stack: Stack) -> str | None:
    """The stage that a stack is in, without those around it."""
    names = [frame.function.removeprefix(FRAME) for frame in stack if _is_stage(frame)]
    return names[-1] if names else None


def _of_the_loop(stack: Stack) -> Stack:
    """A stack without the frames that run the loop, and without those around a stage's own."""
    begin = 0
    for at, frame in enumerate(stack):
        if frame.file.startswith(_LOOP) and not _is_stage(frame):
            begin = at + 1
        if _is_stage(frame):
            break
    return tuple(f for f in stack[begin:] if _is_stage(f) or not f.file.startswith(_LOOP))


def is_own_work(stack: Sequence[Frame]) -> bool:
    """Whether a stack, the outermost frame first, is of the measurement and not of the loop."""
    for frame in reversed(stack):
        if frame.file == _CONDUCT:
            name = frame.function.rpartition(".")[2]
            if name in _BETWEEN:
                return True
            if name == _DRIVING:
                return False
        if frame.file.startswith(_METHOD):
            return True
    return False


def _is_stage(frame: Frame) -> bool:
    return frame.function.startswith(FRAME)
