"""How often do intervals of gains hold the truth where single stalls decide what a mean is?

Blocks of arms are drawn: all arms in which nothing is changed take as long, two others take less by
a known gain, and now and then the machine stalls any of them, seldom or often, for shortly or for
long. By how well arms that are the same are known to be so, it is counted how often the interval of
a gain holds the planted one. `hotloop simplify` gives no verdict above the bound that is printed.

    OMP_NUM_THREADS=1 python benchmarks/stalled_arms.py --write docs/benchmarks/stalled_arms.md
"""

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np

from hotloop.simplify.aa import EQUIVALENCE, VAGUE, differs
from hotloop.simplify.arm_names import BASELINE, aa_name, free_name
from hotloop.simplify.estimate import Samples
from hotloop.simplify.verdict_rows import SIGNIFICANT
from tables import table, write_page

GAINS = {free_name("large"): 0.6, free_name("small"): 0.04}
SAME = [BASELINE, aa_name(1), aa_name(2)]
ARMS = [*SAME, *GAINS]
WORTH = 0.03
EDGES = (0.0, 0.05, 0.15, 0.3, VAGUE, 1.0, 2.0, np.inf)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--write", type=Path, help="the page to write")
    options.add_argument("--experiments", type=int, default=6_000)
    chosen = options.parse_args()
    rng = np.random.default_rng(0)
    found = [each for _ in range(chosen.experiments) if (each := experiment(rng)) is not None]
    widths = np.array([width for width, _ in found])
    held = np.array([gains for _, gains in found])  # (experiments, gains)
    rows = []
    for low, high in pairwise(EDGES):
        those = (widths >= low) & (widths < high)
        shares = [f"{share:.2f}" for share in held[those].mean(axis=0)]
        within = f"{low:.0%} to {high:.0%}" if np.isfinite(high) else f"more than {low:.0%}"
        rows.append([within, f"{those.sum():,}", *shares])
    parts = [
        f"{chosen.experiments:,} drawn experiments of 8 to 29 rounds; those are left out in which "
        "equal arms are known to differ. Stalls are drawn with an exponential length, so that a "
        "rare long one often is in no block: no interval can hold what was not seen.",
        table(
            [
                "equal arms are the same within",
                "experiments",
                *(f"interval holds the gain of {gain:.0%}" for gain in GAINS.values()),
            ],
            rows,
        ),
        f"`hotloop simplify` gives no verdict above {VAGUE:.0%}.",
    ]
    title = "Intervals of gains on a machine that stalls"
    write_page(chosen.write, title, parts, "benchmarks/stalled_arms.py")


def experiment(rng: np.random.Generator) -> tuple[float, list[bool]] | None:
    """The width of the A/A, and whether each gain is held; None where equal arms differ."""
    rounds = int(rng.integers(8, 30))
    often, length = 10 ** rng.uniform(-1.5, -0.2), 10 ** rng.uniform(-2, 1)
    took = np.ones((rounds, len(ARMS)))
    for arm, gain in GAINS.items():
        took[:, ARMS.index(arm)] = 1 - gain
    # Each block is stalled as often as its time says.
    stalled = rng.poisson(often * took) * rng.exponential(length, took.shape)
    samples = Samples((took + stalled) * 1e6, np.ones_like(took), ARMS, SAME)
    confidence = 1 - SIGNIFICANT / len(SAME[1:])
    same = [samples.same_gain(name, confidence) for name in SAME[1:]]
    if any(differs(gain, EQUIVALENCE * WORTH) for gain in same):
        return None
    means = {arm: samples.means([BASELINE, arm]).gain(arm, BASELINE) for arm in GAINS}
    return max(gain.half_width for gain in same), [GAINS[arm] in means[arm] for arm in GAINS]


if __name__ == "__main__":
    main()
