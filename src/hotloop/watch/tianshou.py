"""Watching a training of Tianshou.

    stats = run_training(algorithm, OnPolicyTrainerParams(…), run="ppo.run")

Its trainers tell no callback when they begin, end or fail, so the watch is put around them.
"""

from typing import TYPE_CHECKING, Any

from hotloop.watch.fit import missing
from hotloop.watch.watching import watch

try:
    import tianshou  # noqa: F401
except ModuleNotFoundError as error:
    raise missing("tianshou", "tianshou") from error

if TYPE_CHECKING:
    from tianshou.algorithm.algorithm_base import Algorithm
    from tianshou.data import InfoStats
    from tianshou.trainer import TrainerParams


def run_training(
    algorithm: "Algorithm[Any, Any]", params: "TrainerParams", **settings: Any
) -> "InfoStats":
    """Run `algorithm.run_training(params)` and watch it; return what that returns.

    settings: of `hotloop.watch`. Raises: SettingError, and what the training raises.
    """
    with watch(**settings):
        return algorithm.run_training(params)
