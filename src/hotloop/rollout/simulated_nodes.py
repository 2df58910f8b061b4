"""Simulated nodes: many cores on one machine, whose envs' steps take time and no processor.

A vector env whose step lasts as long as one env's, for all its envs at once, stands for as many
cores that step in parallel. What brings the steps to the head is real: serialisation, scheduling,
and Ray's calls. So it can be measured what an engine would bring on a cluster that is not there;
the network alone is missing.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import VectorWrapper

from hotloop.envs.make import make_vec
from hotloop.envs.vector import VectorEnv
from hotloop.rollout.fragments import FragmentCollector

MOST_LATE_S = 0.001
FEWEST_STEPS, LONG_STEP_S = 5, 0.5
WAITED_S = 0.001  # a fragment that had to be waited for; less: it was done before


class Pace:
    """Lets steps last as long as they should; what one is late, the next makes up for.

    A step ends when its time is over, whatever simulating it cost this machine. Where it ends late,
    the next one is shortened by as much, but by one millisecond at most: what a sleep overshoots
    does not count against the engine, and a machine too busy to keep pace does not make up for it.
    """

    def __init__(self) -> None:
        self._late_s = 0.0

    def __call__(self, step_s: float, step: Callable[[], Any]) -> Any:
        """Run `step`, and return what it returns when `step_s` is over."""
        start = time.perf_counter()
        outcome = step()
        if step_s:
            end = start + step_s - self._late_s
            time.sleep(max(0.0, end - time.perf_counter()))
            self._late_s = min(time.perf_counter() - end, MOST_LATE_S)
        return outcome


class SimulatedNode(VectorWrapper):
    """`cores` envs of an id whose steps last `step_s` for all of them at once."""

    def __init__(self, env_id: str, cores: int, step_s: float) -> None:
        super().__init__(make_vec(env_id, cores, backend="serial"))
        self._pace, self._step_s = Pace(), step_s

    def step(self, actions: Any) -> Any:
        """One step of every env, which lasts `step_s`."""
        return self._pace(self._step_s, lambda: self.env.step(actions))


class FixedActions:
    """A policy that costs nothing: the same actions whatever is observed."""

    def __init__(self, actions: Any) -> None:
        self.actions = actions

    def __call__(self, obs: Any) -> Any:  # noqa: ARG002 - a policy takes them
        """Return the actions of all envs."""
        return self.actions


def rate_of_steps(envs: Any, num_envs: int, actions: Any, step_s: float, seconds: float) -> float:
    """Env steps/s where a step waits for all envs.

    envs: of any library, with `step`. num_envs: in it. step_s: about how long a step lasts.
    """
    for _ in range(_warm_up(step_s)):
        envs.step(actions)
    steps, start = 0, time.perf_counter()
    while steps < FEWEST_STEPS or time.perf_counter() - start < seconds:
        envs.step(actions)
        steps += 1
    return steps * num_envs / (time.perf_counter() - start)


def rate_in_turn(envs: VectorEnv, actions: Any, nodes: int, seconds: float) -> float:
    """Env steps/s where every node is sent on as soon as it is heard.

    actions: of all envs; a partial batch holds one node's.
    """
    envs.send(actions, np.arange(envs.num_envs))
    cores = envs.num_envs // nodes

    def turn() -> None:
        ids = envs.recv()[4]["env_id"]
        envs.send(actions[: len(ids)], ids)

    for _ in range(nodes):
        turn()
    rounds, start = 0, time.perf_counter()
    while rounds < FEWEST_STEPS or time.perf_counter() - start < seconds:
        for _ in range(nodes):
            turn()
        rounds += 1
    rate = rounds * nodes * cores / (time.perf_counter() - start)
    for _ in range(nodes):
        envs.recv()
    return rate


def rate_in_fragments(
    fragments: FragmentCollector, policy: Any, nodes: int, seconds: float
) -> float:
    """Env steps/s of fragments from nodes on which `policy` acts, once all of them have it."""
    version = fragments.update(policy)
    fresh: set[int] = set()
    while len(fresh) < nodes:  # those under way were begun with another policy
        (fragment,) = fragments.collect()
        if fragment.policy_version == version:
            fresh.add(int(fragment.env_ids[0]))
    for _ in range(3 * nodes):  # nor those that were done before, and only had to be fetched
        before = time.perf_counter()
        fragments.collect()
        if time.perf_counter() - before > WAITED_S:
            break
    rounds, transitions, start = 0, 0, time.perf_counter()
    while rounds < 2 or time.perf_counter() - start < seconds:
        # Copied, so that no byte of what counts is still on its way.
        transitions += sum(fragment.copy().transitions for fragment in fragments.collect(nodes))
        rounds += 1
    return transitions / (time.perf_counter() - start)


def _warm_up(step_s: float) -> int:
    return 1 if step_s > LONG_STEP_S else 3
