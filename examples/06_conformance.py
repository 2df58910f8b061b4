"""You will see a fault of an env found and named, and the mended env pass.

    python examples/06_conformance.py

`check(make)` is a test of one line for your own env, or for anybody's vector env: every sentence
of Gymnasium's contract is tried, and a failure says what was expected, what came and what to do.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from hotloop.testing.conformance import check


class Tank(gymnasium.Env[Any, Any]):
    """Keep a leaking tank half full; observes the level and the inflow."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self) -> None:
        self.state = np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.state[:] = self.np_random.uniform(0.3, 0.7), 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        level, leak = float(self.state[0]), self.np_random.uniform(0, 0.1)
        self.state[:] = np.clip(level + 0.05 * action - leak, 0, 1), action / 2
        empty_or_full = not 0.05 < self.state[0] < 0.95
        return self.observe(), -abs(level - 0.5), empty_or_full, False, {}

    def observe(self) -> Any:
        return self.state  # the env's own array: a replay buffer would hold the last step only


class MendedTank(Tank):
    """The tank, with an observation that is the caller's to keep."""

    def observe(self) -> Any:
        return self.state.copy()


if __name__ == "__main__":
    for make in (Tank, MendedTank):
        print(check(make, raise_on_failure=False), end="\n\n")
