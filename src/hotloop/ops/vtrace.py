"""V-trace: off-policy targets of one fragment, time-major, compiled for the CPU."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from hotloop.ops.arguments import (
    Flags,
    Floats,
    above_0,
    from_0_to_1,
    time_major_flags,
    time_major_floats,
)


class VTrace(NamedTuple):
    """What a learner takes from V-trace. Both are plain numbers: no gradient passes through."""

    target: Floats
    """(T, B): vsₜ₋₁, what the value of the observation at the step's start is regressed to."""
    advantage: Floats
    """(T, B): what the policy's log-probability gradient is multiplied by."""


def vtrace(
    r_t: Floats,
    v_tm1: Floats,
    v_t: Floats,
    rho_tm1: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    *,
    gamma: float,
    lambda_: float = 1.0,
    clip_rho: float = 1.0,
    clip_pg_rho: float = 1.0,
    valid_t: Flags | None = None,
) -> VTrace:
    """Compute V-trace targets and policy-gradient advantages.

    δₜ = min(ρ̄, ρₜ₋₁)(rₜ + γₜ V(xₜ) − V(xₜ₋₁)),  cₜ₋₁ = λ min(1, ρₜ₋₁),  γₜ = γ(1 − terminatedₜ)
    vsₜ₋₁ = V(xₜ₋₁) + δₜ + γₜ cₜ₋₁ (vsₜ − V(xₜ))
    advantageₜ = min(ρ̄_pg, ρₜ₋₁)(rₜ + γₜ qₜ − V(xₜ₋₁)),  qₜ = λ vsₜ + (1 − λ) V(xₜ)

    Shapes: every input (T, B), time first; returns two arrays (T, B), in the type of `r_t`.
    rho_tm1: π(aₜ₋₁|xₜ₋₁) / μ(aₜ₋₁|xₜ₋₁), the target policy's probability over the behaviour
    policy's of the action that led to r_t. `v_t` is as in `gae`: the value of the observation truly
    arrived at; it is not read at a termination.
    At a truncation and at the last step, vsₜ is V(xₜ). Ratios of 1 give λ-returns, and with λ = 1
    the discounted return; γ = 0 gives V(xₜ₋₁) + min(ρ̄, ρₜ₋₁)(rₜ − V(xₜ₋₁)).
    clip_rho: ρ̄, decides which policy's value the targets converge to: the one proportional to
    min(ρ̄ μ, π). clip_pg_rho: ρ̄_pg, of the advantage alone. Both above 0; math.inf clips nothing.
    valid_t: False for what is no transition, as `Fragment.valid`; None for all valid. Such a step
    has the target V(xₜ₋₁) and the advantage 0, and the step before it takes V(xₜ) for vsₜ.
    Raises: ShapeError, naming the argument; SettingError for gamma or lambda_ outside of [0, 1] and
    for a clip that is not above 0.
    Source: Espeholt et al. 2018, equation 1, section 4.2 and remark 2.
    """
    dtype, (r_t, v_tm1, v_t, rho_tm1) = time_major_floats(
        "vtrace", r_t=r_t, v_tm1=v_tm1, v_t=v_t, rho_tm1=rho_tm1
    )
    terminated_t, truncated_t, valid_t = time_major_flags(
        "vtrace", r_t.shape, terminated_t=terminated_t, truncated_t=truncated_t, valid_t=valid_t
    )
    gamma, lambda_ = from_0_to_1("vtrace", gamma=gamma, lambda_=lambda_)
    clip_rho, clip_pg_rho = above_0("vtrace", clip_rho=clip_rho, clip_pg_rho=clip_pg_rho)
    target, advantage = np.empty_like(r_t), np.empty_like(r_t)
    _vtrace(
        r_t,
        v_tm1,
        v_t,
        rho_tm1,
        terminated_t,
        truncated_t,
        valid_t,
        gamma,
        lambda_,
        clip_rho,
        clip_pg_rho,
        target,
        advantage,
    )
    return VTrace(target.astype(dtype, copy=False), advantage.astype(dtype, copy=False))


def _vtrace(
    r_t: Floats,
    v_tm1: Floats,
    v_t: Floats,
    rho_tm1: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    valid_t: Flags,
    gamma: float,
    lambda_: float,
    clip_rho: float,
    clip_pg_rho: float,
    target: Floats,
    advantage: Floats,
) -> None:
    # vs − V at t + 1, in double precision whatever the inputs are.
    following = np.zeros(r_t.shape[1])
    for t in range(len(r_t) - 1, -1, -1):
        _vtrace_row(
            r_t[t],
            v_tm1[t],
            v_t[t],
            rho_tm1[t],
            terminated_t[t],
            truncated_t[t],
            valid_t[t],
            gamma,
            lambda_,
            clip_rho,
            clip_pg_rho,
            following,
            target[t],
            advantage[t],
        )


def _vtrace_row(
    r_t: Floats,
    v_tm1: Floats,
    v_t: Floats,
    rho_tm1: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    valid_t: Flags,
    gamma: float,
    lambda_: float,
    clip_rho: float,
    clip_pg_rho: float,
    following: Floats,
    target: Floats,
    advantage: Floats,
) -> None:
    for b in range(len(r_t)):
        # Chosen, not multiplied by 0: what is not a number behind an end stays there.
        bootstrap = 0.0 if terminated_t[b] else gamma * v_t[b]
        rest = 0.0 if terminated_t[b] | truncated_t[b] else gamma * lambda_ * following[b]
        error = r_t[b] + bootstrap - v_tm1[b]
        # Compared this way round, a ratio that is not a number is not hidden by its clip.
        rho = clip_rho if rho_tm1[b] > clip_rho else rho_tm1[b]
        pg_rho = clip_pg_rho if rho_tm1[b] > clip_pg_rho else rho_tm1[b]
        trace = 1.0 if rho_tm1[b] > 1.0 else rho_tm1[b]
        following[b] = rho * error + trace * rest if valid_t[b] else 0.0
        target[b] = v_tm1[b] + following[b]
        advantage[b] = pg_rho * (error + rest) if valid_t[b] else 0.0


# numba has no annotations: as calls after the definitions, the checker still sees the types.
if not TYPE_CHECKING:
    _vtrace_row = njit(_vtrace_row)
    _vtrace = njit(cache=True, nogil=True)(_vtrace)
