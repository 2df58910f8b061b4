"""Gradients of a simulated spread by its parameters, and what can be asked of them.

An estimator answers with the gradient of weighted daily counts by the rate of each week and the
mortality. `default_estimator` chooses; docs/benchmarks/gradients.md compares them all.
"""

from collections.abc import Callable

from hotloop.errors import SettingError, nearest
from hotloop.models.epidemic.gradient.attach import Estimator, Inputs, attach
from hotloop.models.epidemic.gradient.dense import Relaxed, StraightThrough
from hotloop.models.epidemic.gradient.expected import ExpectedModel, expected_curves
from hotloop.models.epidemic.gradient.message_passing import MessagePassing
from hotloop.models.epidemic.gradient.problem import Runs, SpreadProblem, SpreadStart, simulate
from hotloop.models.epidemic.gradient.sampled import Flips, Score

__all__ = [
    "ESTIMATORS",
    "MOST_BOTH_WAYS",
    "Estimator",
    "ExpectedModel",
    "Flips",
    "Inputs",
    "MessagePassing",
    "Relaxed",
    "Runs",
    "Score",
    "SpreadProblem",
    "SpreadStart",
    "StraightThrough",
    "attach",
    "default_estimator",
    "estimator",
    "expected_curves",
    "simulate",
]

ESTIMATORS: dict[str, Callable[[], Estimator]] = {
    MessagePassing.name: MessagePassing,
    ExpectedModel.name: ExpectedModel,
    StraightThrough.name: StraightThrough,
    Relaxed.name: Relaxed,
    Flips.name: Flips,
    Score.name: Score,
}


# Of edges whose opposite exists: above, an infection that comes back where it came from counts.
MOST_BOTH_WAYS = 0.05


def default_estimator(start: SpreadStart) -> Estimator:
    """Message passing, or flips where contacts go both ways, which message passing overstates."""
    return MessagePassing() if start.both_ways <= MOST_BOTH_WAYS else Flips()


def estimator(name: str | Estimator) -> Estimator:
    """The estimator of a name with its default settings; an estimator is handed back.

    Raises: SettingError, naming the nearest.
    """
    if not isinstance(name, str):
        return name
    if name not in ESTIMATORS:
        raise SettingError(f"gradient: no estimator {name!r}{nearest(name, ESTIMATORS)}")
    return ESTIMATORS[name]()
