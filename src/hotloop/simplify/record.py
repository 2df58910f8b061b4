"""The raw record of an experiment: its stages, its arms, and one row for every block."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from hotloop.benchmark.peaks import Peaks
from hotloop.benchmark.timeline import running_ns
from hotloop.benchmark.warmup import WarmUp
from hotloop.benchmark.work import Work
from hotloop.loop.arm import REAL, Arm
from hotloop.loop.conduct import Block
from hotloop.loop.cost import ProbeCost
from hotloop.simplify.arm_names import BASELINE, is_aa
from hotloop.simplify.estimate import Samples
from hotloop.simplify.probing import Probing
from hotloop.simplify.rare_work import WorkKind, rest_of_iterations
from hotloop.simplify.stage_facts import Place, StageFacts


@dataclass
class Record:
    """All that an experiment has measured, growing while it runs."""

    unit: str = "iterations"
    name: str = "loop"
    price_per_hour: float | None = None
    focus: list[str] = field(default_factory=list)  # the only stages looked at, if any are named
    faster: list[float] = field(default_factory=lambda: [2.0])  # how many times, that were tried
    warm_up: WarmUp | None = None
    stages: list[StageFacts] = field(default_factory=list)
    concurrent: bool = False  # something runs beside the loop, seen or unseen
    hidden: str | None = None  # what shows that something unseen runs beside it
    feeds: dict[str, list[str]] = field(default_factory=dict)  # by stage: those it keeps going
    groups: dict[str, list[str]] = field(default_factory=dict)  # stages also judged together
    kinds: list[WorkKind] = field(default_factory=list)  # of rare work
    in_flight: int = 0
    block_iterations: int = 1  # at the least; a block has up to twice as many
    period: int = 1  # iterations between the rarest work that matters
    drain_iterations: int = 0  # left out at the start of an arm with something replaced
    drain_base: int = 0  # and at the start of the others
    drain_s: float = 0.0  # and at the start of all of them
    transients: dict[str, int] = field(default_factory=dict)  # by stage, where it is replaced
    transient_ns: float = 0.0  # how long the longest of these takes
    probe_cost: ProbeCost = field(default_factory=ProbeCost)
    carry_over: float | None = None
    block_settled: bool = True
    shortest_wait_ns: float = 0.0
    notices: list[str] = field(default_factory=list)
    broken: list[dict[str, Any]] = field(default_factory=list)  # violations of declared effects
    rest_places: list[Place] = field(default_factory=list)  # what runs between the stages
    # The share of the time that rest_places divide; None: theirs are the shares of the samples.
    rest_share_when_sampled: float | None = None
    work: Work | None = None
    peaks: Peaks | None = None
    usable_cores: float = 1.0
    iterations_kept: int = 0
    snapshot_s: float = 0.0
    extended: bool = False
    stopped_early: bool = False
    out_of_time: bool = False
    seconds: float = 0.0
    arms: dict[str, Arm] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    events: np.ndarray = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    missed_replays: int = 0
    mutated: list[str] = field(default_factory=list)  # stages whose outputs consumers write into
    # One row a block; those of stages have a column for each, those of rare work one for each kind.
    arm_of: list[int] = field(default_factory=list)
    round_of: list[int] = field(default_factory=list)
    ns: list[float] = field(default_factory=list)
    units: list[float] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)
    delayed_ns: list[float] = field(default_factory=list)  # really waited, an iteration
    cpu_ns: list[int] = field(default_factory=list)
    process_cpu_ns: list[int] = field(default_factory=list)
    stolen_ns: list[int] = field(default_factory=list)
    switches: list[int] = field(default_factory=list)
    pressure_us: list[int] = field(default_factory=list)
    probe_ns: list[float] = field(default_factory=list)  # what measuring the calls took
    stage_ns: list[np.ndarray] = field(default_factory=list)
    running_ns: list[np.ndarray] = field(default_factory=list)
    stage_calls: list[np.ndarray] = field(default_factory=list)
    rare_ns: list[np.ndarray] = field(default_factory=list)
    rare_events: list[np.ndarray] = field(default_factory=list)

    def stage(self, name: str) -> StageFacts:
        """Return the facts of the stage called `name`."""
        return next(stage for stage in self.stages if stage.name == name)

    def stages_in_focus(self) -> list[StageFacts]:
        """Return the stages that the experiment is about."""
        return [stage for stage in self.stages if not self.focus or stage.name in self.focus]

    @property
    def rest_share(self) -> float:
        """Return the share of the loop's time that is in no stage of its own thread."""
        own = (s.share for s in self.stages if s.inside is None and not s.beside_main)
        return max(0.0, 1 - sum(own))

    @property
    def in_sequence(self) -> bool:
        """Whether time of a stage is time of the loop: nothing runs beside it, on a GPU neither."""
        return not self.concurrent and not any(stage.kind == "gpu" for stage in self.stages)

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
        """Return the arms' names by number, as the rows refer to them."""
        return list(self.arms)

    @property
    def units_per_iteration(self) -> float:
        """The mean units of an iteration in the arms in which nothing is changed."""
        rows = self._rows_of(self.same_arms())
        iterations = sum(self.iterations[row] for row in rows)
        return sum(self.units[row] for row in rows) / iterations if iterations else 0.0

    def same_arms(self) -> list[str]:
        """Return the arms in which nothing is changed, the baseline first."""
        return [name for name in (BASELINE, *sorted(filter(is_aa, self.arms))) if name in self.arms]

    def keep(self, round_number: int, block: Block, lane: int) -> None:
        """Append the row of one block. lane: the one that runs the loop's iterations."""
        arm = block.request.arm
        if arm.name not in self.arms:
            self.arms[arm.name] = arm
        iterations = len(block.duration_ns)
        self.arm_of.append(self.arm_names().index(arm.name))
        self.round_of.append(round_number)
        self.ns.append(float(sum(block.duration_ns)))
        self.units.append(sum(block.units))
        self.iterations.append(iterations)
        self.delayed_ns.append(sum(block.delayed_ns.values()) / iterations)
        self.cpu_ns.append(block.cpu_ns)
        self.process_cpu_ns.append(block.process_cpu_ns)
        self.stolen_ns.append(block.stolen_ns)
        self.switches.append(block.switches)
        self.pressure_us.append(block.pressure_us)
        events = np.array(block.events, np.int64).reshape(-1, 4)
        columns = [stage.index for stage in self.stages]
        count = 1 + max([*columns, int(events[:, 0].max()) if len(events) else 0])
        took = (events[:, 2] - events[:, 1]).astype(float)
        self.stage_ns.append(np.bincount(events[:, 0], took, count)[columns])
        self.stage_calls.append(np.bincount(events[:, 0], minlength=count)[columns])
        self.running_ns.append(running_ns(block.events, count)[columns])
        probing = Probing(self.stages, self.probe_cost, serial=not self.concurrent)
        calls, took_ns = self.stage_calls[-1], self.stage_ns[-1]
        self.probe_ns.append(probing.time_ns(arm, iterations, calls, took_ns))
        self._keep_rare(block, events, took, lane)

    def _keep_rare(self, block: Block, events: np.ndarray, took: np.ndarray, lane: int) -> None:
        spent, number = np.zeros(len(self.kinds)), np.zeros(len(self.kinds))
        for k, kind in enumerate(self.kinds):
            if kind.index >= 0:
                durations = took[events[:, 0] == kind.index]
            else:
                outermost = [stage.index for stage in self.stages if stage.inside is None]
                durations = rest_of_iterations(
                    events, outermost, lane, np.array(block.start_ns), np.array(block.duration_ns)
                )
            spent[k], number[k] = kind.of(durations)
        self.rare_ns.append(spent)
        self.rare_events.append(number)

    def samples(self, seed: int) -> Samples:
        """Return the rows as tables of rounds and arms; times are for one iteration's units."""
        names = self.arm_names()
        rounds = 1 + max(self.round_of, default=-1)
        at = (self.round_of, self.arm_of)

        def table(rows: Sequence[object], columns: tuple[int, ...] = ()) -> np.ndarray:
            made = np.full((rounds, len(names), *columns), np.nan)
            if rows:
                made[at] = np.array(rows, float)
            return made

        per_iteration = self.units_per_iteration
        amounts = [u / per_iteration for u in self.units] if per_iteration else self.iterations
        real = np.array(
            [[self._really_runs(name, kind) for kind in self.kinds] for name in names], bool
        ).reshape(len(names), len(self.kinds))
        rare_ns = table(self.rare_ns, (len(self.kinds),))
        rare_events = table(self.rare_events, (len(self.kinds),))
        if self.concurrent:
            # A rare call may take longer in one arm than in another: each counts as the mean one.
            spent = np.nansum(np.where(real, rare_ns, 0.0), axis=(0, 1))
            count = np.nansum(np.where(real, rare_events, 0.0), axis=(0, 1))
            rare_ns = rare_events * (spent / np.maximum(count, 1.0))
        return Samples(
            ns=table(self.ns),
            units=table(amounts),
            arms=names,
            same=self.same_arms(),
            stolen_ns=table(self.stolen_ns),
            probe_ns=table(self.probe_ns),
            probe_error=self.probe_cost.error_share,
            rare_ns=rare_ns,
            rare_events=rare_events,
            real=real,
            recorded_ns=np.array([kind.recorded_ns for kind in self.kinds]),
            stage_ns=table(self.stage_ns, (len(self.stages),)),
            cpu_ns=table(self.process_cpu_ns),
            serial=not self.concurrent,
            seed=seed,
        )

    def _really_runs(self, arm: str, kind: WorkKind) -> bool:
        """Whether a kind of work is the same in an arm as in the baseline."""
        if kind.index < 0:
            return True
        around = [self.stage(kind.name)]
        around += [stage for stage in self.stages if self.is_inside(around[0], stage)]
        changed = self.arms[arm].modes
        return not any(stage.name in changed for stage in around)

    def _rows_of(self, arms: Sequence[str]) -> list[int]:
        names = self.arm_names()
        numbers = {names.index(arm) for arm in arms if arm in names}
        return [row for row, arm in enumerate(self.arm_of) if arm in numbers]

    def update_stage_times(self) -> None:
        """Put the stages' times in the unchanged arms in place of the recording's.

        The recording's contain what it costs to record.
        """
        rows = self._rows_of(self.same_arms())
        if not rows:
            return
        total, iterations = sum(self.ns[r] for r in rows), sum(self.iterations[r] for r in rows)
        spent = np.sum([self.stage_ns[r] for r in rows], axis=0)
        calls = np.sum([self.stage_calls[r] for r in rows], axis=0)
        running = np.sum([self.running_ns[r] for r in rows], axis=0)
        for k, stage in enumerate(self.stages):
            if calls[k]:
                stage.ns_per_call = float(spent[k] / calls[k])
                stage.ns_per_iteration = float(spent[k] / iterations)
                stage.share = float(running[k] / total)

    def mean_delay_ns(self, arm: str) -> float:
        """Return the mean delay of an iteration of this arm, as it really happened.

        Of calls that are delayed side by side, each counts in part only.
        """
        rows = self._rows_of([arm])
        at_once = 1.0
        for stage in self.arms[arm].modes:
            k = [s.name for s in self.stages].index(stage)
            running = sum(float(self.running_ns[r][k]) for r in rows)
            spent = sum(float(self.stage_ns[r][k]) for r in rows)
            at_once = max(at_once, spent / running if running else 1.0)
        return float(np.mean([self.delayed_ns[r] for r in rows])) / at_once

    def facts(self) -> dict[str, Any]:
        """Return everything that is not an array, for a run file."""
        skip = {"arms", "events", *ROWS}
        plain = {
            name: value
            for name, value in self.__dict__.items()
            if name not in skip
            and not hasattr(value, "__dataclass_fields__")
            and name not in ("stages", "kinds", "rest_places")
        }
        return plain | {
            "stages": [asdict(stage) for stage in self.stages],
            "kinds": [asdict(kind) for kind in self.kinds],
            "rest_places": [asdict(place) for place in self.rest_places],
            "warm_up": asdict(self.warm_up) if self.warm_up else None,
            "work": asdict(self.work) if self.work else None,
            "peaks": asdict(self.peaks) if self.peaks else None,
            "probe_cost": asdict(self.probe_cost),
            "arms": {
                name: {stage: str(mode) for stage, mode in arm.modes.items()}
                for name, arm in self.arms.items()
            },
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the rows, one array for each column."""
        wide = dict.fromkeys(("stage_ns", "running_ns", "stage_calls"), len(self.stages))
        wide |= dict.fromkeys(("rare_ns", "rare_events"), len(self.kinds))
        return {
            name: np.array(getattr(self, name)).reshape(
                len(self.ns), *([wide[name]] if name in wide else [])
            )
            for name in ROWS
        } | {"events": self.events}

    @classmethod
    def from_run(cls, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Record":
        """Read a record that was saved."""
        record = cls()
        for each in fields(record):
            if each.name in facts:
                setattr(record, each.name, facts[each.name])
        record.stages = [
            StageFacts(**stage | {"modes_ns": stage["modes_ns"] and tuple(stage["modes_ns"])})
            for stage in facts["stages"]
        ]
        record.warm_up = WarmUp(**facts["warm_up"]) if facts.get("warm_up") else None
        record.work = Work(**facts["work"]) if facts.get("work") else None
        record.probe_cost = ProbeCost(**facts.get("probe_cost", {}))
        record.peaks = Peaks(**facts["peaks"]) if facts.get("peaks") else None
        record.kinds = [WorkKind(**kind) for kind in facts["kinds"]]
        record.rest_places = [Place(**place) for place in facts.get("rest_places", ())]
        record.arms = {
            name: Arm(name, dict.fromkeys(modes, REAL)) for name, modes in facts["arms"].items()
        }
        no_cost = np.zeros(len(arrays["ns"]))
        for name in ROWS:
            # Runs of older versions do not say what measuring took.
            rows = arrays[name] if name != "probe_ns" else arrays.get(name, no_cost)
            setattr(record, name, rows.tolist() if rows.ndim == 1 else list(rows))
        record.events = arrays["events"]
        return record


ROWS = (
    "arm_of",
    "round_of",
    "ns",
    "units",
    "iterations",
    "delayed_ns",
    "cpu_ns",
    "process_cpu_ns",
    "stolen_ns",
    "switches",
    "pressure_us",
    "probe_ns",
    "stage_ns",
    "running_ns",
    "stage_calls",
    "rare_ns",
    "rare_events",
)
