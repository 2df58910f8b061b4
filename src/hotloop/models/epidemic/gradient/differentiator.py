"""The differentiator of a spread: gives a runner's counts their gradient."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hotloop.errors import SettingError
from hotloop.models.epidemic.gradient import default_estimator, estimator, short_loops
from hotloop.models.epidemic.gradient.autograd import (
    Estimator,
    Inputs,
    attach_gradient,
    with_gradient,
)
from hotloop.models.epidemic.gradient.problem import Gradient, SpreadProblem
from hotloop.models.epidemic.gradient.sampled import Flips, Loss
from hotloop.models.epidemic.gradient.simulate import Runs, infected_times
from hotloop.models.epidemic.gradient.start import SpreadStart
from hotloop.models.epidemic.substeps import (
    Progression,
    Transmission,
    numbers,
    one_run,
    spread_parts,
)
from hotloop.sim.program import Parts
from hotloop.sim.runner import Runner

Array = np.ndarray[Any, Any]


def differentiator(parts: Parts) -> "SpreadDifferentiator | None":
    """Make the differentiator of a Transmission's and a Progression's counts; for Model.gradient.

    None with gradient=False.

    Raises: SettingError for an estimator that does not exist, and for other substeps.
    """
    if parts.settings.gradient is False:
        return None
    transmission, progression = spread_parts(parts)
    return SpreadDifferentiator(parts, transmission, progression)


def spread_start(runner: Runner) -> SpreadStart:
    """Copy the present columns and controls of a runner's spread, as the start of a gradient.

    Raises: SettingError where replicates differ, and for a model that is no spread.
    """
    state = runner.state
    transmission, _ = spread_parts(Parts(state, runner.substeps, runner.settings))

    def column(path: str) -> Array:
        found: Array = one_run(state[path]).cpu().numpy().copy()
        return found

    def control(path: str | None, own: int) -> Array | None:
        if path is None:
            return None
        rows = _rows_that_differ(state[path].detach(), own)
        if len(rows) > 1:
            raise SettingError(f"{path!r} differs between replicates; expected the same in all")
        return numbers(rows[0])

    isolating = control(transmission.isolating, 0)
    return SpreadStart(
        transmission.spread,
        state[transmission.network],
        column(transmission.group),
        column(transmission.compartment),
        column(transmission.infected_time),
        column(transmission.next_time),
        state.step,
        control(transmission.contact, 1),
        column(transmission.willing) if transmission.willing else None,
        0.0 if isolating is None else isolating,
    )


def expected_loss(runner: Runner, loss: Loss, *, flips: int = 8, seed: int = 0) -> Tensor:
    """Compute the mean over replicates of any loss of a run's counts, with the gradient of E[loss].

    The gradient through the counts of a run is correct for losses that are linear in them, and
    through their mean over replicates for losses of that mean. This one is correct for every loss,
    such as the squared distance of each run: single infections are flipped, and the loss is
    evaluated again.

    runner: after `step` with parameters, or controls, that require a gradient.
    loss: of daily infected and deaths, (T,) float64 each, from the first step with a gradient on.
    flips: replays for each week and run. seed: of which infections are flipped.

    Returns: () float64. Raises: SettingError before such a step, and for a model that is no spread.
    """
    differentiator = runner.differentiator
    if not isinstance(differentiator, SpreadDifferentiator):
        raise SettingError(
            f"model {runner.model.name!r} has no gradient of a spread: expected a Model with "
            "gradient=differentiator, and gradient not False"
        )
    return differentiator.expected_loss(loss, Flips(flips, seed))


@dataclass(frozen=True, eq=False)
class _Begin:
    """The columns at a window's first step, (R, N) each."""

    step: int
    compartment: Array
    infected_time: Array
    next_time: Array


class _Controls(NamedTuple):
    """The controls from a step of the window on: (groups,) or (R, groups), and () or (R,).

    Tensors that require a gradient where they were set so.
    """

    step: int
    contact: Tensor | None
    isolating: Tensor | None

    def are(self, other: "_Controls") -> bool:
        """Whether both are equal; of tensors that require a gradient, the same tensors."""
        return _same(self.contact, other.contact) and _same(self.isolating, other.isolating)


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.requires_grad or other.requires_grad:
        return one is other
    return torch.equal(one, other)


class SpreadDifferentiator:
    """Infections and deaths of a window, with the gradient of the estimator that was chosen.

    By the rate, the mortality, and the controls of each step.
    """

    def __init__(self, parts: Parts, transmission: Transmission, progression: Progression) -> None:
        chosen = parts.settings.gradient
        named = isinstance(chosen, str) and chosen != "auto"
        self._named = estimator(str(chosen)) if named else None
        self._state = parts.state
        self._transmission, self._progression = transmission, progression
        paths = (transmission.contact, transmission.isolating)
        self.controls = frozenset(path for path in paths if path)
        self._begin: _Begin | None = None
        self._stretches: list[_Controls] = []
        self._steps = 0
        self._first: SpreadStart | None = None

    def begin(self, first_step: int) -> None:
        """Copy the present columns: the gradient is that of the steps from here."""
        transmission = self._transmission
        self._stretches, self._steps = [], 0
        self._begin = _Begin(
            first_step,
            self._rows(transmission.compartment),
            self._rows(transmission.infected_time),
            self._rows(transmission.next_time),
        )

    def counts(self, steps: int) -> Mapping[str, Tensor]:
        """Return infections and deaths of the window's first `steps` steps, with their gradient."""
        self._note_controls(steps)
        infected, deaths = self._series()
        runs = self._runs()
        pairs = [
            attach_gradient(i, d, inputs, problem, self._chosen(problem))
            for (inputs, problem), i, d in zip(
                runs, self._split(infected, runs), self._split(deaths, runs), strict=True
            )
        ]
        if len(runs) > 1:
            pairs = [(torch.stack([p[0] for p in pairs]), torch.stack([p[1] for p in pairs]))]
        return dict(zip((self._transmission.daily, self._progression.daily), pairs[0], strict=True))

    def facts(self) -> Mapping[str, Any]:
        """Return the estimator used last, and the short loops by which it was chosen."""
        if self._first is None:
            return {}
        loops = short_loops(self._first.network)._asdict()
        name = (self._named or default_estimator(self._first)).name
        return {"estimator": name, **{f"loops_{key}": value for key, value in loops.items()}}

    def expected_loss(self, loss: Loss, flips: Flips) -> Tensor:
        """Compute the mean over the runs of a loss of each run's counts, with its gradient.

        Raises: SettingError where no differentiable step was done.
        """
        if self._begin is None or not self._steps:
            raise SettingError(
                "a loss is of steps that were done: let a parameter require a gradient, and call "
                "step, before asking for it"
            )
        infected, deaths = self._series()
        means = []
        runs = self._runs()
        for (inputs, problem), i, d in zip(
            runs, self._split(infected, runs), self._split(deaths, runs), strict=True
        ):
            shape = (len(problem.seeds), problem.steps)
            infections, dead = (series.reshape(shape).cpu().numpy() for series in (i, d))
            done = Runs(infections, dead, infected_times(problem))
            mean, gradient = flips.of_loss(problem, loss, done)
            value = torch.tensor(mean, dtype=torch.float64, device=i.device)
            means.append(with_gradient((value,), inputs, partial(_scaled, gradient))[0])
        return torch.stack(means).mean()

    # --- problems for the estimators -----------------------------------------------------------

    def _runs(self) -> list[tuple[Inputs, SpreadProblem]]:
        """Make one problem for all runs that differ only in their seeds, else one each."""
        seeds, begin = self._state.seeds.reshape(-1).tolist(), self._begin
        assert begin is not None
        rate, mortality = self._transmission.rate, self._progression.mortality
        controls = self._controls_by_step()
        columns = (begin.compartment, begin.infected_time, begin.next_time)
        alike = (
            rate.dim() == 1
            and mortality.dim() == 0
            and all(control is None or len(control) == 1 for control in controls)
            and all((column == column[:1]).all() for column in columns)
        )
        found = []
        for run, seed in enumerate(seeds):
            inputs = Inputs(
                rate[run] if rate.dim() == 2 else rate,
                mortality[run] if mortality.dim() == 1 else mortality,
                *(_of_run(control, run) for control in controls),
            )
            found.append((inputs, self._problem(run, inputs, tuple(seeds) if alike else (seed,))))
            if alike:
                break
        return found

    def _problem(self, run: int, inputs: Inputs, seeds: tuple[int, ...]) -> SpreadProblem:
        transmission, begin = self._transmission, self._begin
        assert begin is not None
        willing = transmission.willing
        contact, isolating = inputs.contact, inputs.isolating
        start = SpreadStart(
            transmission.spread,
            self._state[transmission.network],
            one_run(self._state[transmission.group]).cpu().numpy(),
            begin.compartment[run],
            begin.infected_time[run],
            begin.next_time[run],
            begin.step,
            None if contact is None else numbers(contact),
            one_run(self._state[willing]).cpu().numpy() if willing else None,
            0.0 if isolating is None else numbers(isolating),
            any(t is not None and t.requires_grad for t in (contact, isolating)),
        )
        return SpreadProblem(
            self._same_start(start), numbers(inputs.rate), float(numbers(inputs.mortality)),
            self._steps, seeds, self._infected_time()[run : run + len(seeds)],
        )  # fmt: skip

    def _same_start(self, start: SpreadStart) -> SpreadStart:
        """Return the start before this one where they are equal: it has the network's structure."""
        before = self._first
        if before is not None:
            names = (
                "first_step", "by_controls", "compartment", "infected_time", "next_time", "contact",
                "isolating",
            )  # fmt: skip
            pairs = ((getattr(before, name), getattr(start, name)) for name in names)
            if all(np.array_equal(one, other) for one, other in pairs):
                return before
        self._first = start
        return start

    def _chosen(self, problem: SpreadProblem) -> Estimator:
        return self._named or default_estimator(problem.start)

    # --- the runs --------------------------------------------------------------------------------

    def _series(self) -> tuple[Tensor, Tensor]:
        """Return infections and deaths of the window, (T,) or (R, T)."""
        begin = self._begin
        assert begin is not None
        paths = self._transmission.daily, self._progression.daily
        window = slice(begin.step, begin.step + self._steps)
        infected, deaths = (self._state.slots[path].home[..., window] for path in paths)
        return infected, deaths

    @staticmethod
    def _split(counts: Tensor, runs: list[tuple[Inputs, SpreadProblem]]) -> list[Tensor]:
        return [counts] if len(runs) == 1 else list(counts)

    def _infected_time(self) -> Array:
        """Return the present infection times, (R, N): with the start they determine the runs."""
        return self._rows(self._transmission.infected_time)

    def _rows(self, path: str) -> Array:
        column: Tensor = self._state[path]
        return column.detach().cpu().reshape(-1, column.shape[-1]).numpy().copy()

    # --- controls --------------------------------------------------------------------------------

    def _note_controls(self, steps: int) -> None:
        """Note the controls of the steps done since the last call; they hold within one `step`."""
        if steps > self._steps:
            now = _Controls(
                self._steps,
                self._control(self._transmission.contact),
                self._control(self._transmission.isolating),
            )
            if not self._stretches or not self._stretches[-1].are(now):
                self._stretches.append(now)
            self._steps = steps

    def _control(self, path: str | None) -> Tensor | None:
        if path is None:
            return None
        slot = self._state.slots[path]
        if slot.given is not None:
            return slot.given
        return slot.now if slot.now.requires_grad else slot.now.clone()

    def _controls_by_step(self) -> tuple[Tensor | None, Tensor | None]:
        """Return contact (1 or R, 1 or T, groups) and isolating (1 or R, 1 or T)."""
        contact = self._by_step([stretch.contact for stretch in self._stretches], 1)
        return contact, self._by_step([stretch.isolating for stretch in self._stretches], 0)

    def _by_step(self, values: list[Tensor | None], own: int) -> Tensor | None:
        """own: dimensions of the value of one run."""
        rows = [_rows_that_differ(value, own) for value in values if value is not None]
        if len(rows) < 2:
            return rows[0].unsqueeze(1) if rows else None
        runs = max(len(row) for row in rows)
        ends = [*(stretch.step for stretch in self._stretches[1:]), self._steps]
        parts = [
            row.unsqueeze(1).expand(runs, end - stretch.step, *row.shape[1:])
            for row, stretch, end in zip(rows, self._stretches, ends, strict=True)
        ]
        return torch.cat(parts, 1)


def _rows_that_differ(value: Tensor, own: int) -> Tensor:
    """Return (1, ...) where all runs have the same value, else (R, ...)."""
    if value.dim() == own:
        return value.unsqueeze(0)
    alike = value.stride(0) == 0 or (not value.requires_grad and bool((value == value[:1]).all()))
    return value[:1] if alike else value


def _of_run(value: Tensor | None, run: int) -> Tensor | None:
    """Take one run's control from (1 or R, 1 or T, ...); without T where it does not change."""
    if value is None:
        return None
    own = value[min(run, len(value) - 1)]
    return own[0] if len(own) == 1 else own


def _scaled(gradient: Gradient, weight: Array) -> Gradient:
    scaled = (None if by is None else by * float(weight) for by in gradient)
    return Gradient(*scaled)  # type: ignore[arg-type]
