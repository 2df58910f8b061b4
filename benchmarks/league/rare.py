"""Loops with rare work: most iterations are short, and a part of the time is in the few others."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from hotloop.loop import Loop, stage
from league.entry import Draws, Entry, Fixes, burn, python_work
from league.queues import fed

SHORT_S, LONG_S, TRAIN_S = 0.001, 0.050, 0.002


def source(
    take: Callable[[float], None], fixes: Fixes, draws: Draws, every: int, at_random: bool
) -> Callable[[], np.ndarray]:
    """A call takes 1 ms, and 50 ms every `every`-th: in turn, or at random as often."""
    calls = 0
    batch = np.zeros(16)

    def load() -> np.ndarray:
        nonlocal calls
        if fixes["load"]:
            calls += 1
            late = draws() * every < 1 if at_random else calls % every == 0
            take(fixes["load"] * (LONG_S if late else SHORT_S))
        return batch

    return load


@contextmanager
def bursts_serial(every: int, at_random: bool, fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """The source, then 2 ms of training."""
    load = stage("load", source(burn, fixes, draws, every, at_random), effect="pure")
    train = stage("train", lambda _batch: burn(TRAIN_S * fixes["train"]), effect="pure")

    def body() -> int:
        train(load())
        return 1

    yield Loop(body=body, name="bursts-serial")


@contextmanager
def bursts_thread(
    every: int, at_random: bool, depth: int, fixes: Fixes, draws: Draws
) -> Iterator[Loop]:
    """The source waits in a thread; a queue stands between it and 2 ms of training."""
    load = stage(
        "load", source(time.sleep, fixes, draws, every, at_random), effect="pure", kind="io"
    )
    train = stage("train", lambda _batch: burn(TRAIN_S * fixes["train"]), effect="pure")
    with fed(load, depth) as take:

        def body() -> int:
            train(take())
            return 1

        yield Loop(body=body, name="bursts-thread")


@contextmanager
def dqn(fixes: Fixes, _draws: Draws) -> Iterator[Loop]:
    """Act 0.3 ms, step 0.5 ms, and learn 4 ms at every tenth step; the count is declared state."""
    count = np.zeros(1, np.int64)
    obs = np.zeros(8)

    def env_step(_action: int) -> np.ndarray:
        burn(0.0005 * fixes["env step"])
        return obs

    def act(_obs: np.ndarray) -> int:
        burn(0.0003 * fixes["act"])
        return 1

    act_stage, step = stage("act", act, effect="pure"), stage("env step", env_step, effect="pure")
    learn = stage("learn", lambda: burn(0.004 * fixes["learn"]), effect="pure")

    def body() -> int:
        step(act_stage(obs))
        count[0] += 1
        if count[0] % 10 == 0:
            learn()
        return 1

    yield Loop(body=body, name="dqn", unit="env steps", state=[count])


@contextmanager
def collects(as_stage: bool, fixes: Fixes, _draws: Draws) -> Iterator[Loop]:
    """Collects garbage in every tenth iteration, among 40,000 objects; work 1.3 ms."""
    # A collection looks through these, and not through whatever else has been imported.
    gc.collect()
    gc.freeze()
    made = [[k] for k in range(40_000)]
    calls = 0

    def work() -> None:
        python_work(fixes.count("work", 8))

    def collect() -> None:
        if fixes["collect"]:
            gc.collect()

    work_stage = stage("work", work, effect="pure")
    if as_stage:
        collect = stage("collect", collect, effect="pure")

    def body() -> int:
        nonlocal calls
        work_stage()
        python_work(5)
        calls += 1
        if calls % 10 == 0:
            collect()
        return len(made) // len(made)

    try:
        yield Loop(body=body, name="collects")
    finally:
        gc.unfreeze()


@contextmanager
def resets(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """An env step of 0.4 ms, and 20 ms at the end of an episode: 40 steps, on average."""
    obs = np.zeros(8)

    def env_step(_action: int) -> np.ndarray:
        if fixes["env step"]:
            burn(fixes["env step"] * (0.020 if draws() * 40 < 1 else 0.0004))
        return obs

    def act(_obs: np.ndarray) -> int:
        burn(0.0006 * fixes["act"])
        return 1

    act_stage = stage("act", act, effect="pure")
    step = stage("env step", env_step, effect="pure")

    def body() -> int:
        step(act_stage(obs))
        return 1

    yield Loop(body=body, name="resets", unit="env steps")


@contextmanager
def checkpoints(fixes: Fixes, _draws: Draws) -> Iterator[Loop]:
    """Load 0.7 ms, train 1.5 ms, and 30 ms for a checkpoint in every 40th iteration."""
    calls = 0
    load = stage("load", lambda: burn(0.0007 * fixes["load"]), effect="pure")
    train = stage("train", lambda: burn(0.0015 * fixes["train"]), effect="pure")
    save = stage("checkpoint", lambda: burn(0.030 * fixes["checkpoint"]), effect="pure")

    def body() -> int:
        nonlocal calls
        load()
        train()
        calls += 1
        if calls % 40 == 0:
            save()
        return 1

    yield Loop(body=body, name="checkpoints")


@contextmanager
def heavy_tail(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """Parsing takes a lognormal time, sigma 1.5, 1 ms on average; training always 1.2 ms."""
    normal, sigma = statistics.NormalDist(), 1.5
    median_s = 0.001 / math.exp(sigma**2 / 2)

    def parse() -> None:
        if fixes["parse"]:
            burn(fixes["parse"] * median_s * math.exp(sigma * normal.inv_cdf(draws())))

    parse_stage = stage("parse", parse, effect="pure")
    train = stage("train", lambda: burn(0.0012 * fixes["train"]), effect="pure")

    def body() -> int:
        parse_stage()
        train()
        return 1

    yield Loop(body=body, name="heavy-tail")


EXTRA_S = LONG_S - SHORT_S
FREE_BOTH = (("load", 0.0), ("train", 0.0))
LOOPS = {
    "bursts-20-serial": Entry(
        partial(bursts_serial, 20, False),
        "rare",
        (("load", 0.0), ("train", 0.0), ("load", 0.5)),
        period=20,
        every=20,
        rare_s=EXTRA_S,
    ),
    "bursts-8-serial": Entry(
        partial(bursts_serial, 8, False),
        "rare",
        (("train", 0.0), ("load", 0.25)),
        period=8,
        every=8,
        rare_s=EXTRA_S,
    ),
    "bursts-50-serial": Entry(
        partial(bursts_serial, 50, False),
        "rare",
        FREE_BOTH,
        period=50,
        every=50,
        rare_s=EXTRA_S,
    ),
    "bursts-20-thread": Entry(
        partial(bursts_thread, 20, False, 4),
        "rare",
        (("load", 0.0), ("train", 0.0), ("load", 0.5)),
        period=20,
        drain=12,
        every=20,
        rare_s=EXTRA_S,
    ),
    "random-20-serial": Entry(
        partial(bursts_serial, 20, True),
        "rare",
        (("load", 0.0), ("train", 0.5)),
        period=40,
        every=20,
        rare_s=EXTRA_S,
    ),
    "random-50-thread": Entry(
        partial(bursts_thread, 50, True, 4),
        "rare",
        FREE_BOTH,
        period=100,
        drain=12,
        every=50,
        rare_s=EXTRA_S,
        slow=1.5,
    ),
    "dqn": Entry(
        dqn,
        "rare",
        (("learn", 0.0), ("env step", 0.0), ("learn", 0.5)),
        period=10,
        every=10,
        rare_s=0.004,
    ),
    "collects-outside": Entry(
        partial(collects, False), "rare", (("work", 0.0),), period=10, every=10, rare_s=0.008
    ),
    "collects-stage": Entry(
        partial(collects, True),
        "rare",
        (("collect", 0.0), ("work", 0.5)),
        period=10,
        every=10,
        rare_s=0.008,
    ),
    "resets": Entry(
        resets,
        "rare",
        (("env step", 0.5), ("act", 0.0)),
        period=80,
        every=40,
        rare_s=0.0196,
    ),
    "checkpoints": Entry(
        checkpoints,
        "rare",
        (("checkpoint", 0.0), ("train", 0.0)),
        period=40,
        every=40,
        rare_s=0.030,
    ),
    "heavy-tail": Entry(
        heavy_tail,
        "rare",
        (("parse", 0.0), ("train", 0.5)),
        period=100,
        every=20,
        rare_s=0.0066,
        slow=1.5,
    ),
}
