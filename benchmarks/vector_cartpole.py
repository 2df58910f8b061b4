"""How fast does the compiled CartPole step, beside Gymnasium's own vector env and EnvPool?

The engines take turns in one process, with the same random actions, each turn starting with
another one; the ratios are of the two in the same turn. EnvPool is given every thread count of
`POOLS`, one pool at a time so that none is in another's way, and the fastest counts. Each gets
actions of the type it likes; each step's arrays are the caller's to keep, as by default.

    pip install envpool
    python benchmarks/vector_cartpole.py --markdown docs/benchmarks/vector_cartpole.md
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from hotloop.envs.cartpole import CartPoleVectorEnv
from hotloop.loop.figures import Interval, percentile_interval, smooth_median
from tables import table, write_page

SIZES = (8, 64, 1024)
POOLS = {0: "EnvPool, threads of its choice", 1: "EnvPool, 1 thread", 2: "EnvPool, 2 threads"}
TURNS = 30  # for each thread count
TURN_S = 0.02  # what one engine steps in a turn, about
OURS, GYMNASIUM, SYNC = "hotloop", "Gymnasium, vector entry point", "Gymnasium, SyncVectorEnv"
# Ratios wanted at 64 envs.
TARGETS = {GYMNASIUM: 2.0, "EnvPool": 6.0}
Actions = np.ndarray


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--markdown", type=Path)
    chosen = options.parse_args()
    parts = [
        "CartPole-v1, random actions, autoreset in the next step: million env steps per second, "
        f"and the microseconds of one step of all envs; medians over {TURNS} turns of about "
        f"{TURN_S * 1e3:.0f} ms for each thread count of EnvPool. The ratio is hotloop's speed "
        "over that of the engine in the same turn, with its 95% interval."
    ]
    for num_envs in SIZES:
        rates = measure(num_envs)
        parts += [f"## {num_envs} envs", table(*rows(num_envs, rates))]
    parts.append(
        "hotloop's trajectories equal those of SyncVectorEnv to the last bit. Gymnasium's vector "
        "entry point gives rewards in single precision and draws every start from one generator; "
        "EnvPool steps in C++ threads and has starts of its own."
    )
    write_page(chosen.markdown, "CartPole, many at once", parts, "benchmarks/vector_cartpole.py")


def engines(num_envs: int, threads: int) -> dict[str, VectorEnv]:
    import envpool

    built = {
        OURS: CartPoleVectorEnv(num_envs),
        GYMNASIUM: gymnasium.make_vec(
            "CartPole-v1", num_envs, vectorization_mode="vector_entry_point"
        ),
        SYNC: gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode="sync"),
        POOLS[threads]: envpool.make(
            "CartPole-v1", env_type="gymnasium", num_envs=num_envs, num_threads=threads, seed=0
        ),
    }
    for envs in built.values():
        envs.reset()
    return built


def measure(num_envs: int) -> dict[str, np.ndarray]:
    """Env steps per second of every engine in every turn, (rounds, turns); a pool has one round."""
    drawn = np.random.default_rng(0).integers(0, 2, (256, num_envs))
    rates: dict[str, list[list[float]]] = {}
    for threads in POOLS:
        steppers, steps = {}, {}
        for name, envs in engines(num_envs, threads).items():
            kind = np.int32 if name in POOLS.values() else np.int64
            steppers[name] = envs.step, list(drawn.astype(kind))
            steps[name] = calibrate(*steppers[name])
            rates.setdefault(name, []).append([])
        names = list(steppers)
        for turn in range(TURNS):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                seconds = run(*steppers[name], steps[name])
                rates[name][-1].append(num_envs * steps[name] / seconds)
    return {name: np.array(values) for name, values in rates.items()}


def calibrate(step: Callable[[Actions], object], actions: list[Actions]) -> int:
    run(step, actions, 20)  # compiles, starts threads
    return max(int(200 * TURN_S / run(step, actions, 200)), 5)


def run(step: Callable[[Actions], object], actions: list[Actions], steps: int) -> float:
    start = perf_counter()
    for k in range(steps):
        step(actions[k & 255])
    return perf_counter() - start


def rows(num_envs: int, rates: dict[str, np.ndarray]) -> tuple[list[str], list[list[str]]]:
    best = max(POOLS.values(), key=lambda name: float(np.median(rates[name])))
    listed = []
    for name, values in rates.items():
        speed = float(np.median(values))
        cells = [name, f"{speed / 1e6:.2f}", f"{num_envs / speed * 1e6:.1f}", "", ""]
        if name != OURS:
            rounds = [list(POOLS.values()).index(name)] if name in POOLS.values() else slice(None)
            against = ratio(rates[OURS][rounds], values)
            cells[3] = f"{against.value:.1f} [{against.low:.1f}, {against.high:.1f}]"
            target = TARGETS.get("EnvPool" if name == best else name)
            if target is not None and num_envs == 64:
                reached = "reached" if against.low >= target else "missed"
                cells[4] = f"{target:g}: {reached}"
        listed.append(cells)
    return ["engine", "million steps/s", "µs a step", "hotloop is faster by", "target"], listed


def ratio(ours: np.ndarray, theirs: np.ndarray) -> Interval:
    values = (ours / theirs).ravel()
    drawn = np.random.default_rng(0).integers(0, len(values), (2_000, len(values)))
    return percentile_interval(float(smooth_median(values)), smooth_median(values[drawn]))


if __name__ == "__main__":
    main()
