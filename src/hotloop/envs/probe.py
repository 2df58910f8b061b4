"""The probe of one env: how long a step takes, how much of it is work, how large an observation is.

The env is stepped in a process of its own, so that what it imports, starts or breaks ends with it.
"""

import multiprocessing
import pickle
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv as AnyVectorEnv

from hotloop.data.layout import Layout
from hotloop.envs.pickling import pickle_makers, portable_error
from hotloop.envs.workload import Probe
from hotloop.errors import WorkerError

PROBE_S = 0.6
MAX_STEPS = 20_000
WAITS = 0.2  # an env that gives its core away less often a step is taken to work all the time
RARELY = 0.05  # less often than that, its 95th percentile holds no waiting of its own


def probe_env(fn: Callable[[], Any], context: str | None = None) -> Probe:
    """Make one env in a process of its own, and step it with random actions.

    Raises: what making or stepping the env raises; WorkerError if it ends its process.
    """
    processes: Any = multiprocessing.get_context(context)
    forks = processes.get_start_method() == "fork"
    ours, theirs = processes.Pipe(duplex=False)
    process = processes.Process(
        target=_send_probe, args=(theirs, fn if forks else pickle_makers(fn)), daemon=True
    )
    process.start()
    theirs.close()
    try:
        succeeded, probe = ours.recv()
    except EOFError:
        process.join()
        raise WorkerError(
            f"vector env: the first env ended its process (exit code {process.exitcode}) while it "
            "was measured: step one by hand to see why, or choose a backend yourself"
        ) from None
    finally:
        ours.close()
        process.join()
        process.close()
    if not succeeded:
        raise probe
    return probe  # type: ignore[no-any-return]


def _send_probe(connection: Any, fn: Any) -> None:
    """Send the probe, or the error that was raised instead."""
    try:
        make = pickle.loads(fn) if isinstance(fn, bytes) else fn
        connection.send((True, _probe(make)))
    except BaseException as error:
        connection.send((False, portable_error(error)))


def _probe(make: Callable[[], Any]) -> Probe:
    make().close()  # the first one imports what it needs
    start = time.perf_counter()
    env = make()
    make_s = time.perf_counter() - start
    is_vector = isinstance(env, AnyVectorEnv)
    space = env.single_observation_space if is_vector else env.observation_space
    env.action_space.seed(0)
    env.reset(seed=0)
    step_s, late_s, busy = _step_times(env, is_vector)
    env.close()
    return Probe(
        step_s,
        late_s,
        busy,
        Layout.of(space).nbytes(1),
        make_s,
        env.num_envs if is_vector else 1,
        is_vector,
    )


def _step_times(env: Any, is_vector: bool) -> tuple[float, float, float]:
    """The median and the 95th percentile of a step, and the share of it that is work."""
    times: list[float] = []
    works: list[float] = []
    end = time.perf_counter() + PROBE_S
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    while not times or (time.perf_counter() < end and len(times) < MAX_STEPS):
        action = env.action_space.sample()
        began, start = time.thread_time(), time.perf_counter()
        _, _, terminated, truncated, _ = env.step(action)
        times.append(time.perf_counter() - start)
        works.append(time.thread_time() - began)
        if not is_vector and (terminated or truncated):
            env.reset()
    passed = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # An env that waits gives the core away; on a busy machine it is also taken away, which is no
    # waiting of the env's.
    waits = (after.ru_nvcsw - before.ru_nvcsw) / len(times)
    busy = 1.0 if waits < WAITS else min(1.0, work / passed)
    step_s, late_s = np.quantile(times, [0.5, 0.95])
    if waits < RARELY:
        # Steps that other programs interrupted are late, but not because of the env.
        typical, most = np.quantile(works, [0.5, 0.95])
        late_s = min(late_s, step_s * most / typical) if typical > 0 else late_s
    return float(step_s), float(late_s), busy
