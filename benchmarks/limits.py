"""What there is to be had: the least that any engine with worker processes has to do.

`Apart` steps envs in a process a core that exchange nothing at all. `Relay` steps a vector env in
one other process, and does no more than hand actions and results over. An engine that is as fast
cannot be made faster by better code.
"""

import mmap
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import hotloop


class Apart:
    """`num_envs` envs in one process a core, each stepping its own without end."""

    def __init__(self, make: Callable[[], Any], num_envs: int, actions: Sequence[np.ndarray]):
        context = multiprocessing.get_context("fork")
        cores = len(os.sched_getaffinity(0))
        self.ends, self.processes = [], []
        for _ in range(cores):
            end, other = context.Pipe()
            arguments = (other, make, num_envs // cores, actions)
            process = context.Process(target=_step_alone, args=arguments, daemon=True)
            process.start()
            self.ends.append(end)
            self.processes.append(process)

    def rate(self, seconds: float) -> float:
        """Env steps a second of all of them together."""
        for end in self.ends:
            end.send(seconds)
        return sum(end.recv() for end in self.ends)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


def _step_alone(end: Any, make: Callable[[], Any], num_envs: int, actions: Any) -> None:
    envs = hotloop.make_vec(make, num_envs, backend="serial")
    envs.reset(seed=0)
    own = [batch[:num_envs] for batch in actions]
    while True:
        seconds, steps = end.recv(), 0
        start = time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            envs.step(own[steps % len(own)])
            steps += 1
        end.send(steps * num_envs / passed)


class Relay:
    """A vector env of image observations in one other process, an eventfd a direction."""

    def __init__(self, make: Callable[[], Any], num_envs: int, shape: tuple[int, ...]):
        row = int(np.prod(shape)) + 18
        self._memory = mmap.mmap(-1, num_envs * row + 64)
        at = 0
        arrays = []
        for kind, one in (("i8", ()), ("f8", ()), ("?", ()), ("?", ()), ("u1", shape)):
            count = num_envs * int(np.prod(one, dtype=int))
            array = np.frombuffer(self._memory, kind, count, at).reshape(num_envs, *one)
            at += array.nbytes
            arrays.append(array)
        self._actions, *self._results = arrays
        self._go, self._done = os.eventfd(0), os.eventfd(0)
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=self._serve, args=(make,), daemon=True)
        self._process.start()

    def _serve(self, make: Callable[[], Any]) -> None:
        envs = make()
        envs.reset(seed=0)
        while True:
            os.read(self._go, 8)
            obs, *rest, _ = envs.step(self._actions.copy())
            for out, got in zip(self._results, (*rest, obs), strict=True):
                out[:] = got
            os.write(self._done, (1).to_bytes(8, "little"))

    def step(self, actions: np.ndarray) -> list[np.ndarray]:
        self._actions[:] = actions
        os.write(self._go, (1).to_bytes(8, "little"))
        os.read(self._done, 8)
        return [result.copy() for result in self._results]

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        os.close(self._go)
        os.close(self._done)
