"""The raw record of an experiment: its stages, its arms, and one row for every block."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hotloop.benchmark.peaks import Peaks
from hotloop.benchmark.warmup import WarmUp
from hotloop.benchmark.work import Work
from hotloop.loop.arm import Arm
from hotloop.loop.conduct import Block
from hotloop.simplify.estimate import Samples


@dataclass
class StageFacts:
    """What the recording found out about one stage."""

    name: str
    index: int
    kind: str
    effect: str
    inside: str | None
    calls_per_iteration: float
    ns_per_call: float
    tape_ns: list[int]  # the recorded durations that replays stand for
    ns_per_iteration: float
    share: float
    cpu_share: float | None
    beside_main: bool  # runs on another thread, task or process than the loop's own
    lanes: list[int]
    outputs: int
    modes_ns: tuple[float, float] | None
    bytes_per_call: float | None
    not_replaced: str | None  # why the stage cannot be replaced, or None if it can

    @property
    def replaceable(self) -> bool:
        """Whether recorded outputs may stand in for its calls."""
        return self.not_replaced is None


@dataclass
class Record:
    """Everything an experiment measured; growing while it runs."""

    unit: str = "iterations"
    name: str = "loop"
    price_per_hour: float | None = None
    focus: list[str] = field(default_factory=list)  # the only stages looked at, if any are named
    warm_up: WarmUp | None = None
    stages: list[StageFacts] = field(default_factory=list)
    concurrent: bool = False
    in_flight: int = 0
    block_iterations: int = 1
    drain_iterations: int = 0
    carry_over: float | None = None
    block_settled: bool = True
    shortest_wait_ns: float = 0.0
    notices: list[str] = field(default_factory=list)
    work: Work | None = None
    peaks: Peaks | None = None
    usable_cores: float = 1.0
    iterations_kept: int = 0
    snapshot_s: float = 0.0
    extended: bool = False
    stopped_early: bool = False
    seconds: float = 0.0
    arms: dict[str, Arm] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    events: np.ndarray = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    missed_replays: int = 0
    mutated: list[str] = field(default_factory=list)  # stages whose outputs consumers write into
    # One row a block.
    arm_of: list[int] = field(default_factory=list)
    round_of: list[int] = field(default_factory=list)
    ns: list[float] = field(default_factory=list)  # of one iteration's worth of units
    delayed_ns: list[float] = field(default_factory=list)  # really waited, an iteration
    cpu_ns: list[int] = field(default_factory=list)
    switches: list[int] = field(default_factory=list)
    pressure_us: list[int] = field(default_factory=list)
    units_per_iteration: float | None = None

    def stage(self, name: str) -> StageFacts:
        """The facts of the stage called `name`."""
        return next(stage for stage in self.stages if stage.name == name)

    def looked_at(self) -> list[StageFacts]:
        """The stages that the experiment is about."""
        return [stage for stage in self.stages if not self.focus or stage.name in self.focus]

    def is_inside(self, stage: StageFacts, other: StageFacts) -> bool:
        """Whether `stage` is called, at any depth, within `other`."""
        seen = {stage.name}
        parent = stage.inside
        while parent is not None and parent not in seen:
            if parent == other.name:
                return True
            seen.add(parent)
            parent = next((s.inside for s in self.stages if s.name == parent), None)
        return False

    def arm_names(self) -> list[str]:
        """Arms by number, as the rows refer to them."""
        return list(self.arms)

    def keep(self, round_number: int, block: Block) -> None:
        """Append the row of one block."""
        arm = block.request.arm
        if arm.name not in self.arms:
            self.arms[arm.name] = arm
        units = sum(block.units)
        iterations = len(block.duration_ns)
        if self.units_per_iteration is None:
            self.units_per_iteration = units / iterations
        # Where iterations differ in units, time is compared unit by unit.
        scale = self.units_per_iteration / units if units else 1 / iterations
        self.arm_of.append(self.arm_names().index(arm.name))
        self.round_of.append(round_number)
        self.ns.append(sum(block.duration_ns) * scale)
        self.delayed_ns.append(sum(block.delayed_ns.values()) / iterations)
        self.cpu_ns.append(block.cpu_ns)
        self.switches.append(block.switches)
        self.pressure_us.append(block.pressure_us)

    def samples(self, seed: int) -> Samples:
        """The rows as a table of rounds and arms."""
        names = self.arm_names()
        rounds = 1 + max(self.round_of, default=-1)
        table = np.full((rounds, len(names)), np.nan)
        table[self.round_of, self.arm_of] = self.ns
        return Samples(table, names, seed)

    def mean_delay_ns(self, arm: str) -> float:
        """The delay that really happened in an iteration of this arm, on average."""
        number = self.arm_names().index(arm)
        return float(
            np.mean([d for d, a in zip(self.delayed_ns, self.arm_of, strict=True) if a == number])
        )

    def facts(self) -> dict[str, Any]:
        """Everything that is not an array, ready for a run file."""
        skip = {"arms", "events", *_ROWS}
        plain = {
            name: value
            for name, value in self.__dict__.items()
            if name not in skip and not hasattr(value, "__dataclass_fields__") and name != "stages"
        }
        return plain | {
            "stages": [asdict(stage) for stage in self.stages],
            "warm_up": asdict(self.warm_up) if self.warm_up else None,
            "work": asdict(self.work) if self.work else None,
            "peaks": asdict(self.peaks) if self.peaks else None,
            "arms": {
                name: {stage: str(mode) for stage, mode in arm.modes.items()}
                for name, arm in self.arms.items()
            },
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """The rows, a column each."""
        return {name: np.array(getattr(self, name)) for name in _ROWS} | {"events": self.events}

    @classmethod
    def from_run(cls, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Record":
        """The record as it was saved."""
        record = cls()
        for name, value in facts.items():
            if hasattr(record, name):
                setattr(record, name, value)
        record.stages = [
            StageFacts(**stage | {"modes_ns": stage["modes_ns"] and tuple(stage["modes_ns"])})
            for stage in facts["stages"]
        ]
        record.warm_up = WarmUp(**facts["warm_up"]) if facts.get("warm_up") else None
        record.work = Work(**facts["work"]) if facts.get("work") else None
        record.peaks = Peaks(**facts["peaks"]) if facts.get("peaks") else None
        record.arms = {name: Arm(name) for name in facts["arms"]}
        for name in _ROWS:
            setattr(record, name, arrays[name].tolist())
        record.events = arrays["events"]
        return record


_ROWS = (
    "arm_of",
    "round_of",
    "ns",
    "delayed_ns",
    "cpu_ns",
    "switches",
    "pressure_us",
)
