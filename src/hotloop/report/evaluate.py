"""The report of an evaluation: returns and lengths of greedy episodes. It is printed, not saved."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

Array = NDArray[Any]


def evaluation_figures(returns: Array, lengths: Array) -> dict[str, Any]:
    """The figures of greedy episodes, as `--json` prints them. Shapes: (K,) each."""
    return {
        "episodes": len(returns),
        "mean_return": float(np.mean(returns)),
        "median_return": float(np.median(returns)),
        "lowest_return": float(np.min(returns)),
        "highest_return": float(np.max(returns)),
        "mean_length": float(np.mean(lengths)),
        "returns": returns.tolist(),
        "lengths": lengths.tolist(),
    }


def print_evaluation(
    console: Console, target: str, env_steps: int, figures: dict[str, Any]
) -> None:
    """Print the figures of greedy episodes of the policy that has learned for `env_steps`."""
    console.print(
        f"[bold]{escape(target)}[/] after {env_steps:,} env steps: mean greedy return "
        f"[bold]{figures['mean_return']:.1f}[/] over {figures['episodes']} episodes",
        highlight=False,
    )
    console.print(
        f"median {figures['median_return']:.1f}, from {figures['lowest_return']:.1f} to "
        f"{figures['highest_return']:.1f}; {figures['mean_length']:.1f} steps an episode",
        highlight=False,
    )
