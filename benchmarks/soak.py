"""Does a pool of workers lose or double a transition when they are killed at random?

Every env numbers its steps, and every number that comes is checked: each env's next is the last
plus one, or the first of a new episode. Batches are half of the envs, first come first served.
Now and then a worker is killed (SIGKILL); its envs' episodes come back truncated, marked, and
count anew. The driver's memory is looked at all along.

    python benchmarks/soak.py --steps 10_000_000 --markdown docs/benchmarks/soak.md
"""

import argparse
import multiprocessing
import os
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from hotloop.envs.process import ProcessVectorEnv
from hotloop.testing.synthetic import Ledger, SyntheticSettings, read_counters, synthetic_fns
from hotloop.testing.synthetic.counters import Counters


@dataclass
class Soaked:
    """What came of it. Raises: TargetError at the first transition lost or doubled."""

    steps: int = 0
    transitions: int = 0
    kills: int = 0
    lost_episodes: int = 0
    seconds: float = 0.0
    memory_mib: list[float] = field(default_factory=list)
    """Of the driver: when it had warmed up, then at every tenth of the way."""
    descriptors: list[int] = field(default_factory=list)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=10_000_000)
    options.add_argument("--num-envs", type=int, default=64)
    options.add_argument("--num-workers", type=int, default=2)
    options.add_argument("--kill-every", type=int, default=100_000, help="steps, on average")
    options.add_argument("--markdown", type=Path)
    chosen = options.parse_args()
    soaked = soak(chosen.steps, chosen.num_envs, chosen.num_workers, chosen.kill_every)
    from tables import table, write_page  # beside this file, when it is run

    start, middle, end = (soaked.memory_mib[k] for k in (0, len(soaked.memory_mib) // 2, -1))
    rows = [
        ["env steps", f"{soaked.steps:,}"],
        ["transitions whose numbers were checked", f"{soaked.transitions:,}"],
        ["transitions lost or doubled", "0"],
        ["workers killed", f"{soaked.kills:,}"],
        ["episodes cut by that, each told once", f"{soaked.lost_episodes:,}"],
        ["driver's memory at the start, middle, end, MiB", f"{start:.1f}, {middle:.1f}, {end:.1f}"],
        ["descriptors at the start, end", f"{soaked.descriptors[0]}, {soaked.descriptors[-1]}"],
        ["env steps per second, checks included", f"{soaked.steps / soaked.seconds:,.0f}"],
    ]
    parts = [
        f"{chosen.num_envs} synthetic envs, episodes of 5 to 60 steps, {chosen.num_workers} "
        f"workers, batches of {chosen.num_envs // 2}; a worker is killed every "
        f"{chosen.kill_every:,} steps on average.",
        table(["", ""], rows),
    ]
    write_page(chosen.markdown, "Soak: random kills", parts, "benchmarks/soak.py")


def soak(steps: int, num_envs: int, num_workers: int, kill_every: int, seed: int = 0) -> Soaked:
    """Step for so long, killing workers at random, checking every row."""
    draw = random.Random(seed)
    soaked, ledger, process = Soaked(), Ledger(), psutil.Process()
    envs = ProcessVectorEnv(
        synthetic_fns(num_envs, SyntheticSettings(episode_steps=(5, 60))),
        num_workers=num_workers,
        batch_size=num_envs // 2,
        restarts=steps,
    )
    over = np.zeros(num_envs, np.bool_)
    actions = np.zeros(num_envs, np.int64)
    start = time.perf_counter()
    try:
        envs.async_reset(seed=seed)
        while soaked.steps < steps:
            obs, _, terminated, truncated, infos = envs.recv()
            ids = infos["env_id"]
            soaked.lost_episodes += _enter(ledger, read_counters(obs), infos, over)
            over[ids] = terminated | truncated
            soaked.steps += len(ids)
            envs.send(actions[: len(ids)], ids)
            if draw.random() * kill_every < len(ids):
                worker = draw.choice(multiprocessing.active_children())
                os.kill(worker.pid, signal.SIGKILL)
                soaked.kills += 1
            if soaked.steps * 10 >= steps * max(1, len(soaked.memory_mib)):
                soaked.memory_mib.append(process.memory_info().rss / 2**20)
                soaked.descriptors.append(process.num_fds())
    finally:
        envs.close()
    soaked.transitions = ledger.transitions
    soaked.seconds = time.perf_counter() - start
    return soaked


def _enter(ledger: Ledger, counters: Counters, infos: dict, over: np.ndarray) -> int:
    """Check one batch; returns how many of its rows tell of an episode that a kill cut."""
    ids = infos["env_id"]
    if counters.env_id.tolist() != ids.tolist():
        raise AssertionError(f"rows of envs {ids.tolist()} are of {counters.env_id.tolist()}")
    told = infos.get("_worker_restarted", np.zeros(len(ids), np.bool_))
    # An env whose episode was over when its worker was killed lost nothing, and tells nothing.
    fresh = over[ids] & (counters.total == 0)
    for env_id in ids[told | fresh].tolist():
        ledger.restarted(env_id)
    ledger.add(Counters(*(column[~told] for column in counters)))
    return int(told.sum())


if __name__ == "__main__":
    main()
