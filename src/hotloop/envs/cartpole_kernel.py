"""The compiled step of CartPole-v1: equations, ends of episodes and restarts of many envs.

Sources: Barto, Sutton and Anderson 1983; equations of motion from Florian 2007, without friction.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Obs = NDArray[np.float32]

LOW, HIGH = -0.05, 0.05  # where an episode starts, in every component
X_LIMIT, ANGLE_LIMIT = 2.4, 12 * 2 * math.pi / 360  # metres and radians: beyond, it terminates
_GRAVITY, _FORCE, _SECONDS = 9.8, 10.0, 0.02
_POLE_MASS, _HALF_LENGTH = 0.1, 0.5
_TOTAL_MASS, _POLE_MOMENT = _POLE_MASS + 1.0, _POLE_MASS * _HALF_LENGTH

DISABLED, NEXT_STEP, SAME_STEP = range(3)
AHEAD = 64  # start states drawn ahead, per env: a draw of many costs little more than one
# Rows of the two tables that hold the envs.
X, X_DOT, ANGLE, ANGLE_DOT, SIN, COS = range(6)
STEPS, PENDING, DRAWN = range(3)


def _restart(i: int, state: Floats, counts: Ints, starts: Floats) -> int:
    """Put env i at its next start; 1 if that was the last one drawn, otherwise 0."""
    drawn = counts[DRAWN, i]
    for k in range(4):
        state[k, i] = LOW + (HIGH - LOW) * starts[i, drawn, k]
    counts[STEPS, i] = 0
    counts[PENDING, i] = 0
    counts[DRAWN, i] = drawn + 1
    return 1 if drawn + 1 == AHEAD else 0


# One function, longer than others here: a step is one pass over the envs, in Gymnasium's order of
# operations, which is what makes the sums equal to the last bit.
def step(
    actions: Ints,
    max_episode_steps: int,
    mode: int,
    sutton_barto_reward: bool,
    state: Floats,
    counts: Ints,
    starts: Floats,
    final: Obs,
    obs: Obs,
    reward: Floats,
    terminated: Flags,
    truncated: Flags,
) -> tuple[int, int, int]:
    """(an env that refuses its action or -1, envs that ended, envs without a start ahead)."""
    ended, spent = 0, 0
    for i in range(len(actions)):
        pending = counts[PENDING, i] != 0
        if (mode == DISABLED and pending) or (not pending and (actions[i] & 1) != actions[i]):
            return i, 0, 0
    for i in range(len(actions)):
        if counts[PENDING, i]:
            spent += _restart(i, state, counts, starts)
            reward[i], terminated[i], truncated[i] = 0.0, False, False
        else:
            x, x_dot = state[X, i], state[X_DOT, i]
            angle, angle_dot = state[ANGLE, i], state[ANGLE_DOT, i]
            sin, cos = state[SIN, i], state[COS, i]
            force = _FORCE if actions[i] == 1 else -_FORCE
            push = (force + _POLE_MOMENT * (angle_dot * angle_dot) * sin) / _TOTAL_MASS
            turn = (_GRAVITY * sin - cos * push) / (
                _HALF_LENGTH * (4.0 / 3.0 - _POLE_MASS * (cos * cos) / _TOTAL_MASS)
            )
            pull = push - _POLE_MOMENT * turn * cos / _TOTAL_MASS
            x += _SECONDS * x_dot
            x_dot += _SECONDS * pull
            angle += _SECONDS * angle_dot
            angle_dot += _SECONDS * turn
            state[X, i], state[X_DOT, i] = x, x_dot
            state[ANGLE, i], state[ANGLE_DOT, i] = angle, angle_dot
            counts[STEPS, i] += 1
            fell = abs(x) > X_LIMIT or abs(angle) > ANGLE_LIMIT
            cut = counts[STEPS, i] >= max_episode_steps
            reward[i] = (-1.0 if fell else 0.0) if sutton_barto_reward else 1.0
            terminated[i], truncated[i] = fell, cut
            if fell or cut:
                ended += 1
                counts[PENDING, i] = 1
                if mode == SAME_STEP:
                    for k in range(4):
                        final[i, k] = state[k, i]
                    spent += _restart(i, state, counts, starts)
        for k in range(4):
            obs[i, k] = state[k, i]
    return -1, ended, spent


# numba has no annotations: as calls after the definitions, the checker still sees the types.
if not TYPE_CHECKING:
    _restart = njit(cache=True)(_restart)
    step = njit(cache=True, nogil=True, error_model="numpy")(step)
