"""How many cores of one machine should act, and how many should learn?

With a of C cores acting and l = C − a learning at the same time, the slower of the two sets the
pace: SPS = min(r·a, λ·l/(1 + s·(l − 1))), where r is what a core acts, λ what one learns, and s the
part of learning that more cores do not speed up (Amdahl 1967). If all cores take turns, the times
add up: 1/SPS = 1/(r·C) + (1 + s·(C − 1))/(λ·C).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotloop.errors import RefusedError, SettingError, expect_whole
from hotloop.loop.csv_table import read_csv
from hotloop.loop.figures import Interval
from hotloop.plan.weights import (
    Array,
    drawn,
    error_scale,
    log_weights,
    measured_interval,
    middle_interval,
)

LEAST_POINTS = 2
RATES, SERIAL_SHARES = 120, 11  # values on the grid of r and of λ, and of s
MOST_NOISE, OPEN_RATE = 2.0, 30.0  # factors below and above the rates that were measured
MOST_RMS = 0.2  # of the log of a rate: beyond, the model does not fit
DETERMINED = 2.0


@dataclass(frozen=True)
class Split:
    """Cores that act and cores that learn. sps: env steps/s, where it was measured."""

    act_cores: int
    learn_cores: int
    sps: float | None = None

    def __post_init__(self) -> None:
        for name in ("act_cores", "learn_cores"):
            expect_whole(name, getattr(self, name), 1, 10**6)

    def __str__(self) -> str:
        return f"{self.act_cores} acting, {self.learn_cores} learning"


@dataclass(frozen=True)
class SplitForecast:
    """What a split would bring, and whether acting or learning limits it."""

    split: Split
    sps: Interval
    limited_by: str


@dataclass(frozen=True)
class SplitPlan:
    """All splits of a machine. best: place of the one with the highest rate; in_turn: if all cores
    act, then all learn. gaps: what the measured splits leave open, and what to measure.
    """

    cores: int
    act_per_core: Interval
    learn_of_one: Interval
    serial_share: Interval
    forecasts: list[SplitForecast]
    best: int
    in_turn: Interval
    gaps: list[str]


def read_splits(path: Path) -> list[Split]:
    """Read measured splits: columns act_cores, learn_cores, sps. Other columns are left alone.

    Raises: SettingError, with the line, for what cannot be read or is no number above 0.
    """
    names = ("act_cores", "learn_cores", "sps")
    table = read_csv(path, f"--splits: {path}", ",".join(names))
    for name in names:
        if name not in table.header:
            raise SettingError(f"{table.where}: no column {name!r}. Expected: {', '.join(names)}")
    found = []
    for number, values in table.rows:
        row = dict(zip(table.header, values, strict=True))
        try:
            act, learn, sps = int(row["act_cores"]), int(row["learn_cores"]), float(row["sps"])
            if not 0 < sps < float("inf"):
                raise ValueError
            found.append(Split(act, learn, sps))
        except (ValueError, SettingError):
            raise SettingError(
                f"{table.where}: line {number}: expected whole numbers of cores and a rate, all "
                f"above 0, got {', '.join(row[name] for name in names)}"
            ) from None
    return found


def plan_split(points: Sequence[Split], cores: int) -> SplitPlan:
    """Forecast every split of a machine with so many cores from measured ones.

    Raises: SettingError for too few points or cores; RefusedError where the model does not fit.
    """
    points = [point for point in dict.fromkeys(points) if point.sps is not None]
    if len({(p.act_cores, p.learn_cores) for p in points}) < LEAST_POINTS:
        raise SettingError(
            f"--splits: expected at least {LEAST_POINTS} different splits: one with many acting "
            "cores and one with few"
        )
    expect_whole("cores", cores, 2, 10_000)
    model = _fit(points)
    forecasts = [model.forecast(Split(act, cores - act)) for act in range(1, cores)]
    best = max(range(len(forecasts)), key=lambda place: forecasts[place].sps.value)
    every = 1 / (1 / model.acting(cores) + 1 / model.learning(cores))
    return SplitPlan(
        cores=cores,
        act_per_core=middle_interval(model.act),
        learn_of_one=middle_interval(model.learn),
        serial_share=middle_interval(model.serial),
        forecasts=forecasts,
        best=best,
        in_turn=measured_interval(every, model.error, model.count),
        gaps=_gaps(model, cores),
    )


@dataclass(frozen=True)
class _Model:
    """Draws of r, λ and s, (M,) each."""

    act: Array
    learn: Array
    serial: Array
    error: Array
    count: int

    def acting(self, cores: int) -> Array:
        return self.act * cores

    def learning(self, cores: int) -> Array:
        return self.learn * cores / (1 + self.serial * (cores - 1))

    def rate(self, split: Split) -> Array:
        slower: Array = np.minimum(self.acting(split.act_cores), self.learning(split.learn_cores))
        return slower

    def forecast(self, split: Split) -> SplitForecast:
        acting = np.median(self.acting(split.act_cores))
        learning = np.median(self.learning(split.learn_cores))
        return SplitForecast(
            split=split,
            sps=measured_interval(self.rate(split), self.error, self.count),
            limited_by="acting" if acting <= learning else "learning",
        )


def _fit(points: Sequence[Split]) -> _Model:
    rates = np.array([p.sps for p in points])
    act = np.array([p.act_cores for p in points])
    learn = np.array([p.learn_cores for p in points])
    grids = np.meshgrid(
        np.geomspace((rates / act).max() / MOST_NOISE, rates.max() * OPEN_RATE, RATES),
        np.geomspace((rates / learn).max() / MOST_NOISE, rates.max() * OPEN_RATE, RATES),
        np.linspace(0, 1, SERIAL_SHARES),
        indexing="ij",
    )
    r, of_one, serial = (grid.ravel() for grid in grids)
    model = _Model(r, of_one, serial, np.zeros(len(r)), len(points))
    squares = np.zeros(len(r))
    for point, sps in zip(points, rates, strict=True):
        squares += np.log(model.rate(point) / sps) ** 2
    taken = drawn(log_weights(squares, len(points)))
    error = error_scale(squares, len(points))
    model = _Model(r[taken], of_one[taken], serial[taken], error[taken], len(points))
    middle = [float(np.median(model.rate(point))) for point in points]
    away = np.log(np.array(middle) / rates)
    if np.sqrt(np.mean(np.square(away))) > MOST_RMS:
        listed = "; ".join(
            f"{p}: measured {p.sps:g} SPS, model {np.expm1(a):+.0%}"
            for p, a in zip(points, away, strict=True)
        )
        raise RefusedError(
            f"no model of acting and learning fits these {len(points)} splits: {listed}. Measure "
            "the worst of them again"
        )
    return model


def _gaps(model: _Model, cores: int) -> list[str]:
    found = []
    whole = (
        ("acting", model.act, Split(1, cores - 1)),
        ("learning", model.learn, Split(cores - 1, 1)),
    )
    for what, draws, measure in whole:
        low, high = np.quantile(draws, [0.025, 0.975])
        if high > DETERMINED * low:
            found.append(f"how fast {what} is, is not determined: measure {measure}")
    return found
