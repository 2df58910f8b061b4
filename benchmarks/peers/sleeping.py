"""CartPole whose steps last 10 ms, as a simulator's do that computes elsewhere."""

import time
from typing import Any

import gymnasium

STEP_S = 0.01
MOST_LATE_S = 0.001


class Sleeping(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Lets each step last so long; what one is late, the next makes up for, up to a millisecond."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._late_s = 0.0

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + STEP_S - self._late_s
        result = super().step(action)
        time.sleep(max(0.0, end - time.perf_counter()))
        self._late_s = min(time.perf_counter() - end, MOST_LATE_S)
        return result


gymnasium.register("Sleeping-v0", Sleeping)
