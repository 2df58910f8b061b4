"""Estimators that differentiate the simulation itself, step by step, in torch.

Kept for comparison with message passing: each keeps the chain of infections (who was infected when
has a gradient), and they differ in the gradient of a draw. Every step is dense, and torch keeps
what its gradient needs for one segment of steps at a time (torch.utils.checkpoint).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from hotloop.errors import expect_positive
from hotloop.models.epidemic.gradient.problem import Gradient, SpreadProblem
from hotloop.models.epidemic.gradient.tables import leaving
from hotloop.models.epidemic.spread import INFECTION
from hotloop.sim.draws import uniform

Array = np.ndarray[Any, Any]
Tensor = torch.Tensor
# (chance given that the agent is susceptible, susceptible so far, draws) -> infected now
Draw = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class StraightThrough:
    """The draw forwards, its probability backwards: x = [u < p] S with dx = d(p S).

    chain: keep the gradient through who is infected when; False cuts it after each step, as the
    reference does.

    Bias: in one run an agent is either wholly susceptible or not at all, and a transmission that
    happened is weighted with the chance left after it.
    """

    chain: bool = True
    name: ClassVar[str] = "straight_through"

    def vjp(self, problem: SpreadProblem, infected: Array, deaths: Array) -> Gradient:
        """See `Estimator`."""

        def draw(chance: Tensor, susceptible: Tensor, drawn: Tensor) -> Tensor:
            soft = chance * susceptible
            return soft + ((drawn < chance).to(soft.dtype) * susceptible - soft).detach()

        return _through_steps(problem, infected, deaths, draw, self.chain)


@dataclass(frozen=True)
class Relaxed:
    """A binary concrete draw, sigmoid((logit p + logit u) / temperature), instead of a hard one.

    The whole epidemic is relaxed: agents are infected in part. As the temperature goes to 0 it
    becomes the simulation, and the gradient's variance grows without bound.
    Source: Maddison, Mnih and Teh 2017; Jang, Gu and Poole 2017.
    """

    temperature: float = 0.5
    name: ClassVar[str] = "relaxed"

    def __post_init__(self) -> None:
        expect_positive("temperature", self.temperature)

    @classmethod
    def annealed(cls, progress: float, start: float = 1.0, end: float = 0.1) -> "Relaxed":
        """Lower the temperature geometrically with the progress of an optimisation, 0 to 1."""
        return cls(start * (end / start) ** min(max(progress, 0.0), 1.0))

    def vjp(self, problem: SpreadProblem, infected: Array, deaths: Array) -> Gradient:
        """See `Estimator`."""

        def draw(chance: Tensor, susceptible: Tensor, drawn: Tensor) -> Tensor:
            # No pressure, no infection, and no gradient from the logarithm of 0.
            under = chance > 0
            safe = torch.where(under, chance, 0.5).clamp(max=1 - 1e-12)
            drawn = drawn.clamp(min=2.0**-33)
            # u and 1 - u are alike; so that small draws infect, as in the simulation, 1 - u.
            logit = torch.log(safe) - torch.log1p(-safe) + torch.log1p(-drawn) - torch.log(drawn)
            return torch.where(under, torch.sigmoid(logit / self.temperature), 0.0) * susceptible

        return _through_steps(problem, infected, deaths, draw, True)


@torch.enable_grad()  # called in a backward pass of torch, which records nothing
def _through_steps(
    problem: SpreadProblem, infected: Array, deaths: Array, draw: Draw, chain: bool
) -> Gradient:
    infected, deaths = problem.cotangents(infected, deaths)
    factor = torch.from_numpy(problem.factor).requires_grad_()
    isolating = torch.from_numpy(problem.isolating).requires_grad_()
    by_mortality, by_factor = 0.0, torch.zeros_like(factor)
    by_isolating = torch.zeros_like(isolating)
    for run, seed in enumerate(problem.seeds):
        daily = _daily(problem, factor, isolating, seed, draw, chain)
        weight = infected[run].copy()
        active_steps = problem.start.structure.active_steps
        if active_steps < problem.steps:
            weight[:-active_steps] += problem.mortality * deaths[run][active_steps:]
        by_run = torch.autograd.grad(daily @ torch.from_numpy(weight), (factor, isolating))
        by_factor, by_isolating = by_factor + by_run[0], by_isolating + by_run[1]
        by_mortality += float(deaths[run] @ leaving(problem, daily.detach().numpy()))
    return problem.gradient(by_factor.numpy(), by_isolating.numpy(), by_mortality)


def _daily(
    problem: SpreadProblem, factor: Tensor, isolating: Tensor, seed: int, draw: Draw, chain: bool
) -> Tensor:
    """Simulate one run; returns (T,) infected at each step, with its gradient."""
    # One function: the step and the segment that torch recomputes close over the same tensors,
    # which do not change.
    start, structure = problem.start, problem.start.structure
    size, active_steps = start.network.num_agents, structure.active_steps
    group = torch.from_numpy(start.group.astype(np.int64))
    willing = torch.from_numpy(start.willingness)
    sends = torch.from_numpy(structure.sends[1:])
    seeds = torch.from_numpy(structure.initial_agent.astype(np.int64))
    initial_sends = torch.from_numpy(structure.initial_sends)[
        torch.from_numpy(structure.initial_row.astype(np.int64))
    ]
    key = torch.tensor(seed)

    def step(
        at: int, factor: Tensor, isolating: Tensor, susceptible: Tensor, recent: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        messages = sends @ recent  # recent: (L, N), yesterday's infections first
        if at < initial_sends.shape[1]:
            messages = messages.index_add(0, seeds, initial_sends[:, at])
        hazard = factor[at][group] * start.network.sum_from(messages)
        chance = -torch.expm1(-hazard) * (1 - isolating[at] * willing)
        now = draw(chance, susceptible, uniform(key, start.first_step + at, INFECTION, size))
        left = susceptible - now
        following = torch.cat([now[None], recent[:-1]])
        if not chain:
            left, following = left.detach(), following.detach()
        return now.sum(), left, following

    def segment(
        begin: int, end: int, factor: Tensor, isolating: Tensor, susceptible: Tensor, recent: Tensor
    ) -> Any:
        daily = []
        for at in range(begin, end):
            count, susceptible, recent = step(at, factor, isolating, susceptible, recent)
            daily.append(count)
        return torch.stack(daily), susceptible, recent

    susceptible = torch.from_numpy(structure.susceptible.astype(np.float64))
    recent = torch.zeros(active_steps, size, dtype=torch.float64)
    every, parts = max(1, math.isqrt(problem.steps)), []
    for begin in range(0, problem.steps, every):
        part, susceptible, recent = checkpoint(
            segment, begin, min(begin + every, problem.steps), factor, isolating, susceptible,
            recent, use_reentrant=False,
        )  # fmt: skip
        parts.append(part)
    return torch.cat(parts)
