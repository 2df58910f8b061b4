"""What a model's stages, operations and modules cost, beside what the machine allows."""

from dataclasses import dataclass, field

from hotloop.benchmark.peaks import Peaks
from hotloop.profile.tool import Overhead


@dataclass(frozen=True)
class Cost:
    """What something takes in an iteration. time_ns: on the card if the loop computes on one."""

    calls: float
    flops: float
    moved_bytes: float
    time_ns: float

    @property
    def intensity(self) -> float:
        """FLOPs for each byte moved."""
        return self.flops / self.moved_bytes if self.moved_bytes else 0.0

    @property
    def flops_per_s(self) -> float:
        """What is achieved."""
        return self.flops / self.time_ns * 1e9 if self.time_ns else 0.0

    def roof_flops_per_s(self, peaks: Peaks) -> float:
        """What the machine allows at this intensity: its peak, or what its memory can feed."""
        return min(peaks.flops_per_s, self.intensity * peaks.bytes_per_s)

    def share_of_roof(self, peaks: Peaks) -> float | None:
        """The least time over the time taken; None for what neither computes nor moves.

        Where something is computed, that is the FLOPs achieved over the roof.
        """
        least_s = max(self.flops / peaks.flops_per_s, self.moved_bytes / peaks.bytes_per_s)
        return least_s * 1e9 / self.time_ns if self.time_ns and least_s else None


@dataclass(frozen=True)
class StageCost:
    """A stage with its inner ones, timed without the profiler.

    outside: the share of its time that is in no operation; None where it was not seen.
    """

    stage: str
    cost: Cost
    outside: float | None


@dataclass(frozen=True)
class OperationCost:
    """An operation in a stage; is_counted: whether there is a rule for its FLOPs."""

    stage: str
    operation: str
    is_counted: bool
    cost: Cost


@dataclass(frozen=True)
class ModuleCost:
    """A module, or an optimiser, in a pass, without the modules inside it. kind: its class."""

    stage: str
    module: str
    kind: str
    pass_name: str
    cost: Cost


@dataclass(frozen=True)
class UncountedOperation:
    """An operation without a rule, where it is called; flops: 0, as they are not known."""

    operation: str
    stage: str
    module: str
    pass_name: str
    function: str
    file: str
    line: int
    cost: Cost


@dataclass
class ModelProfile:
    """What the model computes in an iteration.

    whole: all of it, with the time of an iteration. call_coverage, time_coverage: of the
    operations with a rule, over all that compute or move. on_card: whether times are a card's.
    """

    overhead: Overhead
    peaks: Peaks
    whole: Cost
    call_coverage: float
    time_coverage: float
    on_card: bool
    stages: list[StageCost] = field(default_factory=list)
    operations: list[OperationCost] = field(default_factory=list)
    modules: list[ModuleCost] = field(default_factory=list)
    uncounted: list[UncountedOperation] = field(default_factory=list)
