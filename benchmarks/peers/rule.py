"""The one rule by which every system is judged and timed; needs only numpy and Gymnasium.

Greedy evaluation on 20 episodes of fixed seeds, after every 2,048 env steps. A mean of at least
475 twice in a row is solved. The clock stops while a policy is judged, and starts after imports
and after the learner has been made.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

ENV_ID = "CartPole-v1"
TARGET = 475
EPISODES = 20
FIRST_SEED = 1_000_000
EVALUATE_EVERY = 2048
LIMIT = 80_000


class Watch:
    """Times training, judges policies, and knows when it is over."""

    def __init__(self) -> None:
        self.curve: list[tuple[int, float]] = []
        self.seconds = self.cpu_seconds = 0.0
        self.passed = 0
        self.env_steps = 0
        self.over = False
        self._envs = [gymnasium.make(ENV_ID) for _ in range(EPISODES)]

    def start(self) -> None:
        """Training goes on from here."""
        self._started, self._cpu_started = time.perf_counter(), time.process_time()

    def judge(self, env_steps: int, greedy: Callable[[Any], Any]) -> bool:
        """Called after every update; returns whether training is over."""
        self.seconds += time.perf_counter() - self._started
        self.cpu_seconds += time.process_time() - self._cpu_started
        self.env_steps = env_steps
        last = self.curve[-1][0] if self.curve else 0
        if not self.over and env_steps // EVALUATE_EVERY > last // EVALUATE_EVERY:
            mean = self._evaluate(greedy)
            self.curve.append((env_steps, mean))
            self.passed = self.passed + 1 if mean >= TARGET else 0
            self.over = self.passed == 2
        self.over = self.over or env_steps >= LIMIT
        self.start()
        return self.over

    def report(self) -> None:
        """One line of JSON for whoever started this process."""
        outcome = {
            "solved": self.passed == 2,
            "env_steps": self.env_steps,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "curve": self.curve,
        }
        json.dump(outcome, sys.stdout)

    def _evaluate(self, greedy: Callable[[Any], Any]) -> float:
        returns = np.zeros(EPISODES)
        running = list(range(EPISODES))
        obs = np.stack([env.reset(seed=FIRST_SEED + i)[0] for i, env in enumerate(self._envs)])
        while running:
            still = []
            for i, action in zip(running, greedy(obs[running]), strict=True):
                obs[i], reward, terminated, truncated, _ = self._envs[i].step(int(action))
                returns[i] += reward
                if not (terminated or truncated):
                    still.append(i)
            running = still
        return float(returns.mean())
