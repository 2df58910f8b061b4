"""What does double buffering gain where envs and policy take equally long?

Sixteen envs sleep 1 ms a step in two workers, 8 ms for all; a policy works as long. In the first
row its work grows with the batch, as a large network's does, and half a batch takes half the time;
in the second it does not, and calling it twice costs as much as was hidden. Both ways take turns
in one process.

    python benchmarks/double_buffering.py --markdown docs/benchmarks/double_buffering.md
"""

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.envs import ProcessVectorEnv
from hotloop.loop.clock import RealClock
from hotloop.loop.figures import percentile_interval, resampled_rows
from hotloop.rollout import StepCollector
from hotloop.testing.synthetic import Duration, SyntheticEnv, SyntheticSettings
from tables import table, write_page

NUM_ENVS = 16
ENV_S = 1e-3
STEP_S = NUM_ENVS / 2 * ENV_S  # of all envs, in two workers
FRAGMENT_STEPS = 32
ROUNDS = 15


def policy(work_s_per_env: float, work_s_per_call: float, obs: Any) -> Any:
    RealClock().burn_ns((work_s_per_env * len(obs) + work_s_per_call) * 1e9)
    return np.zeros(len(obs), np.int64)


def collector(double_buffer: Any, acting: Any) -> StepCollector:
    settings = SyntheticSettings(step=Duration(ENV_S, precise=False))
    envs = ProcessVectorEnv([partial(SyntheticEnv, settings)] * NUM_ENVS, num_workers=2, splits=2)
    return StepCollector(
        envs, acting, fragment_steps=FRAGMENT_STEPS, double_buffer=double_buffer, seed=0
    )


def measure(acting: Any) -> tuple[np.ndarray, np.ndarray, str]:
    """Seconds of a fragment each way, (rounds,), and what "auto" says."""
    single, double, auto = (collector(way, acting) for way in (False, True, "auto"))
    seconds: tuple[list[float], list[float]] = ([], [])
    try:
        while auto.double_buffer is None:
            auto.collect()
        for each in (single, double):
            each.collect()
        for k in range(ROUNDS):
            order = (0, 1) if k % 2 else (1, 0)
            for way in order:
                start = time.perf_counter()
                (single, double)[way].collect()
                seconds[way].append(time.perf_counter() - start)
    finally:
        for each in (single, double, auto):
            each.envs.close()
    return np.array(seconds[0]), np.array(seconds[1]), auto.reason


def row(name: str, acting: Any) -> list[str]:
    single, double, reason = measure(acting)
    rows = resampled_rows(len(single), 2000, np.random.default_rng(0))
    ratio = percentile_interval(
        float(np.median(single / double)), np.median((single / double)[rows], axis=1)
    )
    rate = NUM_ENVS * FRAGMENT_STEPS
    return [
        name,
        f"{rate / np.median(single):,.0f}",
        f"{rate / np.median(double):,.0f}",
        f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]",
        reason,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    rows = [
        row("grows with the batch", partial(policy, STEP_S / NUM_ENVS, 0.0)),
        row("is the same for any batch", partial(policy, 0.0, STEP_S)),
    ]
    header = ["the policy's time", "SPS, single", "SPS, double", "double / single", '"auto" says']
    write_page(
        options.markdown,
        "Double buffering",
        [
            f"{NUM_ENVS} envs that sleep {ENV_S * 1e3:g} ms a step, in two workers; a policy that "
            f"works {STEP_S * 1e3:g} ms for all of them. At best, twice as fast. Medians of "
            f"{ROUNDS} fragments of {FRAGMENT_STEPS} steps each way, taken in turns.",
            table(header, rows),
        ],
        "python benchmarks/double_buffering.py",
    )


if __name__ == "__main__":
    main()
