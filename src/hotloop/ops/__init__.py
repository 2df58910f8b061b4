"""The mathematics of the learners: pure functions, arrays in and arrays out; loops are compiled."""

from hotloop.errors import expect_linux

expect_linux()

from hotloop.ops.n_step import NStepWindows, n_step_returns, n_step_windows
from hotloop.ops.normalise import (
    Moments,
    denormalise,
    merge_moments,
    no_moments,
    normalise,
    normalise_advantages,
)
from hotloop.ops.priority import (
    draw_by_priority,
    importance_weights,
    set_priorities,
    sum_tree,
)
from hotloop.ops.returns import gae, lambda_returns
from hotloop.ops.vtrace import VTrace, vtrace

__all__ = [
    "Moments",
    "NStepWindows",
    "VTrace",
    "denormalise",
    "draw_by_priority",
    "gae",
    "importance_weights",
    "lambda_returns",
    "merge_moments",
    "n_step_returns",
    "n_step_windows",
    "no_moments",
    "normalise",
    "normalise_advantages",
    "set_priorities",
    "sum_tree",
    "vtrace",
]
