"""What the journal holds: runs with their metrics, and tries. Apart from how it is stored."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hotloop.loop.figures import Figure, Interval, Unknown

# Names of metrics. A rate is of units per second; a gain is a share of the time.
RATE, SECONDS = "rate", "seconds"
RATIO, RATE_A, RATE_B = "ratio", "rate A", "rate B"
CEILING = "ceiling: "
GAIN = "gain if free: "  # then a stage, or two that are free together
OVERLAP = "gain if all stages overlap"
KEPT, REVERTED = "kept", "reverted"


@dataclass(frozen=True)
class Metric:
    """A number of a run. low, high: of its 95% interval, None where it has none."""

    value: float
    low: float | None = None
    high: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class RunEntry:
    """A run.

    at: when it was noted, in ISO format. commit, diff_hash: the version of the code; None outside
    of a git repository, and no hash without uncommitted changes. seconds, cost: what it took, None
    where that or the price of an hour is not known. file: where the run was saved, if it was.
    number: given by the journal, in the order of noting.
    """

    at: str
    verb: str
    target: str
    metrics: Mapping[str, Metric]
    commit: str | None = None
    diff_hash: str | None = None
    host: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    cost: float | None = None
    complete: bool = True
    file: str | None = None
    number: int = 0

    @property
    def price_per_hour(self) -> float | None:
        """What an hour of its machine costs, if the run knows."""
        price = self.settings.get("price_per_hour")
        return float(price) if isinstance(price, int | float) else None


@dataclass(frozen=True)
class TryEntry:
    """A change that was tried.

    before, after: the sides that were compared. predicted, achieved: the gain, as a share of the
    time; None where nothing was predicted, or too little was measured. stage: from whose gain the
    prediction comes. decision: "kept" or "reverted". run: the number of the comparison's run.
    """

    at: str
    hypothesis: str
    target: str
    before: str
    after: str
    verdict: str
    decision: str
    predicted: Metric | None = None
    achieved: Metric | None = None
    stage: str | None = None
    effort_hours: float | None = None
    run: int = 0
    number: int = 0

    @property
    def kept(self) -> bool:
        """Whether the change stayed."""
        return self.decision == KEPT


def gain_at(times: float, stage: str) -> str:
    """The name of the gain if a stage were so many times faster."""
    return f"gain if {times:g}x faster: {stage}"


def known(figures: Mapping[str, tuple[Figure, str]]) -> dict[str, Metric]:
    """The metrics of figures with their units, by name; those that are not known are left out."""
    found = {}
    for name, (figure, unit) in figures.items():
        metric = _metric(figure, unit)
        if metric is not None:
            found[name] = metric
    return found


def _metric(figure: Figure, unit: str) -> Metric | None:
    if isinstance(figure, Unknown):
        return None
    if isinstance(figure, Interval):
        value, low, high = (_finite(x) for x in (figure.value, figure.low, figure.high))
    else:
        value, low, high = _finite(figure), None, None
    return None if value is None else Metric(value, low, high, unit)


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
