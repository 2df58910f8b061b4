"""The gradient of a spread's counts, as a runner asks for it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hotloop.errors import SettingError
from hotloop.models.epidemic.gradient import default_estimator, estimator
from hotloop.models.epidemic.gradient.attach import Estimator, attach
from hotloop.models.epidemic.gradient.problem import SpreadProblem, SpreadStart
from hotloop.models.epidemic.substeps import (
    Progression,
    Transmission,
    numbers,
    one_run,
    spread_parts,
)
from hotloop.sim.program import Parts


def differentiator(parts: Parts) -> "SpreadDifferentiator | None":
    """For Model.gradient: gives a Transmission's and a Progression's counts their gradient.

    None with gradient=False, where the run has none.

    Raises: SettingError for an estimator that does not exist, and for other substeps.
    """
    if parts.settings.gradient is False:
        return None
    transmission, progression = spread_parts(parts)
    return SpreadDifferentiator(parts, transmission, progression)


@dataclass(frozen=True, eq=False)
class _Begin:
    """The state in which a span starts; (R, N) columns."""

    step: int
    stage: np.ndarray
    infected_time: np.ndarray
    next_time: np.ndarray
    contact: np.ndarray | None
    isolating: np.ndarray


class SpreadDifferentiator:
    """Infections and deaths of a span, with the gradient of the estimator that was chosen."""

    def __init__(self, parts: Parts, transmission: Transmission, progression: Progression) -> None:
        chosen = parts.settings.gradient
        named = isinstance(chosen, str) and chosen != "auto"
        self._named = estimator(str(chosen)) if named else None
        self._state = parts.state
        self._transmission, self._progression = transmission, progression
        self._begin: _Begin | None = None
        self._first: SpreadStart | None = None

    def begin(self, first_step: int) -> None:
        """Keep the columns as they are: the gradient is that of the steps from here."""
        transmission = self._transmission
        self._begin = _Begin(
            first_step,
            self._rows(transmission.stage),
            self._rows(transmission.infected_time),
            self._rows(transmission.next_time),
            self._contact(),
            self._isolating(),
        )

    def counts(self, steps: int) -> Mapping[str, Tensor]:
        """The infections and deaths of the span's first `steps` steps."""
        begin = self._begin
        assert begin is not None
        self._refuse_other_controls(begin)
        infected, deaths = (
            self._state.slots[path].home[..., begin.step : begin.step + steps]
            for path in (self._transmission.daily, self._progression.daily)
        )
        seeds = self._state.seeds.reshape(-1).tolist()
        rate, mortality = self._transmission.rate, self._progression.mortality
        if self._all_alike(begin, rate, mortality):
            problem = self._problem(begin, 0, rate, mortality, steps, tuple(seeds))
            pair = attach(infected, deaths, rate, mortality, problem, self._chosen(problem))
        else:
            runs = [
                self._of_run(begin, run, seed, steps, infected[run], deaths[run])
                for run, seed in enumerate(seeds)
            ]
            pair = torch.stack([run[0] for run in runs]), torch.stack([run[1] for run in runs])
        return {self._transmission.daily: pair[0], self._progression.daily: pair[1]}

    def _of_run(
        self, begin: _Begin, run: int, seed: int, steps: int, infected: Tensor, deaths: Tensor
    ) -> tuple[Tensor, Tensor]:
        rate, mortality = self._transmission.rate, self._progression.mortality
        rate = rate[run] if rate.dim() == 2 else rate
        mortality = mortality[run] if mortality.dim() == 1 else mortality
        problem = self._problem(begin, run, rate, mortality, steps, (seed,))
        return attach(infected, deaths, rate, mortality, problem, self._chosen(problem))

    def _problem(
        self, begin: _Begin, run: int, rate: Tensor, mortality: Tensor, steps: int,
        seeds: tuple[int, ...],
    ) -> SpreadProblem:  # fmt: skip
        transmission = self._transmission
        willing = transmission.willing
        of_run = min(run, len(begin.isolating) - 1)
        start = SpreadStart(
            transmission.spread,
            self._state[transmission.network],
            one_run(self._state[transmission.group]).cpu().numpy(),
            begin.stage[run],
            begin.infected_time[run],
            begin.next_time[run],
            begin.step,
            None if begin.contact is None else begin.contact[min(run, len(begin.contact) - 1)],
            one_run(self._state[willing]).cpu().numpy() if willing else None,
            float(begin.isolating[of_run]),
        )
        start = self._same_start(start)
        return SpreadProblem(
            start, numbers(rate), float(numbers(mortality)), steps, seeds,
            self._infected_time()[run : run + len(seeds)],
        )  # fmt: skip

    def _same_start(self, start: SpreadStart) -> SpreadStart:
        """The start before this one where they are equal: it holds the network's layout."""
        before = self._first
        if before is not None and before.first_step == start.first_step:
            names = ("stage", "infected_time", "next_time", "contact", "isolating")
            pairs = ((getattr(before, name), getattr(start, name)) for name in names)
            if all(np.array_equal(one, other) for one, other in pairs):
                return before
        self._first = start
        return start

    def _chosen(self, problem: SpreadProblem) -> Estimator:
        return self._named or default_estimator(problem.start)

    def _all_alike(self, begin: _Begin, rate: Tensor, mortality: Tensor) -> bool:
        columns = (begin.stage, begin.infected_time, begin.next_time)
        controls = (c for c in (begin.contact, begin.isolating) if c is not None)
        return (
            rate.dim() == 1
            and mortality.dim() == 0
            and all((c == c[:1]).all() for c in (*columns, *controls))
        )

    def _infected_time(self) -> np.ndarray:
        """Of the runs as they are now, (R, N): with the start it says all about them."""
        return self._rows(self._transmission.infected_time)

    def _rows(self, path: str) -> np.ndarray:
        column: Tensor = self._state[path]
        return column.detach().cpu().reshape(-1, column.shape[-1]).numpy().copy()

    def _contact(self) -> np.ndarray | None:
        path = self._transmission.contact
        if path is None:
            return None
        value = numbers(self._state[path])
        return value.reshape(-1, value.shape[-1]).copy()

    def _isolating(self) -> np.ndarray:
        path = self._transmission.isolating
        return np.zeros(1) if path is None else numbers(self._state[path]).reshape(-1).copy()

    def _refuse_other_controls(self, begin: _Begin) -> None:
        now = (self._contact(), self._isolating())
        pairs = zip(now, (begin.contact, begin.isolating), strict=True)
        if not all(
            a is b or np.array_equal(a, b) for a, b in pairs if a is not None and b is not None
        ):
            raise SettingError(
                "a control was changed between steps that belong to one gradient; set the "
                "parameters again, or reset, before steps under other controls"
            )
