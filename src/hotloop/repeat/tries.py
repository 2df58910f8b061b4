"""What the tries of a target add up to: the staircase, how predictions came true, the cost so far.

Pure functions of the journal's entries.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hotloop.repeat.entries import RATE, RATE_A, RATE_B, RATIO, Metric, RunEntry, TryEntry

_RATED = ("benchmark", "simplify")  # whose metric RATE is of their target


@dataclass(frozen=True)
class Step:
    """A try on the staircase.

    rate: after the change, as it was measured beside what was before. time: of the work that took
    1 at the start, after this try; a try that was reverted does not count. cost: of a million
    units, or of the work of an hour at the start, in money.
    """

    number: int
    at: str
    hypothesis: str
    verdict: str
    kept: bool
    predicted: Metric | None
    achieved: Metric | None
    rate: Metric | None
    time: float
    cost: float | None


@dataclass(frozen=True)
class Staircase:
    """All tries in order. rate, cost: at the start. cost_of: "a million UNITS", or "what took
    an hour"."""

    steps: list[Step]
    rate: Metric | None
    cost: float | None
    cost_of: str

    @property
    def time(self) -> float:
        """The time that the work takes now, if it took 1 at the start."""
        return self.steps[-1].time if self.steps else 1.0


@dataclass(frozen=True)
class Prediction:
    """What was predicted of a try and what it achieved, as shares of the time.

    held: whether the prediction lies within what was achieved, None if that has no interval. ratio:
    achieved over predicted, None where nothing was predicted to be gained.
    """

    number: int
    hypothesis: str
    predicted: Metric
    achieved: Metric
    held: bool | None
    ratio: float | None


@dataclass(frozen=True)
class Calibration:
    """How predictions came true. held: the share that held; ratio: achieved over predicted, mean.

    Each is None where no try says anything about it.
    """

    predictions: list[Prediction]
    held: float | None
    ratio: float | None


@dataclass(frozen=True)
class Spent:
    """The cost so far, in money.

    runs_without_price: how many more runs there are, of which the time or the price of an hour is
    not known.
    """

    runs: float
    runs_without_price: int
    effort_hours: float
    effort: float

    @property
    def total(self) -> float:
        """Runs and efforts together."""
        return self.runs + self.effort


def staircase(
    tries: Sequence[TryEntry], runs: Sequence[RunEntry], price_per_hour: float | None
) -> Staircase:
    """The staircase of these tries, with what an hour of the machine costs, if it is known.

    The rates are as each comparison measured them; between two of them the machine may have
    changed. The time is the product of the ratios of the kept tries, each measured in turns.
    """
    by_number = {run.number: run.metrics for run in runs}
    empty: Mapping[str, Metric] = {}
    metrics = [by_number.get(each.run, empty) for each in tries]
    start = metrics[0].get(RATE_A) if metrics else None
    # A command is one unit; nobody pays for a million of them.
    by_million = start is not None and start.unit != "runs/s"

    def cost(rate: Metric | None, time: float) -> float | None:
        if price_per_hour is None:
            return None
        if not by_million:
            return price_per_hour * time
        return price_per_hour / 3600 * 1e6 / rate.value if rate is not None and rate.value else None

    time, steps = 1.0, []
    for each, found in zip(tries, metrics, strict=True):
        if each.kept and RATIO in found:
            time *= found[RATIO].value
        rate = found.get(RATE_B)
        steps.append(
            Step(
                number=each.number,
                at=each.at,
                hypothesis=each.hypothesis,
                verdict=each.verdict,
                kept=each.kept,
                predicted=each.predicted,
                achieved=each.achieved,
                rate=rate,
                time=time,
                cost=cost(rate, time) if each.kept else None,
            )
        )
    unit = start.unit.removesuffix("/s") if start is not None else ""
    return Staircase(
        steps=steps,
        rate=start,
        cost=cost(start, 1.0),
        cost_of=f"a million {unit}" if by_million else "what took an hour",
    )


def calibration(tries: Sequence[TryEntry]) -> Calibration:
    """How the predictions of these tries came true."""
    found = [
        Prediction(
            number=each.number,
            hypothesis=each.hypothesis,
            predicted=each.predicted,
            achieved=each.achieved,
            held=_within(each.predicted.value, each.achieved),
            ratio=_ratio(each.achieved.value, each.predicted.value),
        )
        for each in tries
        if each.predicted is not None and each.achieved is not None
    ]
    return Calibration(
        predictions=found,
        held=_mean([float(each.held) for each in found if each.held is not None]),
        ratio=_mean([each.ratio for each in found if each.ratio is not None]),
    )


def spent(
    runs: Sequence[RunEntry],
    tries: Sequence[TryEntry],
    price_per_hour: float | None,
    effort_price_per_hour: float,
) -> Spent:
    """What runs and tries have cost. price_per_hour: of runs that do not know their own."""
    costs = [_cost(run, price_per_hour) for run in runs]
    known = [cost for cost in costs if cost is not None]
    hours = sum(each.effort_hours or 0.0 for each in tries)
    return Spent(
        runs=sum(known),
        runs_without_price=len(costs) - len(known),
        effort_hours=hours,
        effort=hours * effort_price_per_hour,
    )


def newest_rate(target: str, runs: Sequence[RunEntry], tries: Sequence[TryEntry]) -> Metric | None:
    """The rate of a target as it was measured last, by itself or after a try that was kept."""
    kept = {each.run for each in tries if each.kept}
    found = None
    for run in runs:
        if run.complete and run.target == target and run.verb in _RATED and RATE in run.metrics:
            found = run.metrics[RATE]
        elif run.number in kept and RATE_B in run.metrics:
            found = run.metrics[RATE_B]
    return found


def runs_of(target: str, runs: Sequence[RunEntry], tries: Sequence[TryEntry]) -> list[RunEntry]:
    """The runs that were made for a target: of it, of its stages and versions, and of its tries."""
    tried = {each.run for each in tries}
    # Reports call a part or a version of a target by its name and a word behind it.
    return [
        run
        for run in runs
        if run.target == target or run.target.startswith(f"{target} ") or run.number in tried
    ]


def _cost(run: RunEntry, price_per_hour: float | None) -> float | None:
    if run.cost is not None or run.seconds is None or price_per_hour is None:
        return run.cost
    return run.seconds * price_per_hour / 3600


def _ratio(achieved: float, predicted: float) -> float | None:
    # A prediction of next to nothing, as a whole one of nothing, has no multiple.
    ratio = achieved / predicted if predicted else math.inf
    return ratio if math.isfinite(ratio) else None


def _within(value: float, interval: Metric) -> bool | None:
    if interval.low is None or interval.high is None:
        return None
    return interval.low <= value <= interval.high


def _mean(values: Sequence[float]) -> float | None:
    # Shares, not a sum: that of ratios to a gain of almost nothing may be too large for a number.
    return math.fsum(value / len(values) for value in values) if values else None
