"""n-step windows and returns of one fragment, time-major, compiled for the CPU.

Apart from `returns.py` because replay keeps the windows: the value that a window bootstraps from
is not known before the window is replayed.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hotloop.errors import expect_whole
from hotloop.ops.arguments import Flags, Floats, from_0_to_1, time_major_flags, time_major_floats

Ints = NDArray[np.int64]


class NStepWindows(NamedTuple):
    """The n-step window of every step. Its target is reward + discount · V(x at its end)."""

    reward: Floats
    """(T, B): the discounted sum of the window's rewards, Σₖ γᵏ rₜ₊ₖ."""
    discount: Floats
    """(T, B): the factor of the bootstrap, γᵏ for a window of k steps; 0 at a termination."""
    steps: Ints
    """(T, B): k, steps of the window, from 1 to n; the last one is step t + k − 1."""


def n_step_windows(
    r_t: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    *,
    gamma: float,
    n: int,
    valid_t: Flags | None = None,
) -> NStepWindows:
    """Compute the window of n steps that begins with each step, for replay.

    rewardₜ = Σ_{j<k} γʲ rₜ₊ⱼ,  discountₜ = γᵏ, or 0 if step t + k − 1 terminates,  k = stepsₜ ≤ n

    Shapes: every input (T, B), time first; returns three arrays (T, B), `reward` and `discount` in
    the type of `r_t`. A window ends with its n-th step, with its episode, at the end of the
    fragment, or before a step that is not valid, whichever is first.
    n = 1 is the reward itself; n of T or more the discounted return up to the end.
    valid_t: False for what is no transition, as `Fragment.valid`; None for all valid. Such a step
    has reward 0, discount 0 and 0 steps, and is in no window.
    Raises: ShapeError, naming the argument; SettingError for gamma outside of [0, 1] or n below 1.
    Source: Sutton and Barto 2018, equation 7.1; as in replay: Horgan et al. 2018.
    """
    dtype, _, windows = _double_windows(
        "n_step_windows", {"r_t": r_t}, terminated_t, truncated_t, gamma, n, valid_t
    )
    reward, discount, steps = windows
    return NStepWindows(reward.astype(dtype, copy=False), discount.astype(dtype, copy=False), steps)


def n_step_returns(
    r_t: Floats,
    v_t: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    *,
    gamma: float,
    n: int,
    valid_t: Flags | None = None,
) -> Floats:
    """Compute n-step returns: n rewards, then the value of the observation arrived at.

    Gₜ = Σ_{j<k} γʲ rₜ₊ⱼ + γᵏ(1 − terminatedₜ₊ₖ₋₁) V(xₜ₊ₖ₋₁)

    Shapes: every input (T, B), time first; returns (T, B), in the type of `r_t`. `v_t` is as in
    `gae`: the value of the observation truly arrived at; it is not read at a termination.
    The windows of k ≤ n steps are those of `n_step_windows`. A shorter one bootstraps with its own
    length. n = 1 is the one-step return; n of T or more that of `lambda_returns` with λ = 1.
    valid_t: as in `n_step_windows`; the return of a step that is not valid is 0.
    Raises: ShapeError, naming the argument; SettingError for gamma outside of [0, 1] or n below 1.
    Source: Sutton and Barto 2018, equation 7.1.
    """
    dtype, (_, v_t), windows = _double_windows(
        "n_step_returns", {"r_t": r_t, "v_t": v_t}, terminated_t, truncated_t, gamma, n, valid_t
    )
    _add_bootstrap(windows.discount, windows.steps, v_t, windows.reward)
    return windows.reward.astype(dtype, copy=False)


def _double_windows(
    function: str,
    floats: dict[str, Floats],
    terminated_t: Flags,
    truncated_t: Flags,
    gamma: float,
    n: int,
    valid_t: Flags | None,
) -> tuple[np.dtype[Any], list[Floats], NStepWindows]:
    """Return the type of r_t, the checked floats, and the windows in double precision."""
    dtype, taken = time_major_floats(function, **floats)
    shape = taken[0].shape
    terminated_t, truncated_t, valid_t = time_major_flags(
        function, shape, terminated_t=terminated_t, truncated_t=truncated_t, valid_t=valid_t
    )
    [gamma] = from_0_to_1(function, gamma=gamma)
    expect_whole(f"{function}: n", n, 1)
    windows = NStepWindows(np.empty(shape), np.empty(shape), np.empty(shape, np.int64))
    _n_step_windows(
        taken[0],
        terminated_t,
        truncated_t,
        valid_t,
        gamma,
        min(int(n), max(1, shape[0])),  # no window is longer than the fragment
        windows.reward,
        windows.discount,
        windows.steps,
    )
    return dtype, taken, windows


def _n_step_windows(
    r_t: Floats,
    terminated_t: Flags,
    truncated_t: Flags,
    valid_t: Flags,
    gamma: float,
    n: int,
    reward: Floats,
    discount: Floats,
    steps: Ints,
) -> None:
    powers = gamma ** np.arange(n + 1)
    left = np.zeros(r_t.shape[1], np.int64)  # steps from t on, up to where every window ends
    for t in range(len(r_t) - 1, -1, -1):
        for b in range(r_t.shape[1]):
            if not valid_t[t, b]:
                left[b] = reward[t, b] = discount[t, b] = steps[t, b] = 0
                continue
            left[b] = 1 if terminated_t[t, b] or truncated_t[t, b] else left[b] + 1
            k = min(n, left[b])
            if left[b] == 1:
                total = r_t[t, b]
            elif left[b] <= n:  # the window of t + 1 ends with the same step
                total = r_t[t, b] + gamma * reward[t + 1, b]
            else:
                total = 0.0
                for later in range(t + n - 1, t - 1, -1):
                    total = r_t[later, b] + gamma * total
            reward[t, b] = total
            discount[t, b] = 0.0 if terminated_t[t + k - 1, b] else powers[k]
            steps[t, b] = k


def _add_bootstrap(discount: Floats, steps: Ints, v_t: Floats, return_: Floats) -> None:
    for t in range(len(v_t)):
        for b in range(v_t.shape[1]):
            if discount[t, b] != 0.0:
                return_[t, b] += discount[t, b] * v_t[t + steps[t, b] - 1, b]


# numba has no annotations: as calls after the definitions, the checker still sees the types.
if not TYPE_CHECKING:
    _n_step_windows = njit(cache=True, nogil=True)(_n_step_windows)
    _add_bootstrap = njit(cache=True, nogil=True)(_add_bootstrap)
