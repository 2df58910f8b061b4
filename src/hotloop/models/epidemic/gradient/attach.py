"""Give simulated counts the gradient of an estimator, as tensors that torch can differentiate."""

from typing import Any, Protocol

import numpy as np
import torch

from hotloop.models.epidemic.gradient.problem import SpreadProblem

Array = np.ndarray[Any, Any]


class Estimator(Protocol):
    """How the gradient of an expectation over runs is estimated from the runs of a problem."""

    @property
    def name(self) -> str:
        """By which it is chosen."""
        ...

    def vjp(self, problem: SpreadProblem, infected: Array, deaths: Array) -> tuple[Array, float]:
        """The gradient of sum(infected * daily infected) + sum(deaths * daily deaths).

        infected, deaths: (T,) or (R, T), the weight of each step's count, per run if (R, T).

        Returns: (weeks,) by the rate of each week, and by the mortality; summed over the runs.
        """
        ...


def attach(
    daily_infected: torch.Tensor,
    daily_deaths: torch.Tensor,
    rate: torch.Tensor,
    mortality: torch.Tensor,
    problem: SpreadProblem,
    estimator: Estimator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same counts, whose gradient by rate and mortality is the estimator's.

    daily_infected, daily_deaths: (T,) for one run or (R, T), float, of the problem's steps.
    rate: (weeks,) or (weeks, 1); mortality: () or (1,); on any device and of any float dtype.
    """
    counts: tuple[torch.Tensor, torch.Tensor] = _Attached.apply(  # type: ignore[no-untyped-call]
        daily_infected, daily_deaths, rate, mortality, problem, estimator
    )
    return counts


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        daily_infected: torch.Tensor,
        daily_deaths: torch.Tensor,
        rate: torch.Tensor,
        mortality: torch.Tensor,
        problem: SpreadProblem,
        estimator: Estimator,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.problem, ctx.estimator = problem, estimator
        ctx.rate, ctx.mortality = rate.detach(), mortality.detach()
        return daily_infected.clone(), daily_deaths.clone()

    @staticmethod
    def backward(
        ctx: Any, infected: torch.Tensor, deaths: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        by_rate, by_mortality = ctx.estimator.vjp(
            ctx.problem, infected.double().cpu().numpy(), deaths.double().cpu().numpy()
        )
        return (
            None,
            None,
            torch.as_tensor(by_rate).to(ctx.rate).reshape(ctx.rate.shape),
            torch.as_tensor(by_mortality).to(ctx.mortality).reshape(ctx.mortality.shape),
            None,
            None,
        )
