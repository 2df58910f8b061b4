"""Experiments on a busy machine: a small budget holds too few rounds there, a larger one does."""

from collections.abc import Callable
from typing import Any

from hotloop.loop.figures import Interval
from hotloop.results.simplify import SimplifyResult, run_simplify

BUDGETS_S = 6, 24, 60


def simplify_until(
    is_known: Callable[[SimplifyResult], bool], target: Any, **options: Any
) -> SimplifyResult:
    """Simplify with one budget after the other, until what is asked is known."""
    for budget in BUDGETS_S:
        found = run_simplify(target, budget=budget, **options)
        if is_known(found):
            return found
    raise AssertionError(f"not known after {budget} s:\n{found!r}")


def has_verdict(found: SimplifyResult) -> bool:
    """Whether the verdict is not refused."""
    return found.verdict.refused is None


def gains_more_than(least: float, name: str) -> Callable[[SimplifyResult], bool]:
    """Whether the gain of this stage is known to be larger."""

    def is_known(found: SimplifyResult) -> bool:
        gain = next(row for row in found.verdict.rows if row.name == name).gain
        return isinstance(gain, Interval) and gain.low > least

    return is_known
