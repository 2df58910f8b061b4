"""How fast is a prioritised replay, beside Tianshou's?

A step of a learner with a replay: 64 transitions are added, 512 are drawn by priority, and theirs
are set anew; before that, the sum tree alone. The same observations for all, which take turns in
one process, in random order. TorchRL's prioritised replay is written in C++ and does not load with
the version of torch that the others have.

    pip install -c constraints.txt tianshou
    OMP_NUM_THREADS=1 python benchmarks/replay.py --write docs/benchmarks/replay.md
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tianshou.data import Batch, PrioritizedVectorReplayBuffer
from tianshou.data.utils.segtree import SegmentTree

from hotloop.ops import draw_by_priority, set_priorities, sum_tree
from hotloop.rollout.replay import PrioritisedReplay, Transitions
from ops import ROUNDS, interleaved, text
from tables import table, write_page

CAPACITY, ADDED, DRAWN, OBS = 100_000, 64, 512, 8
ALPHA, BETA = 0.6, 0.4
Ways = dict[str, Callable[[], Any]]


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--write", type=Path, help="the page to write")
    chosen = options.parse_args()
    parts = [
        f"Microseconds of processor time, median over {ROUNDS} rounds in which the ways take "
        f"turns, with its 95% interval; one thread. {CAPACITY:,} transitions with observations of "
        f"{OBS} numbers; {ADDED} are added, {DRAWN} are drawn and get new priorities. The ratio is "
        "the time of the other over that of hotloop in the same round.",
    ]
    for title, ways in (("The sum tree", trees()), ("A step with the replay", replays())):
        times = interleaved(ways)
        rows = [
            [
                way,
                text(times[way] / 1e3),
                "" if way == "hotloop" else text(times[way] / times["hotloop"]),
            ]
            for way in ways
        ]
        parts += [f"## {title}", table(["", "µs", "over hotloop"], rows)]
    write_page(chosen.write, "The prioritised replay", parts, "benchmarks/replay.py")


def trees() -> Ways:
    """Draw 512 items by priority, and set theirs anew."""
    rng = np.random.default_rng(0)
    priority = rng.exponential(size=CAPACITY)
    ours, theirs, plain = sum_tree(CAPACITY), SegmentTree(CAPACITY), PlainTree(CAPACITY)
    set_priorities(ours, np.arange(CAPACITY), priority)
    theirs[np.arange(CAPACITY)] = priority
    plain.set(np.arange(CAPACITY), priority)
    new = rng.exponential(size=DRAWN)

    def hotloop() -> None:
        set_priorities(ours, draw_by_priority(ours, rng.random(DRAWN)), new)

    def numpy() -> None:
        plain.set(plain.draw(rng.random(DRAWN)), new)

    def tianshou() -> None:
        theirs[theirs.get_prefix_sum_idx(rng.random(DRAWN) * theirs.reduce())] = new

    uniform = rng.random(DRAWN)
    expected = draw_by_priority(ours, uniform)
    np.testing.assert_array_equal(plain.draw(uniform), expected)
    return {"hotloop": hotloop, "NumPy": numpy, "Tianshou": tianshou}


class PlainTree:
    """A sum tree in NumPy: level by level, for all items at once."""

    def __init__(self, capacity: int) -> None:
        self.half = 1 << (capacity - 1).bit_length()
        self.tree = np.zeros(2 * self.half)

    def set(self, index: np.ndarray, priority: np.ndarray) -> None:
        node = self.half + index
        self.tree[node] = priority
        while node[0] > 1:
            node = np.unique(node // 2)
            self.tree[node] = self.tree[2 * node] + self.tree[2 * node + 1]

    def draw(self, uniform: np.ndarray) -> np.ndarray:
        rest, node = uniform * self.tree[1], np.ones(len(uniform), np.int64)
        while node[0] < self.half:
            left = self.tree[2 * node]
            right = (rest >= left) & (self.tree[2 * node + 1] > 0)
            rest -= np.where(right, left, 0)
            node = 2 * node + right
        return node - self.half


def replays() -> Ways:
    """Add 64 transitions, draw 512, and set their errors."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(ADDED, OBS)).astype(np.float32)
    action, reward = np.zeros(ADDED, np.int64), np.ones(ADDED, np.float32)
    errors = rng.exponential(size=DRAWN)
    ours = PrioritisedReplay(CAPACITY, exponent=ALPHA)
    transitions = Transitions(obs, action, reward, reward, obs)
    # Of 64 envs, so that it adds 64 transitions at once.
    theirs = PrioritizedVectorReplayBuffer(CAPACITY, ADDED, alpha=ALPHA, beta=BETA)
    over = np.zeros(ADDED, np.bool_)
    batch = Batch(
        obs=obs, act=action, rew=reward, terminated=over, truncated=over, obs_next=obs, info={}
    )

    def hotloop() -> None:
        ours.add(transitions, errors[:ADDED])
        drawn = ours.draw(DRAWN, rng, beta=BETA)
        ours.set_errors(drawn.number, errors)

    def tianshou() -> None:
        theirs.add(batch)
        _, index = theirs.sample(DRAWN)
        theirs.update_weight(index, errors)

    ways: Ways = {"hotloop": hotloop, "Tianshou": tianshou}
    for _ in range(CAPACITY // ADDED + 1):
        ours.add(transitions, errors[:ADDED])
        theirs.add(batch)
    return ways


if __name__ == "__main__":
    main()
