"""Give simulated counts the gradient of an estimator, as tensors that torch can differentiate."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from hotloop.models.epidemic.gradient.problem import Gradient, SpreadProblem

Array = np.ndarray[Any, Any]


class Estimator(Protocol):
    """Estimates the gradient of an expectation over runs from the runs of a problem."""

    @property
    def name(self) -> str:
        """The name by which it is chosen."""
        ...

    def vjp(self, problem: SpreadProblem, infected: Array, deaths: Array) -> Gradient:
        """Estimate the gradient of sum(infected * daily infected) + sum(deaths * daily deaths).

        infected, deaths: (T,) or (R, T), the weight of each step's count, per run if (R, T).

        Returns: the derivatives, summed over the runs.
        """
        ...


class Inputs(NamedTuple):
    """The tensors by which counts are differentiated, on any device and of any float dtype.

    rate: (weeks,) or (weeks, 1). mortality: () or (1,). contact: (groups,) or (T, groups), and
    isolating: () or (T,), where the problem's start has gradients by controls.
    """

    rate: torch.Tensor
    mortality: torch.Tensor
    contact: torch.Tensor | None = None
    isolating: torch.Tensor | None = None


def attach_gradient(
    daily_infected: torch.Tensor,
    daily_deaths: torch.Tensor,
    inputs: Inputs,
    problem: SpreadProblem,
    estimator: Estimator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same counts, with the estimator's gradient by the inputs.

    daily_infected, daily_deaths: (T,) for one run or (R, T), float, of the problem's steps.
    """

    def gradient(infected: Array, deaths: Array) -> Gradient:
        return estimator.vjp(problem, infected, deaths)

    infected, deaths = with_gradient((daily_infected, daily_deaths), inputs, gradient)
    return infected, deaths


def with_gradient(
    values: tuple[torch.Tensor, ...], inputs: Inputs, gradient: Callable[..., Gradient]
) -> tuple[torch.Tensor, ...]:
    """Return the same values, whose gradient is computed when torch needs it.

    gradient: called with the weight of each value, float64; returns the derivatives by the inputs.
    Those by controls are by step, and are summed where one control holds for all steps.
    """
    found: tuple[torch.Tensor, ...] = _WithGradient.apply(  # type: ignore[no-untyped-call]
        gradient, *inputs, *values
    )
    return found


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gradient: Callable[..., Gradient], *tensors: torch.Tensor | None
    ) -> tuple[torch.Tensor, ...]:
        count = len(Inputs._fields)
        ctx.gradient = gradient
        ctx.inputs = [None if t is None else t.detach() for t in tensors[:count]]
        return tuple(value.clone() for value in tensors[count:] if value is not None)

    @staticmethod
    def backward(ctx: Any, *weights: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        found = ctx.gradient(*(weight.double().cpu().numpy() for weight in weights))
        by_input = (
            None if given is None or by is None else _like(given, by)
            for given, by in zip(ctx.inputs, found, strict=True)
        )
        return (None, *by_input, *(None for _ in weights))


def _like(given: torch.Tensor, by: Array | float) -> torch.Tensor:
    derivative = torch.as_tensor(by)
    if derivative.numel() > given.numel():  # one control for all steps
        derivative = derivative.sum(0)
    return derivative.to(given).reshape(given.shape)
