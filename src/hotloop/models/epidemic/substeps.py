"""A spread as substeps on tensors: what each step means, on any device.

`SpreadProgram` does the same as `Transmission` and `Progression` together. On a GPU the substeps
run, captured as a graph: all in them has a fixed shape and stays on the device.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotloop.errors import SettingError
from hotloop.models.epidemic.program import Mode, SpreadColumns, SpreadProgram
from hotloop.models.epidemic.spread import INFECTION, NEVER, OUTCOME, Spread, SpreadInputs
from hotloop.sim.network import AnyNetwork, Network, RandomContacts
from hotloop.sim.program import Parts
from hotloop.sim.state import StateView
from hotloop.sim.substep import Substep


class Transmission(Substep):
    """Susceptible agents become active under the pressure of their active neighbours.

    rate: (entries, 1) or (entries,), or (R, entries) for one of each replicate.
    group, compartment, infected_time, next_time: names of the columns.
    daily: name of the series of counts.
    contact, isolating: names of environment values that control it, if the model has them.
    willing: name of the column of how much each agent isolates, if the model has it.
    """

    acts_on = frozenset({"precision"})
    differentiable = False  # `differentiator` gives the counts their gradient

    def __init__(
        self,
        spread: Spread,
        rate: Tensor,
        *,
        name: str = "transmission",
        rate_name: str = "rate",
        population: str = "citizens",
        network: str = "contact",
        group: str = "group",
        compartment: str = "compartment",
        infected_time: str = "infected_time",
        next_time: str = "next_time",
        daily: str = "daily_infected",
        contact: str | None = None,
        isolating: str | None = None,
        willing: str | None = None,
    ) -> None:
        self.name = name
        # As (entries, 1), which is a series whose length may change.
        super().__init__(**{rate_name: rate.unsqueeze(-1) if rate.dim() == 1 else rate})
        self.spread, self.population = spread, population
        self.rate_name = rate_name
        column = f"agents/{population}/{{}}".format
        self.group, self.compartment = column(group), column(compartment)
        self.infected_time, self.next_time = column(infected_time), column(next_time)
        self.willing = column(willing) if willing else None
        self.network, self.daily = f"networks/{network}", f"environment/{daily}"
        self.contact = f"environment/{contact}" if contact else None
        self.isolating = f"environment/{isolating}" if isolating else None
        self.populations = (population,)
        controls = (self.contact, self.isolating, self.willing)
        self.reads = (
            self.group,
            self.compartment,
            self.infected_time,
            self.next_time,
            self.network,
            *(path for path in controls if path),
        )
        self.writes = (self.compartment, self.infected_time, self.next_time, self.daily)
        self._tables: dict[tuple[torch.device, type], tuple[Tensor, Tensor]] = {}

    @property
    def rate(self) -> Tensor:
        """The rate as (entries,) or (R, entries)."""
        rate = self.parameter(self.rate_name)
        return rate.squeeze(-1) if rate.dim() == 2 and rate.shape[-1] == 1 else rate

    def observe(self, state: StateView) -> Mapping[str, Any]:
        """Sum the pressure on every agent, fixed point (N,) or (R, N), int32 or int64."""
        network: AnyNetwork = state[self.network]
        dtype = self.spread.pressure_dtype(network.max_in_degree)
        weights, _ = self._on(state.device, dtype)
        compartment, since = state[self.compartment].long(), state[self.infected_time].long()
        day = state.step_index - since
        days = weights.shape[-1]
        sends = (day >= 0) & (day < days)
        message = weights[compartment, day.clamp(0, days - 1)] * sends
        return {
            "pressure": _pressure(network, message, state),
            "scale": 2.0**-self.spread.fraction_bits,
        }

    def act(self, state: StateView, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        """Compute the probability of becoming active, float64 (float32 if mixed)."""
        _, susceptibility = self._on(state.device, np.int32)
        rate = self.rate.detach().to(torch.float64)
        entry = torch.div(state.step_index, self.spread.steps_per_rate, rounding_mode="floor")
        today = rate.index_select(-1, entry.clamp(max=rate.shape[-1] - 1).view(1))
        contact = state[self.contact].to(torch.float64) if self.contact else 1.0
        factor = today * (contact * susceptibility)
        group = state[self.group].long()
        if factor.dim() == 1:
            per_agent = factor[group]
        else:
            per_agent = factor.gather(-1, group.expand(len(factor), group.shape[-1]))
        # Before it is scaled: times a number, torch makes of an integer a float32.
        felt = observation["pressure"].to(torch.float64) * observation["scale"]
        if state.settings.precision == "mixed":
            felt, per_agent = felt.float(), per_agent.float()
        under = per_agent * felt
        chance = torch.minimum(under, 1.0 - torch.exp(-under))
        if self.isolating and self.willing:
            asked = state[self.isolating].to(torch.float64).unsqueeze(-1)
            chance = chance * (1.0 - asked * state[self.willing].to(torch.float64))
        return {"chance": chance}

    def transition(self, state: StateView, action: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Make active the agents whose draw is below their probability."""
        compartment, since = state[self.compartment], state[self.infected_time]
        drawn = state.uniform(INFECTION, self.population)
        newly = (compartment == 0) & (drawn < action["chance"])
        leaves = state.step_index + 1 + self.spread.durations[0]
        next_time = state[self.next_time]
        return {
            self.compartment: torch.where(newly, 1, compartment).to(compartment.dtype),
            self.infected_time: torch.where(newly, state.step_index, since).to(since.dtype),
            self.next_time: torch.where(newly, leaves, next_time).to(next_time.dtype),
            self.daily: newly.sum(-1).to(torch.float32),
        }

    def _on(self, device: torch.device, dtype: type) -> tuple[Tensor, Tensor]:
        if (device, dtype) not in self._tables:
            self._tables[device, dtype] = (
                torch.from_numpy(self.spread.fixed_weights.astype(dtype)).to(device),
                torch.from_numpy(self.spread.susceptibility).to(device),
            )
        return self._tables[device, dtype]


class Progression(Substep):
    """Agents that are due move on to the next compartment; from the last one they recover or die.

    mortality: (1,) or (), or (R,) for one of each replicate.
    """

    differentiable = False

    def __init__(
        self,
        spread: Spread,
        mortality: Tensor,
        *,
        name: str = "progression",
        mortality_name: str = "mortality",
        population: str = "citizens",
        compartment: str = "compartment",
        next_time: str = "next_time",
        daily: str = "daily_deaths",
    ) -> None:
        self.name = name
        super().__init__(**{mortality_name: mortality})
        self.spread, self.population = spread, population
        self.mortality_name = mortality_name
        self.compartment = f"agents/{population}/{compartment}"
        self.next_time = f"agents/{population}/{next_time}"
        self.daily = f"environment/{daily}"
        self.populations = (population,)
        self.reads = (self.compartment, self.next_time)
        self.writes = (self.compartment, self.next_time, self.daily)

    @property
    def mortality(self) -> Tensor:
        """The mortality as () or (R,)."""
        mortality = self.parameter(self.mortality_name)
        return mortality.squeeze() if mortality.numel() == 1 else mortality

    def transition(self, state: StateView, _action: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Move on the agents that are due."""
        compartment, next_time = state[self.compartment], state[self.next_time]
        last, step = self.spread.num_active, state.step_index
        due = (compartment > 0) & (compartment <= last) & (next_time <= step)
        mortality = self.mortality.detach().to(torch.float64).unsqueeze(-1)
        leaves = due & (compartment == last)
        dies = leaves & (state.uniform(OUTCOME, self.population) < mortality)
        after = torch.where(due, compartment + 1 + dies.to(compartment.dtype), compartment)
        later = next_time
        for number, duration in enumerate(self.spread.durations[1:], 1):
            later = torch.where(due & (compartment == number), step + duration, later)
        later = torch.where(leaves, NEVER, later)
        return {
            self.compartment: after.to(compartment.dtype),
            self.next_time: later.to(next_time.dtype),
            self.daily: dies.sum(-1).to(torch.float32),
        }


def fused(parts: Parts) -> SpreadProgram | None:
    """Make the program of a Transmission followed by a Progression; for Model.program.

    None on a GPU, where the two substeps are captured instead.

    Raises: SettingError if the substeps are not these two.
    """
    if parts.settings.device.type != "cpu":
        return None
    transmission, progression = spread_parts(parts)
    state, settings = parts.state, parts.settings
    mode: dict[bool | str, Mode] = {"auto": "auto", True: "push", False: "pull"}
    columns = SpreadColumns(
        one_run(state[transmission.group]),
        *(state[p] for p in (transmission.compartment, transmission.infected_time)),
        *(state[p] for p in (transmission.next_time, transmission.daily, progression.daily)),
    )
    willing = one_run(state[transmission.willing]).numpy() if transmission.willing else None

    def inputs() -> SpreadInputs:
        extra = {}
        if transmission.contact:
            extra["contact"] = numbers(state[transmission.contact])
        if transmission.isolating:
            extra["isolating"] = numbers(state[transmission.isolating])
        return SpreadInputs(numbers(transmission.rate), numbers(progression.mortality), **extra)

    return SpreadProgram(
        transmission.spread,
        state[transmission.network],
        columns,
        state.seeds.reshape(-1).tolist(),
        inputs,
        willing=willing,
        mode=mode[settings.active_set],
        threads=settings.threads,
        single_precision=settings.precision == "mixed",
    )


def spread_parts(parts: Parts) -> tuple[Transmission, Progression]:
    """Return the two substeps of a spread.

    Raises: SettingError if the model has others.
    """
    substeps = tuple(parts.substeps)
    if [type(substep) for substep in substeps] != [Transmission, Progression]:
        raise SettingError(
            "a spread as a whole is a Transmission followed by a Progression; this model has "
            f"{', '.join(type(s).__name__ for s in substeps)}. Leave out program and gradient of "
            "the Model, and its substeps run as they are"
        )
    return substeps  # type: ignore[return-value]


def numbers(value: Tensor) -> np.ndarray[Any, Any]:
    """Copy a tensor to a NumPy array of float64, without its gradient."""
    found: np.ndarray[Any, Any] = value.detach().to(torch.float64).cpu().numpy().copy()
    return found


def one_run(column: Tensor) -> Tensor:
    """Return a column (N,) that must be the same in every replicate.

    Raises: SettingError if it is not.
    """
    if column.dim() == 1:
        return column
    if column.stride(0) != 0 and not bool((column == column[:1]).all()):
        raise SettingError(
            "one spread is asked of all replicates, and a column differs between them; give all "
            "of them the same values, or run with fused=False and gradient=False"
        )
    return column[0]


def _pressure(network: AnyNetwork, message: Tensor, state: StateView) -> Tensor:
    if isinstance(network, RandomContacts):
        return network.sum_from(message, state.step_index)
    return network.sum_from(message, 0 if isinstance(network, Network) else state.step)
