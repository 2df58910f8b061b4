"""Whether to go on: is it good enough, is the best lever worth its effort, is the ceiling near?

Pure functions of numbers. A gain is a share of the time; money is in any one currency.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hotloop.errors import SettingError, expect_positive
from hotloop.repeat.entries import GAIN, OVERLAP, Metric

STOP, GO_ON, CANNOT_SAY = "stop", "go on", "cannot say"
# Reasons.
TARGET_MET, NOT_WORTH_IT, NEAR_CEILING = "target met", "not worth it", "near the ceiling"
WORTH_IT, TARGET_NOT_MET, MISSING = "worth it", "target not met", "missing"
# What may be missing besides options.
GAINS, RATE_NOW = "the gains of its stages", "its rate"
_FASTER = "gain if "


@dataclass(frozen=True)
class Limits:
    """What is enough. All but the last two are None where they were not given.

    hours: that the loop will still run. effort_hours: of work that the next try takes. worth: the
    smallest gain that counts.
    """

    hours: float | None = None
    price_per_hour: float | None = None
    effort_hours: float | None = None
    target_rate: float | None = None
    effort_price_per_hour: float = 60.0
    worth: float = 0.03

    def __post_init__(self) -> None:
        for name in ("hours", "price_per_hour", "effort_hours", "target_rate"):
            expect_positive(f"--{name.replace('_', '-')}", getattr(self, name))
        expect_positive("--effort-price-per-hour", self.effort_price_per_hour)
        if not 0 < self.worth < 1:
            raise SettingError(f"worth: expected a share between 0 and 1, got {self.worth}")

    @property
    def missing_for_money(self) -> list[str]:
        """The options that a sum in money needs besides."""
        names = ("hours", "price_per_hour", "effort_hours")
        return [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) is None]


@dataclass(frozen=True)
class Lever:
    """What may be changed next, and what that would gain.

    name: of a stage, of two that are free together, or OVERLAP for running all side by side. gain:
    if it were free; faster: if it were so many times faster, by the words for that.
    """

    name: str
    gain: Metric
    faster: Mapping[str, Metric] = field(default_factory=dict)

    @property
    def best_case(self) -> float:
        """The largest gain that the measurement does not rule out."""
        return 1.0 if self.gain.high is None else min(self.gain.high, 1.0)


@dataclass(frozen=True)
class Decision:
    """Stop, go on, or cannot say.

    because: the reason, one of this module's. lever: the one that gains most, None if no gain is
    known. rate_met: whether the target rate is met by the rate's lower limit, None without a target
    or a rate. value_met: whether the value at least meets it. expected_saving, best_saving,
    effort_cost: in money, None where a setting is missing. missing: options, GAINS or RATE_NOW.
    """

    verdict: str
    because: str
    lever: Lever | None
    rate: Metric | None
    rate_met: bool | None
    value_met: bool | None
    expected_saving: float | None
    best_saving: float | None
    effort_cost: float | None
    missing: list[str]


def levers_of(metrics: Mapping[str, Metric]) -> list[Lever]:
    """The stages in the metrics of an experiment, the one that gains most first."""
    found = []
    for name, gain in metrics.items():
        if name.startswith(GAIN):
            stage = name.removeprefix(GAIN)
            faster = {
                each.removesuffix(f": {stage}").removeprefix(_FASTER): metric
                for each, metric in metrics.items()
                if each.startswith(_FASTER) and each.endswith(f" faster: {stage}")
            }
            found.append(Lever(stage, gain, faster))
    return sorted(found, key=lambda lever: -lever.gain.value)


def overlap_of(metrics: Mapping[str, Metric]) -> Lever | None:
    """What running all stages side by side would gain, if the experiment knows."""
    return Lever(OVERLAP, metrics[OVERLAP]) if OVERLAP in metrics else None


def decide(
    limits: Limits, rate: Metric | None, stages: Sequence[Lever], overlap: Lever | None
) -> Decision:
    """Whether to stop.

    rate: the newest of the target. stages: the largest gain first. overlap: the gain of perfect
    overlap.

    Stop if the rate's lower limit meets the target rate; if the best lever's best case saves less
    than its effort costs; or if both the best stage's best case and perfect overlap leave less
    than `worth`: one of them alone is not the ceiling, as the other way up is still open.
    """
    known = [*stages, *([] if overlap is None else [overlap])]
    lever = max(known, key=lambda each: each.gain.value, default=None)
    met, value_met = _met(limits.target_rate, rate)
    expected, best, effort = _money(limits, lever)
    missing = []
    if lever is None:
        missing.append(GAINS)
    if met:
        verdict, because = STOP, TARGET_MET
    elif best is not None and effort is not None and best < effort:
        verdict, because = STOP, NOT_WORTH_IT
    elif lever is not None and _near_ceiling(stages, overlap, limits.worth):
        verdict, because = STOP, NEAR_CEILING
    elif best is not None and effort is not None:
        verdict, because = GO_ON, WORTH_IT
    elif lever is not None and met is False:
        verdict, because = GO_ON, TARGET_NOT_MET
    else:
        verdict, because = CANNOT_SAY, MISSING
    if because in (MISSING, TARGET_NOT_MET):
        missing += limits.missing_for_money
    if because == MISSING and limits.target_rate is not None and rate is None:
        missing.append(RATE_NOW)
    return Decision(
        verdict=verdict,
        because=because,
        lever=lever,
        rate=rate,
        rate_met=met,
        value_met=value_met,
        expected_saving=expected,
        best_saving=best,
        effort_cost=effort,
        missing=missing,
    )


def _met(target: float | None, rate: Metric | None) -> tuple[bool | None, bool | None]:
    """Whether the lower limit, and the value, of a rate meet the target."""
    if target is None or rate is None:
        return None, None
    return rate.low is not None and rate.low >= target, rate.value >= target


def _money(limits: Limits, lever: Lever | None) -> tuple[float | None, float | None, float | None]:
    """The expected saving, that of the best case, and the cost of the effort."""
    effort = (
        None if limits.effort_hours is None else limits.effort_hours * limits.effort_price_per_hour
    )
    if lever is None or limits.hours is None or limits.price_per_hour is None:
        return None, None, effort
    future = limits.hours * limits.price_per_hour
    return future * lever.gain.value, future * lever.best_case, effort


def _near_ceiling(stages: Sequence[Lever], overlap: Lever | None, worth: float) -> bool:
    """Whether no known way up leaves as much as counts.

    Where the gain of no stage is known, this is not known either. Of perfect overlap the value
    counts: its ends are those of two times that drift together, wider apart than what is left.
    """
    if not stages or stages[0].best_case >= worth:
        return False
    return overlap is None or overlap.gain.value < worth
