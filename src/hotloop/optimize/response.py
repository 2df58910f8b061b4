"""What all measured turns together say about every choice: a Gaussian process over the levers.

The logarithm of a choice's rate is a sum of a part for each lever, of a part for each pair, and of
one for the choice alone; how much each kind weighs is taken from the turns themselves. What turns
of one race have in common is a part of its own. So a lever's gain is known from every turn in which
it was set, and a choice that was fast in few noisy turns counts by what its levers did elsewhere.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.loop.lever import Option, same_option
from hotloop.optimize.space import Choice, Space

Floats = NDArray[np.floating[Any]]

ROWS = 400  # the newest that count: fitting takes time with their third power
LEAST_NOISE = 1e-3  # of the logarithm of a rate
SHARED = 3.0  # standard deviation of what a race has in common
REFITTED = 1.25  # weights are chosen again once there are so many times as many rows
# What is tried for the weights: scale of all parts; shares of levers, pairs and single choices.
SCALES = (0.05, 0.15, 0.5)
SHARES = ((0.9, 0.08, 0.02), (0.5, 0.4, 0.1), (0.2, 0.2, 0.6))


class Response:
    """The logarithms of the rates of choices, as far as turns have shown them."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._alike = [_alike(in_order(lever.options)) for lever in space.levers.values()]
        self._places: list[list[int]] = []
        self._logs: list[float] = []
        self._rounds: list[int] = []
        self._granularities: list[float] = []
        self._races: list[int] = []
        self._weights = (SCALES[1], SHARES[0])
        self._weighed = 0  # rows when the weights were chosen
        self._solved: tuple[Floats, Floats] | None = None
        self._noise = LEAST_NOISE

    def add(self, found: Mapping[Choice, tuple[float, int, float]], noise: float) -> None:
        """Take in a race: of each choice the logarithm of its rate, rounds, and granularity.

        noise: standard deviation of the logarithm of one turn's rate, as far as it is known.
        """
        race = self._races[-1] + 1 if self._races else 0
        for choice, (log, rounds, granularity) in found.items():
            self._places.append(self._place(choice))
            self._logs.append(log)
            self._rounds.append(rounds)
            self._granularities.append(granularity)
            self._races.append(race)
        columns = (self._places, self._logs, self._rounds, self._granularities, self._races)
        for rows in columns:
            del rows[:-ROWS]
        self._noise = max(noise, LEAST_NOISE)
        self._solved = None

    def of(self, choices: Sequence[Choice]) -> tuple[Floats, Floats]:
        """Means and standard deviations of the logarithms of rates, above that of the start.

        Shapes: (choices,) both.
        """
        if not self._logs:
            return np.zeros(len(choices)), np.full(len(choices), self._weights[0])
        if self._solved is None:
            self._solved = self._fit()
        lower, solved = self._solved
        places = np.array([self._place(each) for each in (self._space.start, *choices)])
        across = self._covariance(places, np.array(self._places), self._weights)
        reached = np.linalg.solve(lower, across.T)
        means = across @ solved
        # Of the difference to the start: how fast all are together does not matter.
        apart = self._covariance(places[1:], places[:1], self._weights)[:, 0]
        variances = 2 * (self._weights[0] ** 2 - apart)
        variances -= ((reached[:, 1:] - reached[:, :1]) ** 2).sum(axis=0)
        return means[1:] - means[0], np.sqrt(np.maximum(variances, 0.0))

    def _fit(self) -> tuple[Floats, Floats]:
        rows = len(self._logs)
        if rows >= REFITTED * self._weighed or rows < self._weighed:
            choices = [(scale, shares) for scale in SCALES for shares in SHARES]
            self._weights = max(choices, key=lambda each: self._solve(each)[0])
            self._weighed = rows
        return self._solve(self._weights)[1:]

    def _solve(self, weights: "Weights") -> tuple[float, Floats, Floats]:
        """The log likelihood, the factor of the covariance, and how much each row counts."""
        places, logs = np.array(self._places), np.array(self._logs)
        races = np.array(self._races)
        covariance = self._covariance(places, places, weights)
        covariance += SHARED**2 * (races[:, None] == races[None, :])
        of_rounds = self._noise**2 / np.array(self._rounds)
        covariance += np.diag(of_rounds + np.square(self._granularities))
        lower = np.asarray(np.linalg.cholesky(covariance), np.float64)
        half = np.asarray(np.linalg.solve(lower, logs), np.float64)
        likelihood = -0.5 * float(half @ half) - float(np.log(np.diag(lower)).sum())
        counts = np.asarray(np.linalg.solve(lower.T, half), np.float64)
        return likelihood, lower, counts

    def _covariance(
        self, first: NDArray[np.int64], second: NDArray[np.int64], weights: "Weights"
    ) -> Floats:
        """Of choices by the places of their options, (m, levers) and (n, levers): (m, n)."""
        scale, (single, pair, alone) = weights
        each: Floats = np.array(
            [
                alike[first[:, k][:, None], second[:, k][None, :]]
                for k, alike in enumerate(self._alike)
            ]
        )
        count = len(each)
        total = each.sum(axis=0)
        found: Floats = single * total / count + alone * each.prod(axis=0)
        pairs = total if count == 1 else (total**2 - (each**2).sum(axis=0)) / (count * (count - 1))
        found += pair * pairs
        return scale**2 * found

    def _place(self, choice: Choice) -> list[int]:
        options = self._space.options(choice)
        return [place(lever.options, options[name]) for name, lever in self._space.levers.items()]


Weights = tuple[float, tuple[float, float, float]]


def in_order(options: Sequence[Option]) -> list[Option]:
    """Options, numbers in rising order: what lies between two good ones may be good."""
    if is_numeric(options):
        return sorted(options, key=float)  # type: ignore[arg-type]
    return list(options)


def is_numeric(options: Sequence[Option]) -> bool:
    """Whether all of them are numbers."""
    return all(type(each) in (int, float) for each in options)


def place(options: Sequence[Option], option: Option) -> int:
    """The place of an option among those of its lever, in order."""
    return next(k for k, each in enumerate(in_order(options)) if same_option(each, option))


def _alike(options: Sequence[Option]) -> Floats:
    """How alike two options are, from 0 to 1: numbers the more, the fewer lie between them."""
    if not is_numeric(options):
        return np.eye(len(options))
    away = np.abs(np.subtract.outer(np.arange(len(options)), np.arange(len(options))))
    return np.array([[math.exp(-0.5 * float(a)) for a in row] for row in away])
