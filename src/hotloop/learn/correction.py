"""What IMPALA and APPO have in common: batches are corrected for their lag by V-trace.

The lag is bounded, too: older fragments are dropped and counted. How fragments come from the
actors stands in `actors.py`, V-trace itself in `hotloop.ops`.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hotloop.data.layout import Tree
from hotloop.learn.learner import next_values
from hotloop.learn.steps import Steps
from hotloop.ops import VTrace, vtrace

Array = NDArray[Any]


class Correction(Protocol):
    """The settings of V-trace."""

    @property
    def gamma(self) -> float:
        """Discount a step."""
        ...

    @property
    def trace_lambda(self) -> float:
        """λ: decay of the trace a step."""
        ...

    @property
    def clip_rho(self) -> float:
        """ρ̄: ratios above it count as this much in the targets."""
        ...


def corrected(
    settings: Correction,
    steps: Steps,
    value: Array,
    rho: Array,
    value_of: Callable[[Tree], Array],
    *,
    clip_pg_rho: float = 1.0,
) -> VTrace:
    """V-trace of steps, with values (T + 1, B) and ratios (T, B) of the policy of now.

    value_of: as in `next_values`.
    """
    return vtrace(
        steps.reward,
        value[:-1],
        next_values(steps, value[:-1], value[-1], value_of),
        rho,
        steps.terminated,
        steps.truncated,
        gamma=settings.gamma,
        lambda_=settings.trace_lambda,
        clip_rho=settings.clip_rho,
        clip_pg_rho=clip_pg_rho,
        valid_t=None if steps.valid.all() else steps.valid,
    )


def compile_kernel() -> None:
    """Compile V-trace now, and not in the first iteration."""
    vtrace(*np.zeros((4, 1, 1), np.float32), *np.zeros((2, 1, 1), np.bool_), gamma=1)
