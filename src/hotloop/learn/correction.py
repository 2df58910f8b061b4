"""What IMPALA and APPO have in common: batches of fragments, corrected for their lag by V-trace.

The lag is bounded, too: older fragments are dropped and counted. How fragments come from the
actors stands in `actors.py`, V-trace itself in `hotloop.ops`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hotloop.data.fragment import Fragment
from hotloop.data.layout import Tree, tree_map
from hotloop.learn.learner import next_values
from hotloop.ops import VTrace, vtrace

Array = NDArray[Any]


@dataclass(frozen=True)
class Steps:
    """The steps of one or several fragments side by side: B envs of all together.

    obs: tree of (T + 1, B, ...). action: tree of (T, B, ...). reward, terminated, truncated, valid,
    log_prob: (T, B). final_t, final_b: (F,), where episodes ended; final_obs: tree of (F, ...).
    """

    obs: Tree
    action: Tree
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    log_prob: Array
    final_t: Array
    final_b: Array
    final_obs: Tree

    @classmethod
    def of(cls, fragments: Sequence[Fragment]) -> "Steps":
        """Put fragments of equal length side by side; of a single one, nothing is copied."""

        def beside(*trees: Tree) -> Tree:
            return tree_map(_beside, *trees)

        first = np.cumsum([0, *(f.spec.envs for f in fragments)])
        return cls(
            obs=beside(*(f.all_obs for f in fragments)),
            action=beside(*(f.action for f in fragments)),
            reward=beside(*(f.reward for f in fragments)),
            terminated=beside(*(f.terminated for f in fragments)),
            truncated=beside(*(f.truncated for f in fragments)),
            valid=beside(*(f.valid for f in fragments)),
            log_prob=beside(*(f.extras["log_prob"] for f in fragments)),
            final_t=np.concatenate([f.final_t for f in fragments]),
            final_b=np.concatenate(
                [f.final_b + start for f, start in zip(fragments, first, strict=False)]
            ),
            final_obs=tree_map(
                lambda *parts: np.concatenate(parts), *(f.final_obs for f in fragments)
            ),
        )


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


def _beside(*parts: Array) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
