"""Fit the rate of each week, and the mortality, to observed daily counts, by gradient.

The curve is the mean of an ensemble of runs on common random numbers; its gradient comes from the
chosen estimator, along a few of these runs. Intervals say how much the fit would vary by chance:
the sandwich estimator of the curve's sensitivities (from the expected model) and the ensemble's
covariance, of which a Poisson model would have only the diagonal.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from hotloop.errors import SettingError, ShapeError, expect_positive
from hotloop.models.epidemic.gradient import (
    Estimator,
    Inputs,
    Runs,
    SpreadProblem,
    SpreadStart,
    attach_gradient,
    default_estimator,
    estimator,
    expected_curves,
    has_short_loops,
    short_loops,
    simulate,
)
from hotloop.models.epidemic.gradient.differentiator import spread_start
from hotloop.models.epidemic.substeps import numbers, spread_parts
from hotloop.sim.program import Parts
from hotloop.sim.runner import Runner

Array = np.ndarray[Any, Any]

Z95 = 1.959963984540054  # half the width of a 95% interval in standard errors
# Added to expected counts in denominators: a day without expected cases must not dominate.
_FLOOR = 0.5
# Sensitivities are differences of the expected model over this share of each parameter.
_RELATIVE_STEP = 0.02


@dataclass(frozen=True)
class CalibrationSettings:
    """Settings of the fit."""

    iterations: int = 100
    learning_rate: float = 0.2
    """Of Adam at its start, in the parameters' unbounded form; it falls to 0 along a cosine."""
    replicates: int = 32
    """Runs whose mean is the curve."""
    gradient_replicates: int = 4
    """Of them, runs along which the gradient is taken, others in each iteration."""
    interval_replicates: int = 200
    """Runs at the fit, for intervals."""
    observed_runs: int = 1
    """Runs whose mean was observed; 1 for an observation of one epidemic."""
    seed: int = 0
    estimator: str | Estimator = "auto"
    """By name, or "auto": message passing, or flips where the network has short loops."""

    def __post_init__(self) -> None:
        for name in (
            "iterations", "learning_rate", "replicates", "gradient_replicates",
            "interval_replicates", "observed_runs",
        ):  # fmt: skip
            expect_positive(name, getattr(self, name))
        if self.gradient_replicates > self.replicates:
            raise SettingError(
                f"gradient_replicates: expected at most the {self.replicates} replicates, got "
                f"{self.gradient_replicates}"
            )


@dataclass(frozen=True)
class Observed:
    """Daily counts to fit: infected (T,), and deaths (T,) if they are known; not negative."""

    infected: Array
    deaths: Array | None = None

    def __post_init__(self) -> None:
        for name, counts in (("infected", self.infected), ("deaths", self.deaths)):
            if counts is None:
                continue
            if np.ndim(counts) != 1 or len(counts) != len(self.infected):
                raise ShapeError(
                    f"observed {name}: expected one number for each of the same days, got shape "
                    f"{np.shape(counts)}"
                )
            if not np.isfinite(counts).all() or np.min(counts) < 0:
                raise SettingError(f"observed {name}: expected finite counts of 0 or more")


@dataclass(frozen=True)
class Iteration:
    """The parameters and the loss before one step of the fit."""

    loss: float
    rate: Array
    mortality: float


@dataclass(frozen=True)
class Band:
    """A curve over the days: mean, and where 95% of runs lie; each (T,)."""

    mean: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Calibration:
    """The result of a fit.

    rate, rate_interval: (weeks,), (weeks, 2) of 95%. mortality, mortality_interval: M and (2,), the
    interval None where M was not fitted. notes: caveats on the numbers.
    parameters: by their paths in the given runner, for its `set_parameters`.
    """

    rate: Array
    rate_interval: Array
    mortality: float
    mortality_interval: Array | None
    infected: Band
    deaths: Band
    history: tuple[Iteration, ...] = field(repr=False)
    notes: tuple[str, ...] = ()
    parameters: Mapping[str, torch.Tensor] = field(default_factory=dict, repr=False)


def calibrate(
    runner: Runner,
    observed: Observed,
    settings: CalibrationSettings | None = None,
    on_iteration: Callable[[int, Iteration], None] | None = None,
) -> Calibration:
    """Fit the rates and the mortality of a runner's spread to what was observed from now on.

    runner: of the covid model, or of your own model of a Transmission and a Progression. Its
    parameters are the first guess, and its present columns and controls are the start; it is
    neither stepped nor changed: `runner.set_parameters(found.parameters)` applies the fit.
    on_iteration: called with the number and the outcome of each.

    Raises: SettingError, ShapeError; see `fit`.
    """
    transmission, progression = spread_parts(Parts(runner.state, runner.substeps, runner.settings))
    start = spread_start(runner)
    rate, mortality = numbers(transmission.rate), numbers(progression.mortality)
    if rate.ndim != 1 or mortality.ndim:
        raise SettingError(
            "calibrate starts from one value of each parameter, and the runner has one for each "
            "replicate; set them to one"
        )
    last_step = start.first_step + len(observed.infected) - 1
    weeks = np.arange(last_step // start.spread.steps_per_rate + 1)
    found = fit(
        start, observed, rate[np.minimum(weeks, len(rate) - 1)], float(mortality), settings,
        on_iteration,
    )  # fmt: skip
    paths = {id(value): path for path, value in runner.named_parameters()}
    parameters = {}
    for substep, name, fitted in (
        (transmission, transmission.rate_name, found.rate),
        (progression, progression.mortality_name, np.array([found.mortality])),
    ):
        own = substep.parameter(name)
        shape = (-1, *own.shape[1:]) if own.dim() else ()
        parameters[paths[id(own)]] = torch.from_numpy(fitted).to(own.dtype).reshape(shape)
    return replace(found, parameters=parameters)


def fit(
    start: SpreadStart,
    observed: Observed,
    rate: Array,
    mortality: float,
    settings: CalibrationSettings | None = None,
    on_iteration: Callable[[int, Iteration], None] | None = None,
) -> Calibration:
    """Fit from a first guess of rate (weeks,) and mortality; as `calibrate`, without a runner.

    Minimises the Poisson deviance of the observed counts around the ensemble's mean. Rates stay
    positive (by their logarithm), the mortality between 0 and 1 (logistic); without deaths it
    stays as given, because cases say nothing about it.
    Raises: SettingError, ShapeError.
    """
    settings = settings or CalibrationSettings()
    first = SpreadProblem(
        start, rate, mortality, len(observed.infected),
        tuple(range(settings.seed, settings.seed + settings.replicates)),
    )  # fmt: skip
    last_entry = int(first.entries[-1])
    if len(first.rate) > last_entry + 1:
        raise SettingError(
            f"rate: {len(first.rate)} weeks, but the {first.steps} observed days use only "
            f"{last_entry + 1}; give that many"
        )
    fit = _Fit(first, observed, settings)
    history: list[Iteration] = []
    for number in range(settings.iterations):
        history.append(fit.iterate(number))
        if on_iteration is not None:
            on_iteration(number, history[-1])
    fitted = first.at(*fit.settled(history))
    return _described(fitted, observed, settings, tuple(history))


class _Fit:
    """Adam on the unbounded form of the parameters."""

    def __init__(
        self, problem: SpreadProblem, observed: Observed, settings: CalibrationSettings
    ) -> None:
        self._problem, self._settings = problem, settings
        self._infected = torch.as_tensor(np.asarray(observed.infected, np.float64))
        self._deaths = (
            None
            if observed.deaths is None
            else torch.as_tensor(np.asarray(observed.deaths, np.float64))
        )
        chosen = settings.estimator
        self._estimator = (
            default_estimator(problem.start) if chosen == "auto" else estimator(chosen)
        )
        start = np.maximum(problem.rate, 1e-3)
        self._free_rate = torch.from_numpy(np.log(start)).requires_grad_()
        share = min(max(problem.mortality, 1e-4), 1 - 1e-4)
        self._free_mortality = torch.tensor(math.log(share / (1 - share)), dtype=torch.float64)
        free = [self._free_rate]
        if self._deaths is not None:
            free.append(self._free_mortality.requires_grad_())
        self._adam = torch.optim.Adam(free, lr=settings.learning_rate, betas=(0.8, 0.99))

    def iterate(self, number: int) -> Iteration:
        """Do one step of Adam."""
        settings = self._settings
        rate = torch.exp(self._free_rate)
        mortality = torch.sigmoid(self._free_mortality)
        if self._deaths is None:
            mortality = torch.tensor(self._problem.mortality, dtype=torch.float64)
        problem = self._problem.at(rate.detach().numpy(), float(mortality.detach()))
        runs = simulate(problem)
        infected, deaths = self._means(problem, runs, rate, mortality, number)
        loss = _deviance(infected, self._infected)
        if self._deaths is not None:
            loss = loss + _deviance(deaths, self._deaths)
        self._adam.zero_grad()
        loss.backward()
        progress = number / settings.iterations
        for group in self._adam.param_groups:
            group["lr"] = settings.learning_rate * (1 + math.cos(math.pi * progress)) / 2
        self._adam.step()
        return Iteration(float(loss.detach()), problem.rate, problem.mortality)

    def _means(
        self,
        problem: SpreadProblem,
        runs: Runs,
        rate: torch.Tensor,
        mortality: torch.Tensor,
        number: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the ensemble's mean curves, with the gradient of a few of its runs."""
        count, total = self._settings.gradient_replicates, len(problem.seeds)
        chosen = [(number * count + n) % total for n in range(count)]
        along = replace(
            problem,
            seeds=tuple(problem.seeds[n] for n in chosen),
            infected_time=runs.infected_time[chosen],
        )
        infected, deaths = attach_gradient(
            torch.from_numpy(runs.infected[chosen]).double(),
            torch.from_numpy(runs.deaths[chosen]).double(),
            Inputs(rate, mortality), along, self._estimator,
        )  # fmt: skip
        means = []
        for attached, all_runs in ((infected, runs.infected), (deaths, runs.deaths)):
            few = attached.mean(0)
            means.append(few + (torch.from_numpy(all_runs.mean(0)) - few).detach())
        return means[0], means[1]

    def settled(self, history: list[Iteration]) -> tuple[Array, float]:
        """Average the last quarter of the iterations, to reduce the noise of the gradients."""
        last = history[-max(1, len(history) // 4) :]
        return (
            np.mean([h.rate for h in last], axis=0),
            float(np.mean([h.mortality for h in last])),
        )


def _deviance(expected: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Compute the Poisson deviance, a mean over the days."""
    expected, counts = expected.clamp(min=0) + _FLOOR, counts + _FLOOR
    return 2 * (expected - counts - counts * torch.log(expected / counts)).mean()


def _described(
    problem: SpreadProblem,
    observed: Observed,
    settings: CalibrationSettings,
    history: tuple[Iteration, ...],
) -> Calibration:
    begin = settings.seed + settings.replicates
    seeds = tuple(range(begin, begin + settings.interval_replicates))
    runs = simulate(problem.at(seeds=seeds))
    with_deaths = observed.deaths is not None
    curves = np.concatenate([runs.infected, runs.deaths], axis=1) if with_deaths else runs.infected
    error, notes = _standard_errors(problem, curves.astype(np.float64), settings, with_deaths)
    weeks = len(problem.rate)
    if has_short_loops(problem.start):
        loops = short_loops(problem.start.network)
        notes.append(
            f"{100 * loops.back:.0f}% of the contacts go both ways, and their ends have "
            f"{loops.two:.2g} neighbours in common: the expected model, which knows no loops, "
            "misjudges how far an infection is carried, so the intervals may be too narrow"
        )
    # On unbounded scales: log for rates, logit for the mortality.
    spread = np.exp(Z95 * np.minimum(error[:weeks] / problem.rate, 300.0))
    interval = np.stack([problem.rate / spread, problem.rate * spread], axis=1)
    mortality_interval = None
    if with_deaths:
        share = problem.mortality
        logit, wide = math.log(share / (1 - share)), Z95 * error[weeks] / (share * (1 - share))
        mortality_interval = 1 / (1 + np.exp(-np.array([logit - wide, logit + wide])))
    else:
        notes.append(
            f"mortality was kept at {problem.mortality:g}: daily cases say nothing about it; "
            "give daily deaths to fit it"
        )
    return Calibration(
        problem.rate, interval, problem.mortality, mortality_interval,
        _band(runs.infected), _band(runs.deaths), history, tuple(notes),
    )  # fmt: skip


def _standard_errors(
    problem: SpreadProblem, curves: Array, settings: CalibrationSettings, with_deaths: bool
) -> tuple[Array, list[str]]:
    """Compute the standard errors of the rates and the mortality; infinite where data say nothing.

    curves: (runs, days). With J the curve's sensitivities, W = 1 / mean, and C the covariance of a
    run's curve, the covariance of the fit is B J' W C W J B, B the inverse of J' W J; C counts once
    for the observation, and again, divided by their number, for the runs of the fit's mean.
    """
    sensitivity = _sensitivities(problem, with_deaths)
    weight = 1.0 / (curves.mean(0) + _FLOOR)
    covariance = np.atleast_2d(np.cov(curves.T)) * (
        1 / settings.observed_runs + 1 / settings.replicates
    )
    information = sensitivity.T @ (weight[:, None] * sensitivity)
    known = np.diag(information) > 1e-6 * np.diag(information).max()
    error = np.full(len(information), np.inf)
    bread = np.linalg.pinv(information[np.ix_(known, known)], rcond=1e-10, hermitian=True)
    meat = (weight[:, None] * sensitivity[:, known]).T @ covariance
    meat = meat @ (weight[:, None] * sensitivity[:, known])
    error[known] = np.sqrt(np.maximum(np.diag(bread @ meat @ bread), 0.0))
    notes = [
        f"week {week}: the observed days say nothing about its rate; its fit is its first guess"
        for week in range(len(problem.rate))
        if not known[week]
    ]
    return error, notes


def _sensitivities(problem: SpreadProblem, with_deaths: bool) -> Array:
    """Differentiate the expected model's curve by the parameters: (counts, parameters)."""

    def curve(rate: Array) -> Array:
        infected, deaths = expected_curves(problem.at(rate))
        return np.concatenate([infected, deaths]) if with_deaths else infected

    columns = []
    for week in range(len(problem.rate)):
        step = np.zeros(len(problem.rate))
        step[week] = _RELATIVE_STEP * problem.rate[week]
        columns.append((curve(problem.rate + step) - curve(problem.rate - step)) / (2 * step[week]))
    if with_deaths:
        infected, deaths = expected_curves(problem)
        columns.append(np.concatenate([np.zeros_like(infected), deaths / problem.mortality]))
    return np.stack(columns, axis=1)


def _band(runs: Array) -> Band:
    low, high = np.percentile(runs, [2.5, 97.5], axis=0)
    return Band(runs.mean(0), low, high)
