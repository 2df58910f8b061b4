"""Loops that do one thing after the other, and nothing rare: the ones with the plainest truth."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hotloop.loop import Loop, stage
from league.entry import Draws, Entry, Fixes, burn, cycle, python_work


@contextmanager
def python(fixes: Fixes, _draws: Draws) -> Iterator[Loop]:
    """Load 1 ms, transform 2 ms, train 3 ms; all in Python."""
    load = stage("load", lambda: python_work(fixes.count("load", 8)), effect="pure")
    transform = stage(
        "transform", lambda _x: python_work(fixes.count("transform", 16)), effect="pure"
    )
    train = stage("train", lambda _x: python_work(fixes.count("train", 24)), effect="pure")

    def body() -> int:
        train(transform(load()))
        return 1

    yield Loop(body=body, name="serial-python")


@contextmanager
def arrays(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """Sort, multiply and reduce arrays that fit into the cache."""
    rng = np.random.default_rng(draws.seed())
    values, square = rng.normal(size=(8, 15_000)), rng.normal(size=(160, 160)) / 13
    sorted_values = np.sort(values, axis=1)

    def sort() -> np.ndarray:
        count = fixes.count("sort", 8)
        return np.sort(values[:count], axis=1) if count else sorted_values

    def multiply() -> np.ndarray:
        out = square
        for _ in range(fixes.count("multiply", 8)):
            out = out @ square
        return out

    def reduce(table: np.ndarray) -> float:
        return float(sum(np.exp(-np.abs(row)).sum() for row in table))

    staged = [stage(f.__name__, f, effect="pure") for f in (sort, multiply, reduce)]

    def body() -> int:
        staged[1]()
        staged[2](staged[0]())
        return 1

    yield Loop(body=body, name="serial-arrays")


@contextmanager
def mixed(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """Read 0.8 ms, decode in Python, standardise with NumPy, and learn a state."""
    rng = np.random.default_rng(draws.seed())
    image, weights = rng.normal(size=(64, 512)), np.zeros(512)
    # Both versions hand on the same arrays: how fast learning is depends on where they begin.
    batches = cycle([image + 0.01 for _ in range(8)])

    def read() -> None:
        burn(0.0008 * fixes["read"])

    def decode() -> np.ndarray:
        batch: np.ndarray = batches()
        if fixes["decode"]:
            python_work(fixes.count("decode", 8))
            np.add(image, 0.01, out=batch)
        return batch

    def learn(batch: np.ndarray) -> None:
        for _ in range(fixes.count("learn", 64)):
            weights[:] -= 1e-3 * ((batch @ weights - 1.0) @ batch)

    read_stage = stage("read", read, effect="pure", kind="io")
    decode_stage = stage("decode", decode, effect="pure")
    learn_stage = stage("learn", learn, effect="stateful")

    def body() -> int:
        read_stage()
        learn_stage(decode_stage())
        return 1

    yield Loop(body=body, name="serial-mixed", state=[weights])


@contextmanager
def nothing(fixes: Fixes, _draws: Draws) -> Iterator[Loop]:
    """Beside real work, a stage that does nothing, and work that is no stage."""
    idle = stage("nothing", lambda: None, effect="pure")
    work = stage("work", lambda: python_work(fixes.count("work", 12)), effect="pure")

    def body() -> int:
        idle()
        work()
        python_work(8)
        return 1

    yield Loop(body=body, name="serial-nothing")


@contextmanager
def many_calls(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """Thirty-two short calls of two stages, then one long one, as a rollout and its update."""
    obs = np.zeros(16)
    rng = np.random.default_rng(draws.seed())
    ready = cycle([rng.normal(size=16) for _ in range(64)])

    def act(_obs: np.ndarray) -> int:
        return 0 if not fixes["act"] else python_work(1) & 1

    def step(action: int) -> np.ndarray:
        if not fixes["step"]:
            return ready()  # type: ignore[no-any-return]
        python_work(fixes.count("step", 2))
        return np.tanh(obs + action)

    act_stage, step_stage = stage("act", act, effect="pure"), stage("step", step, effect="pure")
    update = stage("update", lambda: python_work(fixes.count("update", 40)), effect="pure")

    def body() -> int:
        seen = obs
        for _ in range(32):
            seen = step_stage(act_stage(seen))
        update()
        return 32

    yield Loop(body=body, name="serial-many-calls", unit="env steps")


@contextmanager
def unequal(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """Batches of 40 to 400 samples, at random; loading and training cost by the size."""
    ready = [np.zeros(round(40 * 10 ** ((k + 0.5) / 64)), np.int8) for k in range(64)]

    def load() -> np.ndarray:
        u = draws()
        if not fixes["load"]:
            return ready[int(64 * u)]
        size = round(40 * 10**u)
        burn(6e-6 * size * fixes["load"])
        return np.zeros(size, np.int8)

    def train(batch: np.ndarray) -> None:
        burn(12e-6 * len(batch) * fixes["train"])

    load_stage = stage("load", load, effect="pure")
    train_stage = stage("train", train, effect="pure")

    def body() -> int:
        batch = load_stage()
        train_stage(batch)
        burn(0.0006)
        return len(batch)

    yield Loop(body=body, name="serial-unequal", unit="samples")


LOOPS = {
    "serial-python": Entry(python, "steady", (("transform", 0.0), ("train", 0.5), ("train", 0.25))),
    "serial-arrays": Entry(arrays, "steady", (("sort", 0.0), ("multiply", 0.5))),
    "serial-mixed": Entry(mixed, "steady", (("decode", 0.0), ("learn", 0.5))),
    "serial-nothing": Entry(nothing, "steady", (("nothing", 0.0), ("work", 0.5))),
    "serial-many-calls": Entry(many_calls, "steady", (("step", 0.0), ("update", 0.5))),
    "serial-unequal": Entry(unequal, "steady", (("load", 0.0), ("train", 0.5)), period=64),
}
