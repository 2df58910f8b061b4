"""Where the time goes, by stage, function and line, with the best sampler that works here."""

from dataclasses import dataclass, field

from hotloop.loop.conduct import Measurement
from hotloop.profile.flame import Node, tree
from hotloop.profile.samplers import SAMPLERS, Sampler
from hotloop.profile.settings import ProfileSettings
from hotloop.profile.stacks import HotFunction, Stacks, StageShare
from hotloop.profile.tool import NotUsed, Overhead, ToolError
from hotloop.profile.turns import in_turns

MOST_FUNCTIONS = 40


@dataclass
class TimeProfile:
    """What the samples of a loop's stacks say.

    samples: of the lane that runs the loop; a sampler that weighs them counts microseconds.
    """

    overhead: Overhead
    samples: int
    stages: list[StageShare] = field(default_factory=list)
    functions: list[HotFunction] = field(default_factory=list)
    flame: Node = field(default_factory=lambda: Node("all"))


def profile_time(settings: ProfileSettings) -> Measurement[tuple[TimeProfile, Stacks]]:
    """Sample the loop's stacks; also returns all of them, for a file.

    Raises: ToolError if no sampler works.
    """
    not_used: list[NotUsed] = []
    for name, make in SAMPLERS.items():
        try:
            sampler: Sampler = make(settings.rate_per_s, settings.native)
            turns = yield from in_turns(
                settings.seconds, sampler.start, sampler.stop, phase=f"profiling time ({name})"
            )
        except ToolError as problem:
            not_used.append(NotUsed(name, str(problem)))
            continue
        stacks = sampler.stacks()
        found = TimeProfile(
            Overhead(name, turns.slowdown, turns.iterations, not_used),
            stacks.samples,
            stacks.stages(),
            stacks.functions()[:MOST_FUNCTIONS],
            tree(stacks),
        )
        return found, stacks
    raise ToolError("; ".join(f"{each.tool}: {each.why}" for each in not_used))
