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


class Node(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole on a node with a core for each env: all envs of a process step in the same 10 ms."""

    _steps, _end_s = 0, 0.0  # of this process: the steps that have begun, and when the last ends

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._own_steps = 0

    def step(self, action: Any) -> Any:
        self._own_steps += 1
        if self._own_steps > Node._steps:  # the first env of the node in this step waits for all
            now = time.perf_counter()
            Node._steps = self._own_steps
            Node._end_s = max(now - MOST_LATE_S, Node._end_s) + STEP_S
            time.sleep(max(0.0, Node._end_s - now))
        return super().step(action)


gymnasium.register("Node-v0", Node)
