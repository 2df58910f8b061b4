"""What a model of a spread declares to be calibrated: the rate of each week, and the mortality.

`WeeklyRates` is what `ModelSpec.calibration` takes; the fitting itself is in `calibration.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import SettingError
from hotloop.models.epidemic.calibration import (
    Band,
    Calibration,
    CalibrationSettings,
    Observed,
    calibrate,
)
from hotloop.models.epidemic.gradient import estimator
from hotloop.models.epidemic.substeps import numbers, spread_parts
from hotloop.sim.program import Parts
from hotloop.sim.runner import Runner
from hotloop.sim.spec import Fit, FittedParameter, ObservedColumn, OnIteration

Array = NDArray[Any]
DAYS_PER_RATE = 7


@dataclass(frozen=True)
class FitOptions(CalibrationSettings):
    """How to fit, as options of a command."""

    iterations: int = 100
    """Steps of the fit."""
    seed: int = 0
    """Of the first run of the ensemble."""
    estimator: str = "auto"
    """How the gradient through random events is estimated."""


@dataclass(frozen=True)
class WeeklyRates:
    """Fit R of each week, and the mortality where deaths are known, to the counts of each day.

    infected, deaths: the outputs that are observed. check_settings: refuses settings of the model
    that do not fit observations of so many days.
    """

    infected: str = "daily_infected"
    deaths: str = "daily_deaths"
    check_settings: Callable[[Any, int], None] = lambda _settings, _days: None

    @property
    def settings(self) -> type[Any]:
        """How to fit."""
        return FitOptions

    @property
    def loss_label(self) -> str:
        """What the loss is."""
        return "Poisson deviance of the observed counts, a mean over the days."

    @property
    def observed(self) -> Sequence[ObservedColumn]:
        """Counts of infections by day, and of deaths if they are known."""
        names = (self.infected, "infected", "infections", "daily_cases", "new_cases", "cases")
        deaths = (self.deaths, "deaths", "new_deaths", "dead")
        return (
            ObservedColumn(self.infected, names, "infected"),
            ObservedColumn(self.deaths, deaths, "deaths", required=False),
        )

    @property
    def fewest_steps(self) -> int:
        """Of one week's rate."""
        return DAYS_PER_RATE

    def check(self, settings: Any, model_settings: Any, observed: Mapping[str, Array]) -> None:
        """Refuse an estimator that is not there, and a first guess of more weeks than observed.

        Raises: SettingError.
        """
        if settings.estimator != "auto":
            estimator(settings.estimator)
        self.check_settings(model_settings, len(observed[self.infected]))

    def check_size(self, observed: Mapping[str, Array], agents: int, population: str) -> None:
        """Refuse more infections than there are agents.

        Raises: SettingError.
        """
        total = float(observed[self.infected].sum())
        if total > agents:
            raise SettingError(
                f"--target: {total:,.0f} infections among the {agents:,} agents of {population}; "
                "take a larger --population, or scale the counts"
            )

    def first_guess(self, runner: Runner, observed: Mapping[str, Array]) -> list[FittedParameter]:
        """The runner's own rates, one a week, the last one repeated; and its mortality."""
        rate, mortality = self._guess(runner, observed)
        return self._parameters(rate, mortality, rate, mortality, self.deaths in observed)

    def replicates(self, settings: Any) -> int:
        """Runs at the fit."""
        return int(settings.interval_replicates)

    def fit(
        self,
        runner: Runner,
        observed: Mapping[str, Array],
        settings: Any,
        on_iteration: OnIteration,
    ) -> Fit:
        """Fit by gradient, see `calibrate`.

        Raises: SettingError, ShapeError.
        """
        first_rate, first_mortality = self._guess(runner, observed)
        with_deaths = self.deaths in observed

        def note(number: int, iteration: Any) -> None:
            on_iteration(
                number,
                iteration.loss,
                self._parameters(
                    iteration.rate, iteration.mortality, first_rate, first_mortality, with_deaths
                ),
            )

        found = calibrate(
            runner, Observed(observed[self.infected], observed.get(self.deaths)), settings, note
        )
        return Fit(
            parameters=self._parameters(
                found.rate, found.mortality, first_rate, first_mortality, with_deaths, found
            ),
            curves={self.infected: _rows(found.infected), self.deaths: _rows(found.deaths)},
            notes=found.notes,
        )

    def group_notes(self, observed: Mapping[str, Array]) -> Mapping[str, str]:
        """Whether the mortality was fitted."""
        if self.deaths in observed:
            return {"R by week": "", "mortality": "fitted to the deaths"}
        return {"R by week": "", "mortality": "kept: no deaths were given to fit it to"}

    def _guess(self, runner: Runner, observed: Mapping[str, Array]) -> tuple[Array, float]:
        transmission, progression = spread_parts(
            Parts(runner.state, runner.substeps, runner.settings)
        )
        rate = numbers(transmission.rate).reshape(-1)
        mortality = float(numbers(progression.mortality).reshape(-1)[0])
        last_step = int(runner.state.step) + len(observed[self.infected]) - 1
        weeks = np.arange(last_step // transmission.spread.steps_per_rate + 1)
        return rate[np.minimum(weeks, len(rate) - 1)], mortality

    def _parameters(
        self,
        rate: Array,
        mortality: float,
        first_rate: Array,
        first_mortality: float,
        with_deaths: bool,
        found: Calibration | None = None,
    ) -> list[FittedParameter]:
        rates = [
            FittedParameter(
                f"R, week {week + 1}",
                "R by week",
                float(rate[week]),
                float(first_rate[week]),
                None if found is None else _ends(found.rate_interval[week]),
            )
            for week in range(len(rate))
        ]
        interval = None if found is None else found.mortality_interval
        return [
            *rates,
            FittedParameter(
                "mortality",
                "mortality",
                float(mortality),
                float(first_mortality),
                None if interval is None else _ends(interval),
                fitted=with_deaths,
            ),
        ]


def _ends(interval: Array) -> tuple[float, float]:
    return float(interval[0]), float(interval[1])


def _rows(band: Band) -> Array:
    return np.stack([band.mean, band.low, band.high])
