"""Turns of vector envs that are measured side by side: step with random actions for a moment."""

from collections.abc import Callable
from typing import Any

from gymnasium.vector import VectorEnv as AnyVectorEnv
from gymnasium.vector.utils import batch_space

from hotloop.envs.vector import VectorEnv

ACTIONS = 16  # batches of random actions, drawn before


class Turns:
    """One vector env that is stepped in turns; between two turns none of its envs is under way."""

    def __init__(self, envs: AnyVectorEnv[Any, Any, Any], splits: int = 1) -> None:
        self.envs = envs
        batch = batch_space(envs.single_action_space, envs.num_envs // splits)
        batch.seed(0)
        self._actions = [batch.sample() for _ in range(ACTIONS)]
        self.step_while = self._step_groups if splits > 1 else self._step_all

    def prepare(self) -> None:
        """Start the episodes, and let everything happen once that happens once."""
        self.envs.reset(seed=0)
        self.step_while(lambda: False)

    def steps_per_s(self, seconds: float, clock: Callable[[], float]) -> float:
        """Env steps a second over about `seconds`, at least one step of every env."""
        self.step_while(lambda: False)  # wakes workers that have slept since the turn before
        start = clock()
        steps = self.step_while(lambda: clock() - start < seconds)
        return steps / (clock() - start)

    def _step_all(self, more: Callable[[], bool]) -> int:
        """Step all envs at once; returns the env steps."""
        steps = 0
        while not steps or more():
            self.envs.step(self._actions[steps % ACTIONS])
            steps += 1
        return steps * self.envs.num_envs

    def _step_groups(self, more: Callable[[], bool]) -> int:
        """Step one group after the other, the others being under way; returns the env steps."""
        envs = self.envs
        assert isinstance(envs, VectorEnv)
        for split in range(envs.splits):
            envs.send(self._actions[split % ACTIONS], envs.split_rows(split))
        steps = 0
        while more():
            envs.recv()
            envs.send(self._actions[steps % ACTIONS])
            steps += 1
        for _ in range(envs.splits):
            envs.recv()
        return (steps + envs.splits) * envs.batch_size
