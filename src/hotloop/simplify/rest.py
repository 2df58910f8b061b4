"""Where the time goes that is in no stage: the functions and lines that run between the stages.

The loop's thread is sampled while each call of a stage runs in a frame with the stage's name. A
sample without such a frame belongs to the outermost function that calls no stage itself; where
there is none, to the function that calls stages.
"""

import dataclasses
import sys
import types
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hotloop.benchmark.stack_sampler import StackSampler
from hotloop.loop.arm import NAMED, Arm
from hotloop.loop.conduct import Measurement, Request
from hotloop.loop.named_call import FRAME
from hotloop.simplify.record import Record
from hotloop.simplify.stage_facts import Place

SAMPLE_S, SAMPLE_SHARE = 1.0, 0.04  # so long at the most, and so much of the budget
MOST_TIMES = 5  # until a sample lies within a stage, which tells what calls stages
WORTH_A_NAME, MOST = 0.03, 5  # of the time is at a place, at least; places at the most

_HOTLOOP = Path(__file__).parents[1]
# Parts of hotloop that run between the stages only because they measure.
_OWN = tuple(str(_HOTLOOP / part) for part in ("loop", "recognise", "results", "simplify"))


@dataclass(frozen=True)
class Frame:
    """A frame of a sampled stack."""

    code: types.CodeType
    line: int
    module: str


@dataclass
class RestSamples:
    """The time at each stack that was sampled, and which functions call stages.

    seconds: of all samples, those within stages included.
    """

    seconds: float = 0.0
    around: set[types.CodeType] = field(default_factory=set)
    stacks: dict[tuple[Frame, ...], float] = field(default_factory=dict)

    def take(self, stack: Sequence[types.FrameType], seconds: float) -> None:
        """Count one sample, the innermost frame first, for so much time."""
        self.seconds += seconds
        codes = [frame.f_code for frame in reversed(stack)]
        staged = next((k for k, code in enumerate(codes) if code.co_name.startswith(FRAME)), None)
        if staged is not None:
            self.around.update(codes[:staged])
            return
        frames = tuple(_frame(each) for each in reversed(stack))
        self.stacks[frames] = self.stacks.get(frames, 0.0) + seconds

    def places(self, rest_share: float | None) -> list[Place]:
        """What runs between the stages, by its share of the time.

        rest_share: of the time, as timed, that is between the stages; None: as sampled. Samples say
        best what it is made of: where no core is free for the sampler, most are taken where the
        loop sleeps.
        """
        between_s = sum(self.stacks.values())
        if not self.around or not between_s:
            return []
        if rest_share is None:
            rest_share = between_s / self.seconds
        lines: dict[tuple[types.CodeType, str | None], Counter[int]] = {}
        for stack, seconds in self.stacks.items():
            frame, stage = self._at(stack)
            if not frame.code.co_filename.startswith(_OWN):
                of_function = lines.setdefault((frame.code, stage), Counter())
                of_function[frame.line] += round(seconds * 1e9)
        shares = {key: of.total() * 1e-9 / between_s * rest_share for key, of in lines.items()}
        found = [
            Place(
                share=shares[code, stage],
                function=code.co_qualname,
                file=code.co_filename,
                line=of.most_common(1)[0][0],
                calls_stages=code in self.around,
                stage=stage,
            )
            for (code, stage), of in lines.items()
            if shares[code, stage] >= WORTH_A_NAME
        ]
        return sorted(found, key=lambda place: -place.share)[:MOST]

    def _at(self, stack: Sequence[Frame]) -> tuple[Frame, str | None]:
        """The frame that stands for a sample, and the name by which it can be made a stage."""
        depth = next((k for k, each in enumerate(stack) if each.code not in self.around), None)
        if depth is None:
            return stack[-1], None
        # A decorator's wrapper and a comprehension have no name; what they call may have one.
        named = ((each, _stage_name(each)) for each in stack[depth:])
        unnamed = depth - 1 if depth and stack[depth].code.co_name.startswith("<") else depth
        return next((each for each in named if each[1] is not None), (stack[unnamed], None))


def sample_rest(records: Sequence[Record], budget: float) -> Measurement[None]:
    """Find what runs between the stages, for these records of a loop. budget: of all, in s."""
    samples = RestSamples()
    sampler = StackSampler(samples.take)
    seconds = min(SAMPLE_S, SAMPLE_SHARE * budget)
    request = Request(
        Arm("sampling", rest=NAMED),
        seconds=seconds,
        before=sampler.start,
        phase="sampling between the stages",
    )
    iterations = 0
    try:
        for _ in range(MOST_TIMES):
            block = yield request
            iterations += len(block.duration_ns)
            # A sampler that hardly ran will not do so the next time either.
            if samples.around or samples.seconds < 0.5 * seconds:
                break
            request = dataclasses.replace(request, before=None)
    finally:
        sampler.stop()
    for record in records:
        record.iterations_kept += iterations
        # Of a loop that is measured phase by phase, the stages have not been timed yet.
        record.rest_share_when_sampled = record.rest_share if record.stages else None
        record.rest_places = samples.places(record.rest_share_when_sampled)


def _frame(frame: types.FrameType) -> Frame:
    return Frame(frame.f_code, frame.f_lineno or 0, str(frame.f_globals.get("__name__", "")))


def _stage_name(frame: Frame) -> str | None:
    """The name by which a user can make a frame's function a stage: module:function."""
    found: object = sys.modules.get(frame.module)
    for part in frame.code.co_qualname.split("."):
        found = getattr(found, part, None)
    return f"{frame.module}:{frame.code.co_qualname}" if callable(found) else None
