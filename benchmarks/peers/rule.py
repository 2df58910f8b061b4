"""The one rule by which every system is judged and timed; needs only numpy and Gymnasium.

Greedy evaluation on episodes of fixed seeds, whenever so many env steps have been learned from.
Solved is a result that reaches the target twice in a row. The clock stops while a policy is judged,
and starts after imports and after the learner has been made.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

FIRST_SEED = 1_000_000
PASSES = 2

Greedy = Callable[[Any], Any]
"""From observations (B, ...) to the likeliest actions (B, ...), as the env takes them."""


@dataclass(frozen=True)
class Rule:
    """When an env is solved, and how often one looks.

    target: of the mean return less `margin` standard errors of it; None trains to the limit.
    """

    env_id: str
    limit: int  # env steps
    target: float | None = None
    margin: float = 0.0
    episodes: int = 20
    evaluate_every: int = 2048  # env steps
    limit_s: float = math.inf  # of training


@dataclass(frozen=True)
class Mark:
    """A policy that is to be judged, and when it was there."""

    env_steps: int
    seconds: float
    cpu_seconds: float
    policy: Any


class Watch:
    """Times training, judges policies, and knows when it is over.

    ahead: env steps that a system has collected before the clock begins. They count as long as
    equally many afterwards.
    alone: whether this process does all the work, so that its processor time tells something.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.curve: list[tuple[int, float, float]] = []  # env steps, seconds, result
        self.waiting: list[Mark] = []
        self.seconds = self.cpu_seconds = 0.0
        self.ahead = self.passed = self.env_steps = 0
        self.over, self.alone = False, True
        self._marked = 0
        self.envs = [gymnasium.make(rule.env_id) for _ in range(rule.episodes)]

    def start(self, ahead: int = 0) -> None:
        """Training goes on from here."""
        self.ahead += ahead
        self._started, self._cpu_started = time.perf_counter(), time.process_time()

    def judge(self, env_steps: int, greedy: Greedy) -> bool:
        """Called after every update; returns whether training is over."""
        self.mark(env_steps, lambda: greedy)
        if self.waiting or self.over:
            self.settle(lambda policy: policy)  # type: ignore[no-any-return]
        return self.over

    def mark(self, env_steps: int, policy: Callable[[], Any]) -> None:
        """Called after every update; keeps what `policy` returns where it is due to be judged."""
        seconds = self.seconds + time.perf_counter() - self._started
        self.env_steps = env_steps
        self.over = env_steps >= self.rule.limit or seconds >= self.rule.limit_s
        every = self.rule.evaluate_every
        if env_steps // every > self._marked // every:
            self._marked = env_steps
            cpu_seconds = self.cpu_seconds + time.process_time() - self._cpu_started
            self.waiting.append(Mark(env_steps, seconds, cpu_seconds, policy()))

    def stop(self) -> None:
        """Training rests until the next start."""
        self.seconds += time.perf_counter() - self._started
        self.cpu_seconds += time.process_time() - self._cpu_started

    def settle(self, greedy_of: Callable[[Any], Greedy]) -> None:
        """Judge the policies that wait, in order, up to the one that solves; the clock stops.

        Training is then as long as it was at that one.
        """
        self.stop()
        for mark in self.waiting:
            result = self._result(self._returns(greedy_of(mark.policy)))
            self.curve.append((mark.env_steps, mark.seconds, result))
            reached = self.rule.target is not None and result >= self.rule.target
            self.passed = self.passed + 1 if reached else 0
            if self.passed == PASSES:
                self.over = True
                self.env_steps, self.seconds = mark.env_steps, mark.seconds
                self.cpu_seconds = mark.cpu_seconds
                break
        self.waiting.clear()
        self.start()

    def report(self, **also: float) -> None:
        """One line of JSON for whoever started this process; also: figures of its own."""
        longer = self.env_steps / (self.env_steps - self.ahead)
        outcome = {
            "solved": self.passed == PASSES,
            "env_steps": self.env_steps,
            "seconds": self.seconds * longer,
            "cpu_seconds": self.cpu_seconds if self.alone else None,
            "curve": self.curve,
            **also,
        }
        print(json.dumps(outcome), flush=True)

    def _result(self, returns: Any) -> float:
        error = returns.std(ddof=1) / math.sqrt(len(returns)) if self.rule.margin else 0.0
        return float(returns.mean() - self.rule.margin * error)

    def _returns(self, greedy: Greedy) -> Any:
        returns = np.zeros(len(self.envs))
        running = list(range(len(self.envs)))
        obs = np.stack([env.reset(seed=FIRST_SEED + i)[0] for i, env in enumerate(self.envs)])
        while running:
            still = []
            for i, action in zip(running, greedy(obs[running]), strict=True):
                obs[i], reward, terminated, truncated, _ = self.envs[i].step(action)
                returns[i] += float(reward)
                if not (terminated or truncated):
                    still.append(i)
            running = still
        return returns


def asked() -> tuple[int, Watch, dict[str, Any]]:
    """What the first argument of a peer's script asks for: the seed, a watch, the settings."""
    training = json.loads(sys.argv[1])
    return training["seed"], Watch(Rule(**training["rule"])), training["settings"]
