"""The faults of the reference system, reproduced for comparison; not a model to draw from.

1. Isolation multiplies the decision to infect instead of its probability: compartments become
   fractional, such an agent is neither susceptible nor infectious, and the epidemic dies out.
2. R of shape (weeks, 1) is summed over the weeks, so every day has the sum.
3. Every agent has the mean number of interactions of all.
4. Edges infect both ways (`both_ways`; another version of it follows them one way).
5. Compartment and time of infection carry no gradient: only the infections of the same day do.
6. Deaths are M times those who leave the infected compartment, of whom all recover.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hotloop.models.epidemic.spread import INFECTION, NEVER
from hotloop.models.epidemic.substeps import Progression, Transmission
from hotloop.sim.state import StateView


class QuirkyTransmission(Transmission):
    """Transmission with faults 1 to 5; compartments are float32.

    interactions: (groups,) mean interactions by group, of which the population's mean is taken.
    """

    acts_on = frozenset()
    differentiable = True

    def __init__(self, *args: Any, interactions: Tensor, both_ways: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._interactions, self._both_ways = interactions, both_ways
        self._there: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}

    def observe(self, state: StateView) -> Mapping[str, Any]:
        """Compute the pressure, in floating point."""
        weights, *_ = self._tables_on(state.device)
        compartment = state[self.compartment]
        whole = compartment == compartment.round()
        day = state.step_index - state[self.infected_time].long()
        inside = (day >= 0) & (day < weights.shape[-1]) & whole
        message = weights[compartment.long(), day.clamp(0, weights.shape[-1] - 1)] * inside
        edges = state[self.network].on(state.device)
        pressure = edges.sum_from(message)
        if self._both_ways:
            back = torch.zeros_like(message)
            pressure = pressure + back.index_add_(
                -1, edges.src, message.index_select(-1, edges.dst)
            )
        return {"pressure": pressure}

    def act(self, state: StateView, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        """Compute the probability of infection."""
        _, interactions, table = self._tables_on(state.device)
        group = state[self.group].long()
        mean = interactions[group].mean()
        under = self.rate.sum(-1, keepdim=True) * table[group] / mean * observation["pressure"]
        return {"chance": 1.0 - torch.exp(-under)}

    def transition(self, state: StateView, action: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Decide who is infected; isolation takes a part of each decision."""
        compartment, since = state[self.compartment], state[self.infected_time]
        chance = action["chance"]
        decision = (compartment == 0) & (
            state.uniform(INFECTION, self.population) < chance.detach()
        )
        part = torch.ones_like(compartment)
        if self.isolating and self.willing:
            part = part - state[self.isolating].unsqueeze(-1).float() * state[self.willing]
        through = decision + (chance - chance.detach()) * (compartment == 0)
        newly = through * part
        leaves = state.step_index + 1 + self.spread.durations[0]
        return {
            self.compartment: torch.where(decision, newly.detach(), compartment).to(
                compartment.dtype
            ),
            self.infected_time: torch.where(decision, state.step_index, since).to(since.dtype),
            self.next_time: torch.where(decision, leaves, state[self.next_time]).to(since.dtype),
            self.daily: newly.sum(-1).float(),
        }

    def _tables_on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Weights, interactions and susceptibility on a device, moved there once."""
        if device not in self._there:
            interactions = self._interactions.to(device)
            own = torch.from_numpy(self.spread.susceptibility).to(device)
            weights = torch.from_numpy(self.spread.weights).float().to(device)
            # The engine's susceptibility is divided by each group's own interactions.
            self._there[device] = (weights, interactions, own * interactions)
        return self._there[device]


class QuirkyProgression(Progression):
    """Progression with fault 6."""

    differentiable = True

    def transition(self, state: StateView, _action: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Move on the agents that are due; all who leave recover, and M times as many die."""
        compartment, next_time = state[self.compartment], state[self.next_time]
        last, step = self.spread.num_active, state.step_index
        active = (compartment == compartment.round()) & (compartment > 0) & (compartment <= last)
        due = active & (next_time <= step)
        leaves = due & (compartment == last)
        later = next_time
        for number, duration in enumerate(self.spread.durations[1:], 1):
            later = torch.where(due & (compartment == number), step + duration, later)
        return {
            self.compartment: torch.where(due, compartment + 1, compartment),
            self.next_time: torch.where(leaves, NEVER, later).to(next_time.dtype),
            self.daily: leaves.sum(-1).float() * self.mortality,
        }
