"""What an estimator is asked: a start, the parameters, and the runs to differentiate.

Apart from the estimators so that all of them answer the same question, and apart from the runner
so that they can be compared without one.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hotloop.errors import SettingError, ShapeError
from hotloop.models.epidemic.gradient.start import SpreadStart

Array = np.ndarray[Any, Any]


class Gradient(NamedTuple):
    """The derivative of a weighted sum of counts, summed over the runs.

    rate: (weeks,). mortality: by M. contact: (T, groups), isolating: (T,), by the controls of each
    step; None unless the start asks for them.
    """

    rate: Array
    mortality: float
    contact: Array | None = None
    isolating: Array | None = None


@dataclass(frozen=True, eq=False)
class SpreadProblem:
    """A start, the parameters at which the gradient is wanted, and the runs to differentiate.

    rate: (weeks,), R by week. mortality: M. steps: T. seeds: one for each of R runs.
    infected_time: (R, N) int16 after the runs, if the caller has them: with a start it determines
    a run, because no agent is infected twice. None: the runs are simulated when needed.
    """

    start: SpreadStart
    rate: Array
    mortality: float
    steps: int
    seeds: tuple[int, ...] = (0,)
    infected_time: Array | None = None

    def __post_init__(self) -> None:
        rate = np.asarray(self.rate, np.float64).reshape(-1)
        if not len(rate) or not np.isfinite(rate).all() or (rate < 0).any():
            raise SettingError(f"rate: expected finite numbers of 0 or more, got {rate.tolist()}")
        if not 0.0 <= self.mortality <= 1.0:
            raise SettingError(f"mortality: expected a number from 0 to 1, got {self.mortality}")
        if self.steps < 1 or not self.seeds:
            raise SettingError(
                f"a gradient needs a step and a run; got {self.steps} steps, {len(self.seeds)} runs"
            )
        size = (len(self.seeds), self.start.network.num_agents)
        if self.infected_time is not None and self.infected_time.shape != size:
            raise ShapeError(
                f"infected_time of a gradient: expected {size}, runs by agents; got "
                f"{self.infected_time.shape}"
            )
        object.__setattr__(self, "rate", rate)

    def at(
        self,
        rate: Array | None = None,
        mortality: float | None = None,
        seeds: tuple[int, ...] | None = None,
    ) -> "SpreadProblem":
        """Return the same problem at other parameters or seeds, without its runs."""
        return replace(
            self,
            rate=self.rate if rate is None else rate,
            mortality=self.mortality if mortality is None else mortality,
            seeds=self.seeds if seeds is None else seeds,
            infected_time=None,
        )

    @property
    def entries(self) -> Array:
        """(T,) the entry of the rate that each step uses."""
        steps = np.arange(self.start.first_step, self.start.first_step + self.steps)
        return np.minimum(steps // self.start.spread.steps_per_rate, len(self.rate) - 1)

    @cached_property
    def slopes(self) -> Array:
        """(T, groups) the factor of each step and group for a rate of 1."""
        start = self.start
        own = start.spread.susceptibility
        given = np.ones_like(own) if start.contact is None else start.contact
        given = given if given.ndim == 1 else given[: self.steps]
        return np.ascontiguousarray(np.broadcast_to(own * given, (self.steps, len(own))))

    @cached_property
    def factor(self) -> Array:
        """(T, groups) what multiplies the pressure on each group in each step."""
        return np.ascontiguousarray(self.slopes * self.rate[self.entries][:, None])

    @cached_property
    def isolating(self) -> Array:
        """(T,) of each step."""
        given = np.asarray(self.start.isolating, np.float64)
        given = given if given.ndim == 0 else given[: self.steps]
        return np.ascontiguousarray(np.broadcast_to(given, (self.steps,)))

    def gradient(self, by_factor: Array, by_isolating: Array, by_mortality: float) -> Gradient:
        """Make the gradient from the derivatives by `factor` (T, groups) and `isolating` (T,)."""
        by_step = (by_factor * self.slopes).sum(1)
        by_rate = np.bincount(self.entries, by_step, minlength=len(self.rate))
        if not self.start.by_controls:
            return Gradient(by_rate, by_mortality)
        own = self.start.spread.susceptibility * self.rate[self.entries][:, None]
        return Gradient(by_rate, by_mortality, by_factor * own, by_isolating)

    def cotangents(self, infected: Array, deaths: Array) -> tuple[Array, Array]:
        """Broadcast both to (R, T) float64, from (T,) or (R, T).

        Raises: ShapeError.
        """
        shape = (len(self.seeds), self.steps)
        given = []
        for name, value in (("infected", infected), ("deaths", deaths)):
            value = np.asarray(value, np.float64)
            if value.shape not in (shape, shape[1:]):
                raise ShapeError(
                    f"gradient of the daily {name}: expected {shape} or {shape[1:]}, runs by "
                    f"steps; got {value.shape}"
                )
            # (T,) means the same weights for each run.
            given.append(np.broadcast_to(value, shape))
        return given[0], given[1]
