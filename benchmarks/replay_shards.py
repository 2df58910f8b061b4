"""What do shards of a replay cost a learner, and what does drawing ahead bring?

A step of a learner with a replay: a batch is drawn by priority, an update takes its time, and the
errors are set anew; every fourth step, transitions are added. The replay lies in this process, in
one or two processes, or in one or two Ray actors, with none, one, two or four batches drawn ahead.
They take turns in one process, in random order.

    OMP_NUM_THREADS=1 python benchmarks/replay_shards.py --write docs/benchmarks/replay_shards.md
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import ray

from hotloop.loop.figures import percentile_interval, smooth_median
from hotloop.rollout.replay import PrioritisedReplay, Replay, Transitions
from hotloop.rollout.shard import ShardSettings
from hotloop.rollout.shard_pools import shard_pool
from hotloop.rollout.shards import ShardedReplay
from tables import table, write_page

DRAWN, ADDED, ADD_EVERY = 128, 128, 4
EXPONENT, BETA = 0.6, 0.4
AHEAD = (0, 1, 2, 4)
WHERE = (("process", 1), ("process", 2), ("ray", 1), ("ray", 2))
Steps = Callable[[int], float]


class Payload(NamedTuple):
    name: str
    obs: np.ndarray  # (ADDED, ...)
    capacity: int
    update_s: float  # that a learner computes for a batch
    rounds: int
    steps: int  # of one way's turn

    @property
    def row_bytes(self) -> int:
        return 2 * self.obs[0].nbytes + 16


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--write", type=Path, help="the page to write")
    options.add_argument("--rounds", type=float, default=1.0, help="so many times as many rounds")
    chosen = options.parse_args()
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    rng = np.random.default_rng(0)
    payloads = (
        Payload("4 floats", rng.random((ADDED, 4), np.float32), 100_000, 1e-3, 16, 50),
        Payload(
            "4 x 84 x 84 bytes", rng.integers(0, 255, (ADDED, 4, 84, 84), np.uint8), 4_000, 20e-3,
            8, 8,
        ),
    )  # fmt: skip
    parts = [
        "Draws and updates a second, the median over rounds in which the ways take turns, with its "
        f"95% interval. {DRAWN} transitions are drawn by priority and get new errors; every "
        f"{ADD_EVERY} steps, {ADDED} are added. The update computes for the time that stands above "
        "each table, on one thread; the last column is the rate over that of the replay in this "
        "process, in the same round. On a machine with two cores, a learner and a shard have one "
        "core each; a second shard, and Ray's own processes, share them.",
    ]
    for payload in payloads:
        rates = measured(payload, round(chosen.rounds * payload.rounds))
        here = rates["here", 0, 0]
        rows = [
            [where, str(shards or ""), str(ahead), text(rate, ".0f"), text(rate / here, ".2f")]
            for (where, shards, ahead), rate in rates.items()
        ]
        parts += [
            f"## Observations of {payload.name}, {payload.capacity:,} transitions, an update of "
            f"{payload.update_s * 1e3:g} ms",
            table(["replay", "shards", "drawn ahead", "steps/s", "over here"], rows),
        ]
    write_page(chosen.write, "A replay in shards", parts, "benchmarks/replay_shards.py")
    ray.shutdown()


def measured(payload: Payload, rounds: int) -> dict[tuple[str, int, int], np.ndarray]:
    """Steps a second in each round, by where the replay lies, its shards, and batches ahead."""
    rng = np.random.default_rng(0)
    ways: list[tuple[str, int, int]] = [("here", 0, 0)]
    ways += [(where, shards, ahead) for where, shards in WHERE for ahead in AHEAD]
    rates = {way: np.empty(rounds) for way in ways}
    replays = {way: made(payload, *way) for way in ways}
    for k in range(rounds):
        for number in rng.permutation(len(ways)):
            way = ways[number]
            rates[way][k] = payload.steps / turn(replays[way], payload, rng)
    for replay in replays.values():
        replay.close()
    return rates


def made(payload: Payload, where: str, shards: int, ahead: int) -> Replay:
    """A full replay."""
    replay: Replay
    if not shards:
        replay = PrioritisedReplay(payload.capacity, exponent=EXPONENT)
    else:
        capacity = payload.capacity // shards
        settings = ShardSettings(capacity, EXPONENT, capacity * payload.row_bytes)
        replay = ShardedReplay(shard_pool(where, settings), shards, settings, prefetch=ahead)
    rng = np.random.default_rng(1)
    for _ in range(payload.capacity // ADDED + 1):
        replay.add(some(payload), rng.exponential(size=ADDED))
    replay.draw(DRAWN, rng, beta=BETA)
    return replay


def turn(replay: Replay, payload: Payload, rng: np.random.Generator) -> float:
    """Seconds of a turn; its first steps, in which shards get into step, are not counted."""
    start = 0.0
    for step in range(-3, payload.steps):
        if step == 0:
            start = time.perf_counter()
        if step % ADD_EVERY == 0:
            replay.add(some(payload), rng.exponential(size=ADDED))
        drawn = replay.draw(DRAWN, rng, beta=BETA)
        assert drawn is not None
        compute(payload.update_s)
        replay.set_errors(drawn.number, rng.exponential(size=DRAWN))
    return time.perf_counter() - start


def some(payload: Payload) -> Transitions:
    number = np.zeros(ADDED, np.float32)
    return Transitions(payload.obs, number.astype(np.int64), number, number, payload.obs)


def compute(seconds: float) -> None:
    """Use the processor for so long, by its own clock: a busy machine makes it take longer."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def text(values: np.ndarray, form: str) -> str:
    """The median over rounds with its interval."""
    picked = np.random.default_rng(0).integers(0, len(values), (2_000, len(values)))
    of = percentile_interval(float(smooth_median(values)), smooth_median(values[picked]))
    return f"{of.value:{form}} [{of.low:{form}}, {of.high:{form}}]"


if __name__ == "__main__":
    main()
