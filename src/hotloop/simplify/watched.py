"""A watched training: what was sampled while it went on, and what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hotloop.benchmark.benchmark import BenchmarkRecord
from hotloop.benchmark.summary import StageTime, stage_times
from hotloop.errors import RunError
from hotloop.loop.conduct import Block
from hotloop.loop.figures import Figure, Interval, Unknown, rate_interval
from hotloop.loop.run import Run
from hotloop.simplify.means import Means
from hotloop.simplify.slack import Slack, fit_slack

# An interval needs so many pairs of blocks at least.
FEWEST_PAIRS = 3
_BASE, _DELAYED = "base", "delayed"


@dataclass
class WatchRecord:
    """Raw samples of one watched training, growing while it goes on.

    sampled: the windows in which all calls were timed. periods: seconds between two lines, with
    the iterations and the units in them. pairs: one block with a delay beside one without, each
    as (stage, ns delayed in an iteration, ns of an iteration without, ns of one with the delay).
    """

    sampled: BenchmarkRecord = field(default_factory=BenchmarkRecord)
    unit: str = "iterations"
    iteration: str | None = None
    why_not: str | None = None
    periods: list[tuple[float, float, float]] = field(default_factory=list)
    pairs: list[tuple[int, float, float, float]] = field(default_factory=list)
    spent_s: float = 0.0

    def add_pair(self, stage: int, name: str, base: Block, delayed: Block) -> None:
        """Keep what two neighbouring blocks took, of which one delayed a stage."""
        delay = delayed.delayed_ns.get(name, 0) / len(delayed.duration_ns)
        self.pairs.append((stage, delay, base.ns_per_iteration, delayed.ns_per_iteration))

    def facts(self) -> dict[str, Any]:
        """Return everything that is not an array, for a run file."""
        return {
            "unit": self.unit,
            "iterations_marked_by": self.iteration,
            "no_iterations": self.why_not,
            "stages": self.sampled.stages,
            "dropped_events": self.sampled.dropped_events,
            "spent_s": self.spent_s,
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the raw samples."""
        periods = np.array(self.periods, np.float64).reshape(-1, 3)
        pairs = np.array(self.pairs, np.float64).reshape(-1, 4)
        sampled = self.sampled.arrays()
        return {
            **{name: sampled[name] for name in _SAMPLED},
            "period_s": periods[:, 0],
            "period_iterations": periods[:, 1],
            "period_units": periods[:, 2],
            "pair_stage": pairs[:, 0].astype(np.int64),
            "pair_delay_ns": pairs[:, 1],
            "pair_base_ns": pairs[:, 2],
            "pair_delayed_ns": pairs[:, 3],
        }


_SAMPLED = (
    *("start_ns", "duration_ns", "units", "block_of", "events"),
    *("stage_ns", "stage_running_ns", "stage_calls"),
)


@dataclass(frozen=True)
class DelayedStage:
    """What delays of one stage did to the whole.

    delay_ns: the mean delay of an iteration. sensitivity: by how much an iteration took longer,
    over its delay: 1 where all of it is felt, 0 where none is.
    """

    name: str
    pairs: int
    delay_ns: float
    sensitivity: Interval | Unknown
    slack: Slack | Unknown


@dataclass(frozen=True)
class WatchSummary:
    """The figures of a watched training.

    seconds: the time in which its iterations were counted. sampled: the iterations in the windows
    in which all calls were timed. watching: the share of the time that the samples took, as it was
    estimated while they were taken.
    """

    target: str
    unit: str
    iteration: str | None
    iterations: float
    seconds: float
    sampled: int
    units_per_s: Figure
    iterations_per_s: Figure
    ms_per_iteration: Figure
    watching: Figure
    stages: list[StageTime]
    delays: list[DelayedStage]
    warnings: list[str]


def summarize_watch(run: Run) -> WatchSummary:
    """Summarize the run of a watched training. Raises: RunError for a run of another verb."""
    if run.verb != "watch":
        raise RunError(f"a {run.verb} run of {run.target} is not of a watched training")
    arrays, facts = run.arrays, run.facts
    periods_ns = arrays["period_s"] * 1e9
    seconds = float(arrays["period_s"].sum())
    counted = float(arrays["period_iterations"].sum())
    none = Unknown(facts.get("no_iterations") or "it ended before its iterations were found")
    known = seconds > 0 and counted > 0
    rates: list[Figure] = [
        rate_interval(arrays[name], periods_ns) if known else none
        for name in ("period_units", "period_iterations")
    ]
    return WatchSummary(
        target=run.target,
        unit=facts["unit"],
        iteration=facts.get("iterations_marked_by"),
        iterations=counted,
        seconds=seconds,
        sampled=len(arrays["duration_ns"]),
        units_per_s=rates[0],
        iterations_per_s=rates[1],
        ms_per_iteration=(
            rate_interval(periods_ns * 1e-6, arrays["period_iterations"] * 1e9) if known else none
        ),
        watching=facts["spent_s"] / seconds if known else none,
        stages=stage_times(run),
        delays=_delayed_stages(run),
        warnings=_warnings(run),
    )


def _delayed_stages(run: Run) -> list[DelayedStage]:
    names = {stage["index"]: stage["name"] for stage in run.facts["stages"]}
    tried = run.arrays["pair_stage"]
    return [
        _delayed_stage(
            name,
            {
                part: run.arrays[f"pair_{part}_ns"][tried == index]
                for part in ("delay", _BASE, _DELAYED)
            },
        )
        for index, name in names.items()
        if (tried == index).any()
    ]


def _delayed_stage(name: str, pairs: Mapping[str, np.ndarray]) -> DelayedStage:
    """Fit the slack of one stage from its pairs: arrays (pairs,) of delays and times, in ns."""
    count = len(pairs[_BASE])
    delay = float(pairs["delay"].mean())
    if count < FEWEST_PAIRS or delay <= 0:
        few = Unknown(
            f"{count} pairs of blocks with and without a delay were measured, "
            f"{FEWEST_PAIRS} are needed; watch for longer, or let delays take more of the time"
        )
        return DelayedStage(name, count, delay, few, few)
    means = _means(pairs[_BASE], pairs[_DELAYED])
    felt = means.difference(_DELAYED, _BASE)
    return DelayedStage(
        name, count, delay, felt.scaled(1 / delay), fit_slack(means, _BASE, [(_DELAYED, delay)])
    )


def _means(base: np.ndarray, delayed: np.ndarray) -> Means:
    """The mean times of two arms over pairs of blocks, both (pairs,)."""
    both = np.stack([base, delayed], axis=1)
    count = len(both)
    left_out = (both.sum(axis=0) - both) / (count - 1)
    arms = [_BASE, _DELAYED]
    return Means(arms, both.mean(axis=0), left_out, count - 1, np.zeros((0, 2)))


def _warnings(run: Run) -> list[str]:
    found: list[str] = []
    if run.facts.get("no_iterations"):
        found.append(run.facts["no_iterations"])
    if run.facts.get("dropped_events"):
        found.append(
            f"{run.facts['dropped_events']} calls in worker processes were not logged; "
            "their stages' times are too low"
        )
    if not run.complete:
        found.append("an error or an interrupt ended the training; this is what was seen of it")
    return found
