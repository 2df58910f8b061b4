"""Advantages and returns of one fragment, time-major, compiled for the CPU.

Kept apart from the learners because the conventions at an episode's end are the same for all of
them. The plain twin that the kernel is tested against lives in the tests.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hotloop.errors import ShapeError

Floats = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]


def gae(
    r_t: Floats,
    v_tm1: Floats,
    v_t: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    *,
    gamma: float,
    lambda_: float,
) -> tuple[Floats, Floats]:
    """Compute generalised advantage estimates, and the returns that they imply.

    δₜ = rₜ + γ(1 − terminatedₜ) V(xₜ) − V(xₜ₋₁),  Aₜ = δₜ + γλ(1 − doneₜ) Aₜ₊₁,  Rₜ = Aₜ + V(xₜ₋₁)

    Shapes: every input (T, B), time first; returns (advantage, return), each (T, B), in the type
    of `r_t`. Step t starts at x_{t-1}, pays r_t and arrives at x_t, so `v_t` is `v_tm1` one step
    later within an episode. At the end of an episode it is the value of the observation truly
    arrived at, not of the next episode's first one.
    A termination gives the discount 0. A truncation bootstraps and cuts the trace. done is the
    union of both. λ = 0 is the one-step temporal-difference error; λ = 1 the discounted return
    minus the value; γ = 0 the reward minus the value.
    Raises: ShapeError, naming the argument.
    Source: Schulman et al. 2016, equations 11 and 16.
    """
    shape = np.shape(r_t)
    if len(shape) != 2:
        raise ShapeError(f"gae: r_t: expected shape (T, B), got {shape}")
    others = (
        ("v_tm1", v_tm1),
        ("v_t", v_t),
        ("terminated_t", terminated_t),
        ("truncated_t", truncated_t),
    )
    for name, array in others:
        if np.shape(array) != shape:
            raise ShapeError(
                f"gae: {name}: expected the shape of r_t, {shape}, got {np.shape(array)}"
            )
    advantage, return_ = np.empty_like(r_t), np.empty_like(r_t)
    _gae(r_t, v_tm1, v_t, terminated_t, truncated_t, gamma, lambda_, advantage, return_)
    return advantage, return_


def _gae(
    r_t: Floats,
    v_tm1: Floats,
    v_t: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    gamma: float,
    lambda_: float,
    advantage: Floats,
    return_: Floats,
) -> None:
    length, width = r_t.shape
    for b in range(width):
        following = 0.0  # A at t + 1, in double precision whatever the inputs are
        for t in range(length - 1, -1, -1):
            discount = 0.0 if terminated_t[t, b] else gamma
            trace = 0.0 if terminated_t[t, b] or truncated_t[t, b] else gamma * lambda_
            delta = r_t[t, b] + discount * v_t[t, b] - v_tm1[t, b]
            following = delta + trace * following
            advantage[t, b] = following
            return_[t, b] = following + v_tm1[t, b]


# numba has no annotations: as a call after the definition, the checker still sees the types.
if not TYPE_CHECKING:
    _gae = njit(cache=True)(_gae)
