"""The profile of a loop: warm up, then one profile after the other, each with its own cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hotloop.benchmark.warmup import warm_up
from hotloop.errors import StageError, nearest
from hotloop.loop.arm import REAL, Arm
from hotloop.loop.conduct import Measurement, Request
from hotloop.loop.control import SharedControl
from hotloop.loop.loop import Loop
from hotloop.profile.memory import MemoryProfile, profile_memory
from hotloop.profile.model_costs import ModelProfile
from hotloop.profile.model_profile import profile_model
from hotloop.profile.network_profile import NetworkProfile, profile_network
from hotloop.profile.settings import ProfileSettings
from hotloop.profile.stacks import Stacks
from hotloop.profile.time_profile import TimeProfile, profile_time
from hotloop.profile.tool import ToolError

WARM_UP_S = 2.0  # at most


@dataclass(frozen=True)
class Aspect:
    """One kind of profile. kind: what it finds; measure: how."""

    kind: type[Any]
    measure: Callable[[SharedControl, ProfileSettings, "ProfileRecord"], Measurement[Any]]


@dataclass
class ProfileRecord:
    """What was found so far. profiles: by aspect; not_profiled: why there is none, by aspect."""

    loop: Loop | None = None
    stages: list[str] = field(default_factory=list)
    profiles: dict[str, Any] = field(default_factory=dict)
    not_profiled: dict[str, str] = field(default_factory=dict)
    stacks: Stacks | None = None  # all that was sampled


class Profile:
    """Profiles one loop; `run` is the measurement, `record` what it has found so far.

    stage: only what is in this stage; None: all of the loop.
    """

    def __init__(
        self, control: SharedControl, settings: ProfileSettings, stage: str | None = None
    ) -> None:
        self.settings = settings
        self.record = ProfileRecord()
        self._control = control
        self._stage = stage

    def run(self, loop: Loop) -> Measurement[None]:
        """Warm up, then do all profiles that are asked for."""
        record = self.record
        record.loop = loop
        yield from warm_up(self._control.clock.now_ns, WARM_UP_S)
        seen = yield Request(Arm("stages", rest=REAL), iterations=2, phase="first iterations")
        names = self._control.names()
        record.stages = sorted({names[event.stage] for event in seen.events})
        if self._stage is not None and self._stage not in self._control.stages:
            raise StageError(
                f"--stage {self._stage!r}: the loop has no such stage"
                f"{nearest(self._stage, self._control.stages)}"
            )
        for name in self.settings.aspects:
            try:
                record.profiles[name] = yield from ASPECTS[name].measure(
                    self._control, self.settings, record
                )
            except ToolError as problem:
                record.not_profiled[name] = str(problem)


def _time(
    _control: SharedControl, settings: ProfileSettings, record: ProfileRecord
) -> Measurement[TimeProfile]:
    found, record.stacks = yield from profile_time(settings)
    return found


def _of_loop(
    profile: Callable[[SharedControl, ProfileSettings], Measurement[Any]],
) -> Callable[[SharedControl, ProfileSettings, ProfileRecord], Measurement[Any]]:
    """A profile that leaves nothing but what it returns."""
    return lambda control, settings, _record: profile(control, settings)


# What `hotloop profile` can be asked for, by the name of its option.
ASPECTS: Mapping[str, Aspect] = {
    "time": Aspect(TimeProfile, _time),
    "memory": Aspect(MemoryProfile, _of_loop(profile_memory)),
    "model": Aspect(ModelProfile, _of_loop(profile_model)),
    "network": Aspect(NetworkProfile, _of_loop(profile_network)),
}
