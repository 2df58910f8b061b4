"""Gradients of a simulated spread by its parameters, and the estimators that compute them.

An estimator computes the gradient of weighted daily counts by the rate of each week and the
mortality. `default_estimator` chooses; docs/benchmarks/gradients.md compares them all.
"""

from collections.abc import Callable

from hotloop.errors import SettingError, nearest
from hotloop.models.epidemic.gradient.autograd import Estimator, Inputs, attach_gradient
from hotloop.models.epidemic.gradient.dense import Relaxed, StraightThrough
from hotloop.models.epidemic.gradient.expected import ExpectedModel, expected_curves
from hotloop.models.epidemic.gradient.message_passing import MessagePassing
from hotloop.models.epidemic.gradient.problem import SpreadProblem
from hotloop.models.epidemic.gradient.sampled import Flips, Score
from hotloop.models.epidemic.gradient.short_loops import LoopCounts, short_loops
from hotloop.models.epidemic.gradient.simulate import Runs, simulate
from hotloop.models.epidemic.gradient.start import SpreadStart

__all__ = [
    "ESTIMATORS",
    "MOST_LOOPS",
    "Estimator",
    "ExpectedModel",
    "Flips",
    "Inputs",
    "LoopCounts",
    "MessagePassing",
    "Relaxed",
    "Runs",
    "Score",
    "SpreadProblem",
    "SpreadStart",
    "StraightThrough",
    "attach_gradient",
    "default_estimator",
    "estimator",
    "expected_curves",
    "has_short_loops",
    "short_loops",
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


# Up to these mean numbers of other routes between the ends of a contact the bias of message passing
# is below 2%, at twice the usual rates (docs/benchmarks/gradients.md).
MOST_LOOPS = LoopCounts(back=0.05, two=0.3, three=5.0)


def has_short_loops(start: SpreadStart) -> bool:
    """Whether the network has too many short loops for message passing, which is exact on trees."""
    found = short_loops(start.network)
    return any(number > most for number, most in zip(found, MOST_LOOPS, strict=True))


def default_estimator(start: SpreadStart) -> Estimator:
    """Choose message passing, or flips where the network has short loops."""
    return Flips() if has_short_loops(start) else MessagePassing()


def estimator(name: str | Estimator) -> Estimator:
    """Make the estimator of a name with its default settings; an estimator is returned as it is.

    Raises: SettingError, naming the nearest.
    """
    if not isinstance(name, str):
        return name
    if name not in ESTIMATORS:
        raise SettingError(f"gradient: no estimator {name!r}{nearest(name, ESTIMATORS)}")
    return ESTIMATORS[name]()
