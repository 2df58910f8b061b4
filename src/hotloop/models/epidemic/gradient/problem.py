"""What a gradient is asked about: where a span of steps starts, its parameters, and its runs.

Apart from the estimators so that all of them answer the same question, and apart from the runner
so that they can be compared without one.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from hotloop.errors import SettingError, ShapeError
from hotloop.models.epidemic.gradient.layout import Layout, build_layout
from hotloop.models.epidemic.gradient.pairs import Pairs, build_pairs
from hotloop.models.epidemic.gradient.places import Places, build_places
from hotloop.models.epidemic.program import SpreadColumns, SpreadProgram
from hotloop.models.epidemic.spread import Spread, SpreadInputs
from hotloop.sim.network import Network

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class SpreadStart:
    """Where a span of steps starts, and what stays the same in it whatever the parameters are.

    group, stage: (N,) uint8; infected_time, next_time: (N,) int16; the columns before first_step.
    contact: (groups,) or (steps, groups), multiplies the susceptibility, such as 0 for closed
    schools; None for 1.
    willing: (N,) from 0 to 1, or None; isolating: 0 to 1, one number or (steps,); agents give in
    with probability p (1 - isolating * willing).
    by_controls: whether gradients by contact and isolating are asked for, too.

    The layout of the network that gradients use is built on first use and kept: keep the start,
    and change parameters by `SpreadProblem.at`.
    Raises: SettingError for a network that changes with the steps; ShapeError.
    """

    spread: Spread
    network: Network
    group: Array
    stage: Array
    infected_time: Array
    next_time: Array
    first_step: int = 0
    contact: Array | None = None
    willing: Array | None = None
    isolating: Array | float = 0.0
    by_controls: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.network, Network):
            raise SettingError(
                f"gradients need one network for all steps, got {type(self.network).__name__}; "
                "use a Network, or run without a gradient"
            )
        size = self.network.num_agents
        for name in ("group", "stage", "infected_time", "next_time", "willing"):
            column = getattr(self, name)
            if column is not None and column.shape != (size,):
                raise ShapeError(
                    f"{name} of a gradient's start: expected ({size},), one for each agent of the "
                    f"network; got {column.shape}"
                )

    @cached_property
    def layout(self) -> Layout:
        """Kinds of agents, and who sends when."""
        return build_layout(self)

    @cached_property
    def places(self) -> Places:
        """The network as message passing reads it."""
        return build_places(self)

    @cached_property
    def pairs(self) -> Pairs:
        """The network as the expected model reads it."""
        return build_pairs(self)

    @cached_property
    def willingness(self) -> Array:
        """(N,) float64; 0 where nobody isolates."""
        willing = np.zeros(self.network.num_agents) if self.willing is None else self.willing
        return np.asarray(willing, np.float64)

    def control(self, step: int) -> tuple[Array, float]:
        """Contact (groups,) and isolating of a step counted from the start."""
        contact = np.ones_like(self.spread.susceptibility) if self.contact is None else self.contact
        isolating = np.asarray(self.isolating, np.float64)
        return (
            contact if contact.ndim == 1 else contact[step],
            float(isolating if isolating.ndim == 0 else isolating[step]),
        )

    @property
    def controls_change(self) -> bool:
        """Whether the controls are given by step."""
        by_step = self.contact is not None and self.contact.ndim > 1
        return by_step or np.ndim(self.isolating) > 0


class Gradient(NamedTuple):
    """The derivative of a weighted sum of counts, summed over the runs.

    rate: (weeks,). mortality: by M. contact: (T, groups), isolating: (T,), by the controls of each
    step; None unless the start asks for them.
    """

    rate: Array
    mortality: float
    contact: Array | None = None
    isolating: Array | None = None


class Runs(NamedTuple):
    """Simulated runs: infected, deaths (R, T); infected_time (R, N) int16, after the last step."""

    infected: Array
    deaths: Array
    infected_time: Array


@dataclass(frozen=True, eq=False)
class SpreadProblem:
    """A start, the parameters at which the gradient is wanted, and the runs to differentiate.

    rate: (weeks,), R by week. mortality: M. steps: T. seeds: one for each of R runs.
    infected_time: (R, N) int16 as the runs left it, where the caller has it: with a start it says
    all about a run, because nobody is infected twice. None: the runs are simulated when needed.
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
        """The same problem at other parameters or seeds; its runs are forgotten."""
        return replace(
            self,
            rate=self.rate if rate is None else rate,
            mortality=self.mortality if mortality is None else mortality,
            seeds=self.seeds if seeds is None else seeds,
            infected_time=None,
        )

    @property
    def entries(self) -> Array:
        """(T,) which entry of the rate each step uses."""
        places = np.arange(self.start.first_step, self.start.first_step + self.steps)
        return np.minimum(places // self.start.spread.steps_per_rate, len(self.rate) - 1)

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
        """By the parameters, from the derivatives by `factor` (T, groups) and `isolating` (T,)."""
        by_step = (by_factor * self.slopes).sum(1)
        by_rate = np.bincount(self.entries, by_step, minlength=len(self.rate))
        if not self.start.by_controls:
            return Gradient(by_rate, by_mortality)
        own = self.start.spread.susceptibility * self.rate[self.entries][:, None]
        return Gradient(by_rate, by_mortality, by_factor * own, by_isolating)

    def cotangents(self, infected: Array, deaths: Array) -> tuple[Array, Array]:
        """Both as (R, T) float64, from (T,) or (R, T).

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
            # A sum over runs of (T,) means the same weight for each of them.
            given.append(np.broadcast_to(value, shape))
        return given[0], given[1]


class Simulator:
    """The engine at a problem's start, one row of its columns for each seed; push, one thread."""

    def __init__(self, problem: SpreadProblem, seeds: tuple[int, ...]) -> None:
        start = problem.start
        self._problem, self._control = problem, start.control(0)

        def tiled(column: Array, dtype: type) -> torch.Tensor:
            return torch.from_numpy(np.tile(column.astype(dtype), (len(seeds), 1)))

        days = torch.zeros(len(seeds), start.first_step + problem.steps)
        self.columns = SpreadColumns(
            torch.from_numpy(start.group.astype(np.uint8)),
            tiled(start.stage, np.uint8),
            tiled(start.infected_time, np.int16),
            tiled(start.next_time, np.int16),
            days,
            days.clone(),
        )
        self._program = SpreadProgram(
            start.spread, start.network, self.columns, list(seeds), self._inputs,
            willing=start.willing, mode="push", threads=1,
        )  # fmt: skip

    def columns_changed(self) -> None:
        """Say that the columns were changed from outside."""
        self._program.columns_changed()

    def advance(self, first_step: int, steps: int) -> None:
        """Step on, with the controls of each step where they change."""
        start = self._problem.start
        if not start.controls_change:
            self._program.advance(first_step, steps)
            return
        for step in range(first_step, first_step + steps):
            self._control = start.control(step - start.first_step)
            self._program.advance(step, 1)

    def _inputs(self) -> SpreadInputs:
        problem, (contact, isolating) = self._problem, self._control
        return SpreadInputs(problem.rate, np.array(problem.mortality), contact, np.array(isolating))


def simulate(problem: SpreadProblem) -> Runs:
    """Run every seed of the problem, with the engine's own active-set kernels in one thread."""
    first, simulator = problem.start.first_step, Simulator(problem, problem.seeds)
    simulator.advance(first, problem.steps)
    columns = simulator.columns
    return Runs(
        columns.infected[:, first:].numpy(),
        columns.deaths[:, first:].numpy(),
        columns.infected_time.numpy(),
    )


def infected_times(problem: SpreadProblem) -> Array:
    """(R, N) int16: given by the caller, or simulated."""
    if problem.infected_time is not None:
        return problem.infected_time
    return simulate(problem).infected_time
