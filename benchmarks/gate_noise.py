"""Neighbours that disturb a measurement, and the loops of the gate's benchmarks."""

import contextlib
import multiprocessing
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

import hotloop
from hotloop.loop import Loop

SEED = 1


def slower(body: Callable[[], int], share: float) -> Callable[[], int]:
    """The body, with all of its work done twice in so many of its iterations: 0.03 is 3% slower."""
    owed = 0.0

    def slowed() -> int:
        nonlocal owed
        owed += share
        if owed >= 1:
            owed -= 1
            body()
        return body()

    return slowed if share else body


def python_loop(share: float = 0.0) -> Loop:
    """A simulator in plain Python, with work that comes every tenth iteration."""
    generator = random.Random(SEED)
    agents = [[generator.random(), 0.0] for _ in range(2_000)]
    number = 0

    def body() -> int:
        nonlocal number
        number += 1
        for agent in agents:
            agent[1] = 0.9 * agent[1] + 0.1 * agent[0]
            agent[0] += 0.01 * (0.5 - agent[1])
        if number % 10 == 0:
            agents.sort()
        return len(agents)

    return Loop(body=slower(body, share), unit="agent steps")


def numpy_loop(share: float = 0.0) -> Loop:
    """Operations on arrays of 200 KB, which fit into a core's own cache."""
    state = np.random.default_rng(SEED).random(50_000, np.float32)
    velocity = np.zeros_like(state)

    def body() -> int:
        nonlocal velocity
        velocity *= 0.9
        velocity += 0.1 * state
        state[:] += 0.01 * (0.5 - velocity)
        return len(state)

    return Loop(body=slower(body, share), unit="agent steps")


def env_loop(share: float = 0.0) -> Loop:
    """Gymnasium's CartPole, eight of it."""
    envs = hotloop.make_vec("CartPole-v1", num_envs=8, backend="serial")
    envs.reset(seed=SEED)
    envs.action_space.seed(SEED)

    def body() -> int:
        envs.step(envs.action_space.sample())
        return envs.num_envs

    return Loop(body=slower(body, share), unit="env steps", close=envs.close)


def waiting_loop(share: float = 0.0) -> Loop:
    """Waits for half of its time, as a loop does that reads from a network."""

    def body() -> int:
        time.sleep(0.002)
        sum(n * n % 7 for n in range(20_000))
        return 1

    return Loop(body=slower(body, share), unit="samples")


def command(share: float = 0.0) -> str:
    """A whole command: a second of an interpreter's start, imports and computing."""
    count = round(2_000_000 * (1 + share))
    return f'{sys.executable} -c "import numpy; sum(n * n % 7 for n in range({count}))"'


def side_text(loop: str, share: float = 0.0) -> str:
    """How a loop of this file, or the command, is written as a side."""
    return command(share) if loop == "command" else f"{__file__}:{loop} share={share}"


BOUND_BY_PROCESSOR = ("python_loop", "numpy_loop", "env_loop")
OTHERS = ("waiting_loop", "command")


def _beside(act: Callable[[int], None], seed: int) -> None:
    """Act until the benchmark ends, also if it is killed."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    act(seed)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def _spin(_seed: int) -> None:
    while True:
        pass


def _spin_at_times(seed: int) -> None:
    """Load a core for random times: the other hardware thread of it then runs slower, in steps."""
    generator = random.Random(seed)
    while True:
        until = time.monotonic() + generator.expovariate(1 / 3.0)
        while time.monotonic() < until:
            pass
        time.sleep(generator.expovariate(1 / 3.0))


def _copy_memory(seed: int) -> None:
    """Stream through memory: the shared cache and the bandwidth are the neighbour's too."""
    source = np.random.default_rng(seed).random(32_000_000, np.float32)
    target = np.empty_like(source)
    while True:
        np.copyto(target, source)


NOISES = {
    "quiet": (),
    "spinners": (_spin, _spin),
    "speed steps": (_spin_at_times, _spin_at_times),
    "memory": (_copy_memory,),
}


@contextlib.contextmanager
def neighbours(noise: str, seed: int) -> Iterator[None]:
    """Run these processes beside the block."""
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_beside, args=(act, seed + k), daemon=True)
        for k, act in enumerate(NOISES[noise])
    ]
    for process in processes:
        process.start()
    try:
        if processes:
            time.sleep(1.0)
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()
