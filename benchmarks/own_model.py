"""Is a model that you write in substeps as fast as the same model in plain torch?

Three models: the epidemic of examples/14_sir.py, opinions that move to the neighbours' mean, and
an infection among strangers who are drawn anew every step. Each is written in four ways on the
same network, see own_models.py. All run in this process and take turns, a ratio is of two ways in
the same turn, and the order of a turn is drawn.

    python benchmarks/own_model.py --markdown docs/benchmarks/own_model.md
    python benchmarks/own_model.py --sizes 37518 --models sir --rounds 20
"""

import argparse
import gc
import os
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from hotloop.loop.figures import Interval, percentile_interval, smooth_median
from own_models import MODELS, Way
from tables import table, write_page

SIZES = (37_518, 1_000_000)
STEPS, RESAMPLES = 30, 2_000
FASTER = 3  # so many times the turns below 100,000 agents
MOST = {37_518: 1.0, 1_000_000: 0.85}
OURS, TORCH = "hotloop", "plain torch"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="agents, by commas")
    parser.add_argument("--models", default=",".join(MODELS), help="by commas")
    parser.add_argument("--threads", default="1,2", help="thread counts of torch, by commas")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each way")
    parser.add_argument("--markdown", type=Path, help="write the page here")
    options = parser.parse_args()
    parts = [INTRODUCTION.format(most=options.rounds * FASTER, rounds=options.rounds, steps=STEPS)]
    for name in options.models.split(","):
        rows = []
        for size in map(int, options.sizes.split(",")):
            makers = MODELS[name](size)
            for threads in map(int, options.threads.split(",")):
                torch.set_num_threads(threads)
                # As users do: one thread asked for, or nothing said and torch's own number.
                ways = {w: make(1 if threads == 1 else None) for w, make in makers.items()}
                rounds = options.rounds * (FASTER if size < 100_000 else 1)
                rows.append(row(size, threads, ways, in_turns(ways, rounds)))
                print(name, *rows[-1], sep=" | ", flush=True)
        parts += [f"## {TITLES[name]}", table([*HEADER, *makers, "over torch", "wanted"], rows)]
    load = ", ".join(f"{share:.1f}" for share in os.getloadavg())
    parts.append(f"Load of the machine at the end (1, 5, 15 minutes): {load}.")
    write_page(options.markdown, "A model of your own", parts, "benchmarks/own_model.py")


def in_turns(ways: Mapping[str, Way], rounds: int) -> dict[str, np.ndarray]:
    """Milliseconds a step of each way in each turn: (rounds,)."""
    names, times = list(ways), {name: np.zeros(rounds) for name in ways}
    for way in ways.values():
        way.step(2)
    gc.disable()
    rng = np.random.default_rng(0)
    for turn in range(rounds):
        # What a way leaves behind, such as threads that spin, is not always the next one's burden.
        for name in rng.permutation(names).tolist():
            way = ways[name]
            way.reset()
            begin = perf_counter()
            way.step(STEPS)
            times[name][turn] = (perf_counter() - begin) * 1e3 / STEPS
    gc.enable()
    return times


def row(
    size: int, threads: int, ways: Mapping[str, Way], times: Mapping[str, np.ndarray]
) -> list[str]:
    ratio = median(times[OURS] / times[TORCH])
    most = MOST.get(size, 1.0)
    verdict = "reached" if ratio.high <= most else "missed" if ratio.low > most else "not decided"
    cells = [f"{median(times[way]).value:.3g} ({ways[way].total():.4g})" for way in ways]
    return [
        f"{size:,}", str(threads), *cells,
        f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]", f"{most:g}: {verdict}",
    ]  # fmt: skip


def median(values: np.ndarray) -> Interval:
    drawn = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    return percentile_interval(float(smooth_median(values)), smooth_median(values[drawn]))


HEADER = ("agents", "threads")
TITLES = {
    "sir": "The epidemic of examples/14_sir.py",
    "opinions": "Opinions: float messages along the same ties",
    "strangers": "An infection among strangers: contacts drawn anew every step",
}
INTRODUCTION = """\
Milliseconds a step, medians of {rounds} turns of {steps} steps from the start ({most} turns below \
100,000 agents), and in brackets what came out (cases in all; for opinions their spread at the \
end), which the ways have in common up to chance. A ratio is of the same turn, with its 95% \
interval. Threads are those of torch; the compiled loop and NumPy have one. `hotloop` is \
`Executor(MODEL).runner.step(n)`: its draws belong to seed, step and agent and are the same in \
every order, its state is checked after each substep."""


if __name__ == "__main__":
    main()
