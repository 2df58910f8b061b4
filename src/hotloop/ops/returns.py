"""Advantages and λ-returns of one fragment, time-major, compiled for the CPU.

Kept apart from the learners because the conventions at an episode's end are the same for all of
them. The plain twins that the kernels are tested against live in the tests. A kernel goes through
the rows backwards and calls a function for each row: such a loop over one-dimensional arrays is
what the compiler turns into vector instructions: with 1,024 envs in float32, gae takes 0.11 ms so
and 0.43 ms with both loops in one function (AMD EPYC, one thread).
"""

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from hotloop.ops.arguments import Flags, Floats, from_0_to_1, time_major_flags, time_major_floats


def gae(
    r_t: Floats,
    v_tm1: Floats,
    v_t: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    *,
    gamma: float,
    lambda_: float,
    valid_t: Flags | None = None,
) -> tuple[Floats, Floats]:
    """Compute generalised advantage estimates, and the returns that they imply.

    δₜ = rₜ + γ(1 − terminatedₜ) V(xₜ) − V(xₜ₋₁),  Aₜ = δₜ + γλ(1 − doneₜ) Aₜ₊₁,  Rₜ = Aₜ + V(xₜ₋₁)

    Shapes: every input (T, B), time first; returns (advantage, return), each (T, B), in the type
    of `r_t`. Step t starts at x_{t-1}, pays r_t and arrives at x_t, so `v_t` is `v_tm1` one step
    later within an episode. At the end of an episode it is the value of the observation truly
    arrived at, not of the next episode's first one.
    A termination gives the discount 0, and `v_t` is not read there. A truncation bootstraps and
    cuts the trace. done is the union of both. λ = 0 is the one-step temporal-difference error;
    λ = 1 the discounted return minus the value; γ = 0 the reward minus the value.
    valid_t: False for what is no transition, as `Fragment.valid`; None for all valid. Such a step
    has the advantage 0 and the return V(xₜ₋₁), and cuts the trace of the step before it, which
    bootstraps from its own `v_t`.
    Raises: ShapeError, naming the argument; SettingError for gamma or lambda_ outside of [0, 1].
    Source: Schulman et al. 2016, equations 11 and 16.
    """
    dtype, (r_t, v_tm1, v_t) = time_major_floats("gae", r_t=r_t, v_tm1=v_tm1, v_t=v_t)
    terminated_t, truncated_t, valid_t = time_major_flags(
        "gae", r_t.shape, terminated_t=terminated_t, truncated_t=truncated_t, valid_t=valid_t
    )
    gamma, lambda_ = from_0_to_1("gae", gamma=gamma, lambda_=lambda_)
    advantage, return_ = np.empty_like(r_t), np.empty_like(r_t)
    _gae(r_t, v_tm1, v_t, terminated_t, truncated_t, valid_t, gamma, lambda_, advantage, return_)
    return advantage.astype(dtype, copy=False), return_.astype(dtype, copy=False)


def lambda_returns(
    r_t: Floats,
    v_t: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    *,
    gamma: float,
    lambda_: float,
    valid_t: Flags | None = None,
) -> Floats:
    """Compute λ-returns: the mean of all n-step returns, weighted by (1 − λ) λⁿ⁻¹.

    Gₜ = rₜ + γₜ[(1 − λ) V(xₜ) + λ Gₜ₊₁],  γₜ = γ(1 − terminatedₜ)

    Shapes: every input (T, B), time first; returns (T, B), in the type of `r_t`. `v_t` is as in
    `gae`: the value of the observation truly arrived at; it is not read at a termination.
    At a truncation and at the last step, Gₜ₊₁ is V(xₜ). λ = 0 is the one-step return; λ = 1 the
    discounted return with its bootstrap; γ = 0 the reward. Within an episode this is the return
    of `gae`, its advantage plus the value.
    valid_t: False for what is no transition, as `Fragment.valid`; None for all valid. Such a step
    has the return 0, and the step before it takes V(xₜ) for Gₜ₊₁.
    Raises: ShapeError, naming the argument; SettingError for gamma or lambda_ outside of [0, 1].
    Source: Sutton and Barto 2018, equation 12.18, with values for states.
    """
    dtype, (r_t, v_t) = time_major_floats("lambda_returns", r_t=r_t, v_t=v_t)
    terminated_t, truncated_t, valid_t = time_major_flags(
        "lambda_returns",
        r_t.shape,
        terminated_t=terminated_t,
        truncated_t=truncated_t,
        valid_t=valid_t,
    )
    gamma, lambda_ = from_0_to_1("lambda_returns", gamma=gamma, lambda_=lambda_)
    return_ = np.empty_like(r_t)
    _lambda_returns(r_t, v_t, terminated_t, truncated_t, valid_t, gamma, lambda_, return_)
    return return_.astype(dtype, copy=False)


def _gae(
    r_t: Floats,
    v_tm1: Floats,
    v_t: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    valid_t: Flags,
    gamma: float,
    lambda_: float,
    advantage: Floats,
    return_: Floats,
) -> None:
    # A at t + 1, in double precision whatever the inputs are.
    following = np.zeros(r_t.shape[1])
    for t in range(len(r_t) - 1, -1, -1):
        _gae_row(
            r_t[t],
            v_tm1[t],
            v_t[t],
            terminated_t[t],
            truncated_t[t],
            valid_t[t],
            gamma,
            lambda_,
            following,
            advantage[t],
            return_[t],
        )


def _gae_row(
    r_t: Floats,
    v_tm1: Floats,
    v_t: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    valid_t: Flags,
    gamma: float,
    lambda_: float,
    following: Floats,
    advantage: Floats,
    return_: Floats,
) -> None:
    for b in range(len(r_t)):
        # Chosen, not multiplied by 0: what is not a number behind an end stays there.
        bootstrap = 0.0 if terminated_t[b] else gamma * v_t[b]
        rest = 0.0 if terminated_t[b] | truncated_t[b] else gamma * lambda_ * following[b]
        estimate = r_t[b] + bootstrap - v_tm1[b] + rest
        following[b] = estimate if valid_t[b] else 0.0
        advantage[b] = following[b]
        return_[b] = following[b] + v_tm1[b]


def _lambda_returns(
    r_t: Floats,
    v_t: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    valid_t: Flags,
    gamma: float,
    lambda_: float,
    return_: Floats,
) -> None:
    # G at t + 1, and whether there is one: not at the end, nor where t + 1 is not valid.
    following, follows = np.zeros(r_t.shape[1]), np.zeros(r_t.shape[1], np.bool_)
    for t in range(len(r_t) - 1, -1, -1):
        _lambda_returns_row(
            r_t[t],
            v_t[t],
            terminated_t[t],
            truncated_t[t],
            valid_t[t],
            gamma,
            lambda_,
            following,
            follows,
            return_[t],
        )


def _lambda_returns_row(
    r_t: Floats,
    v_t: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    valid_t: Flags,
    gamma: float,
    lambda_: float,
    following: Floats,
    follows: Flags,
    return_: Floats,
) -> None:
    for b in range(len(r_t)):
        mixed = (1.0 - lambda_) * v_t[b] + lambda_ * following[b]
        arrived = mixed if follows[b] & (not truncated_t[b]) else v_t[b]
        estimate = r_t[b] + (0.0 if terminated_t[b] else gamma * arrived)
        following[b] = estimate if valid_t[b] else 0.0
        follows[b] = valid_t[b]
        return_[b] = following[b]


# numba has no annotations: as calls after the definitions, the checker still sees the types.
if not TYPE_CHECKING:
    _gae_row = njit(_gae_row)
    _gae = njit(cache=True, nogil=True)(_gae)
    _lambda_returns_row = njit(_lambda_returns_row)
    _lambda_returns = njit(cache=True, nogil=True)(_lambda_returns)
