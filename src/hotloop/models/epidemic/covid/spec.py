"""What the covid model declares of itself, for commands and reports."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotloop.errors import SettingError
from hotloop.models.epidemic.covid import disease
from hotloop.models.epidemic.covid.model import POPULATION, CovidSettings, model
from hotloop.models.epidemic.weekly_rates import DAYS_PER_RATE, WeeklyRates
from hotloop.sim.model import Model
from hotloop.sim.runner import Runner
from hotloop.sim.spec import ModelSpec, Output

_MOST_DAYS = 32_000  # days are counted in 16 bits


@dataclass(frozen=True)
class CovidOptions:
    """Settings of the covid model as options of a command; the others keep their defaults."""

    r: str | None = None
    """Reproduction number of each week, such as 4.75,4.5,4; the last one goes on. For a fit the
    first guess."""
    mortality: float | None = None
    """Share of the infected who die, 0 to 1. For a fit the first guess, kept without deaths."""

    @property
    def rates(self) -> tuple[float, ...] | None:
        """R by week, from numbers with commas.

        Raises: SettingError.
        """
        if self.r is None:
            return None
        try:
            found = tuple(float(part) for part in self.r.split(","))
        except ValueError:
            found = (math.nan,)
        if not all(0 <= each < math.inf for each in found):
            raise SettingError(
                f"--r: expected numbers of 0 or more, one a week, as in 4.75,4.5,4; got {self.r!r}"
            )
        return found


def _model(options: CovidOptions) -> Model:
    given = {"r_by_week": options.rates, "mortality": options.mortality}
    known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return model(CovidSettings(**known))


def _at_start(runner: Runner) -> Sequence[tuple[str, float]]:
    """How many the first run starts with, exposed or infected."""
    found = runner.state[f"agents/{POPULATION}/disease_stage"]
    first = found if found.dim() == 1 else found[0]
    return [("infected", int(((first == disease.EXPOSED) | (first == disease.INFECTED)).sum()))]


def _check_weeks(options: CovidOptions, days: int) -> None:
    rates, weeks = options.rates, math.ceil(days / DAYS_PER_RATE)
    if rates is not None and len(rates) > weeks:
        raise SettingError(
            f"--r: {len(rates)} weeks, but the {days} observed days are in {weeks}; give at most "
            "so many"
        )


MODEL = ModelSpec(
    name="covid",
    make=_model,
    settings=CovidOptions,
    outputs=(
        Output(
            "daily_infected",
            "infections",
            word="infected",
            total_name="total_infected",
            total_label="infections in all",
            share_of="agents",
            share_label="of the agents",
            peak=True,
        ),
        Output(
            "daily_deaths",
            "deaths",
            word="died",
            total_name="total_deaths",
            total_label="deaths in all",
            share_of="daily_infected",
            share_label="of the infected so far",
            colour=3,
        ),
    ),
    step="day",
    heading="How covid spreads in {population}",
    most_steps=_MOST_DAYS,
    population="astoria",
    at_start=_at_start,
    calibration=WeeklyRates(check_settings=_check_weeks),
)
