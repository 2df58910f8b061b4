"""What does each ingredient of Ape-X bring? It is left out, and everything else stays.

CartPole-v1 to a mean of 475 by the rule of `learning.py`, every training in a process of its own;
the variants take turns on every seed. Each training is a line of the raw results, and a run that
was broken off goes on.

    python benchmarks/apex_ablations.py --minutes 20 --markdown docs/benchmarks/apex_ablations.md
"""

import argparse
import os
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from league.process import append, read
from learning import SEEDS, Job, version_of
from learning_settings import OWN_VENVS, TRAININGS
from tables import table, write_page

RESULTS = Path("docs/benchmarks/apex_ablations.jsonl")
ENV, SYSTEM = "CartPole-v1", "Ape-X"
# By the name of a row, what is set otherwise.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "the target network chooses as well (not double)": {"double": False},
    "no value apart from advantages (not dueling)": {"dueling": False},
    "returns of one step": {"n_step": 1},
    "all transitions drawn alike (α = 0)": {"priority_exponent": 0.0},
    "no importance weights (β = 0)": {"importance_exponent": 0.0},
    "the same ε in all envs": {"epsilon_spread": 0.0},
    "half as many draws a step": {"replay_ratio": 2.0},
    "twice as many": {"replay_ratio": 8.0},
    "one actor": {"num_workers": 1},
    "the policy at the head": {"policy_at": "head"},
    "the policy in an inference server": {"policy_at": "server"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    version = version_of(SYSTEM, OWN_VENVS)
    begin = time.monotonic()
    for seed in SEEDS:
        for name, changes in VARIANTS.items():
            if any((line["variant"], line["seed"]) == (name, seed) for line in newest(version)):
                continue
            if time.monotonic() - begin > 60 * options.minutes:
                break
            job = Job(ENV, SYSTEM, seed, {**TRAININGS[ENV][SYSTEM], **changes})
            outcome = job.run(OWN_VENVS)
            line = {"variant": name, "seed": seed, "settings": dict(changes), **outcome}
            append(RESULTS, version, line)
            print(name, seed, outcome["solved"], outcome["env_steps"], outcome["seconds"])
    if options.markdown is not None:
        write_page(
            options.markdown,
            "Ape-X without each of its ingredients",
            page(newest(version)),
            "benchmarks/apex_ablations.py",
        )


def newest(version: str) -> list[dict[str, Any]]:
    """The results by the code of now."""
    return [line for line in read(RESULTS) if line["version"] == version]


def page(lines: list[dict[str, Any]]) -> list[str]:
    rows = []
    for name in VARIANTS:
        found = [line for line in lines if line["variant"] == name]
        solved = [line for line in found if line["solved"]]
        if not found:
            continue
        rows.append(
            [
                name,
                f"{len(solved)} of {len(found)}",
                _range([line["env_steps"] / 1e3 for line in solved], "k"),
                _range([line["seconds"] for line in solved], " s"),
            ]
        )
    return [
        f"{ENV} to a mean of 475 over 20 greedy episodes, twice in a row, within "
        f"{TRAININGS[ENV][SYSTEM]['total_steps']:,} env steps. Medians and ranges over the seeds "
        "that solved it; where some did not, they are of the better ones.",
        table(["variant", "solved", "env steps", "time"], rows),
    ]


def _range(values: list[float], unit: str) -> str:
    if not values:
        return "–"
    return f"{median(values):.3g}{unit} ({min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    main()
