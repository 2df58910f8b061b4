"""How often the gate is wrong: 10,000 experiments drawn from recorded launches.

    python benchmarks/gate_errors.py --write docs/benchmarks/gate.md

An experiment takes launches of one loop beside one kind of neighbours as they followed each other
in docs/benchmarks/gate_blocks.jsonl, from a random one on. Both sides ran the same code: which of
them is called B is drawn anew for each launch, and B's times are made longer by the planted
regression. The gate looks after each launch, as it does in use, until it knows or the budget ends.
"""

import argparse
import collections
import multiprocessing
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gate_blocks import RESULTS
from gate_noise import BOUND_BY_PROCESSOR, OTHERS
from gate_runs import RESULTS as RUNS
from hotloop.repeat.estimate import Looks
from hotloop.repeat.gate import (
    BLOCK_ALPHA,
    BLOCKED,
    CANNOT_SAY,
    PASS_ALPHA,
    PASSED,
    GateSettings,
    decision,
)
from league.process import read
from tables import table, write_page

EXPERIMENTS = 10_000
BUDGET_S = GateSettings.budget
WORSE = 0.03
PLANTED = (0.0, 0.03)


def launches() -> dict[tuple[str, str], list[tuple[float, float]]]:
    """By loop and neighbours: the logarithm of one side's time over the other's, and seconds."""
    found = collections.defaultdict(list)
    for line in read(RESULTS):
        side, own, _, iterations = np.array(line["blocks"], float).T
        a, b = (own[side == k].sum() / iterations[side == k].sum() for k in (0, 1))
        ratio = float(np.log(b / a))
        found[line["loop"], line["noise"]].append((ratio, line["seconds"]))
    return dict(found)


def experiment(
    recorded: list[tuple[float, float]], planted: float, rng: np.random.Generator
) -> tuple[str, float]:
    """One use of the gate: its answer, and the seconds that it took."""
    looks = Looks(BLOCK_ALPHA, PASS_ALPHA)
    first, passed_s = int(rng.integers(len(recorded))), 0.0
    ratios: list[float] = []
    while True:
        ratio, seconds = recorded[(first + len(ratios)) % len(recorded)]
        ratios.append(ratio * rng.choice((-1, 1)) + np.log1p(planted))
        passed_s += seconds
        last = passed_s + passed_s / len(ratios) > BUDGET_S
        look = looks.look(np.array(ratios), 1.0 if last else passed_s / BUDGET_S)
        found = CANNOT_SAY if look is None else decision(look, WORSE)
        if found != CANNOT_SAY or last:
            return found, passed_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiments", type=int, default=EXPERIMENTS)
    parser.add_argument("--write", type=Path, default=None)
    options = parser.parse_args()
    recorded = launches()
    count = sum(map(len, recorded.values()))
    hours = sum(seconds for many in recorded.values() for _, seconds in many) / 3600
    parts = [
        f"{count} launches of two processes of the same code, {hours:.1f} hours, recorded beside "
        f"four kinds of neighbours. `--worse 3%`, `--budget {BUDGET_S:g}`.",
        "## Loops that are bound by the processor",
        errors_table(recorded, BOUND_BY_PROCESSOR, options.experiments),
        "## A loop that waits for half of its time, and a whole command",
        errors_table(recorded, OTHERS, max(1, options.experiments // 20)),
        "## Real runs",
        runs_table(),
    ]
    made_by = "benchmarks/gate_errors.py"
    write_page(options.write, "How often the gate is wrong", parts, made_by)


def errors_table(
    recorded: dict[tuple[str, str], list[tuple[float, float]]], loops: Sequence[str], count: int
) -> str:
    """Draw so many experiments of these loops; returns how often the gate said what."""
    found: dict[tuple[str, float], list[tuple[str, float]]] = collections.defaultdict(list)
    cases = [(key, planted) for key in sorted(recorded) if key[0] in loops for planted in PLANTED]
    drawn = [cases[number % len(cases)] for number in range(count)]
    with multiprocessing.Pool() as pool:
        tasks = [(recorded[key], planted, number) for number, (key, planted) in enumerate(drawn)]
        answers = pool.starmap(seeded_experiment, tasks, chunksize=20)
    for (key, planted), answer in zip(drawn, answers, strict=True):
        for noise in (key[1], "all"):
            found[noise, planted].append(answer)
    return answers_table(found)


def seeded_experiment(
    recorded: list[tuple[float, float]], planted: float, seed: int
) -> tuple[str, float]:
    """One experiment with random numbers of its own."""
    return experiment(recorded, planted, np.random.default_rng(seed))


def runs_table() -> str:
    """The real runs in the same form."""
    found: dict[tuple[str, float], list[tuple[str, float]]] = collections.defaultdict(list)
    for line in read(RUNS):
        for noise in (line["noise"], "all"):
            found[noise, line["planted"]].append((line["verdict"], line["seconds"]))
    return answers_table(found)


def answers_table(found: dict[tuple[str, float], list[tuple[str, float]]]) -> str:
    """A row for each kind of neighbours and each planted regression."""
    rows = []
    for noise, planted in sorted(found, key=lambda each: (each[0] == "all", each)):
        answers = found[noise, planted]
        counts = collections.Counter(answer for answer, _ in answers)
        shares = [100 * counts[each] / len(answers) for each in (BLOCKED, PASSED, CANNOT_SAY)]
        took = np.median([seconds for _, seconds in answers])
        rows.append(
            [noise, f"{100 * planted:g}%", f"{len(answers):,}"]
            + [f"{share:.2f}%" for share in shares]
            + [f"{took:.0f} s"]
        )
    head = ["beside", "planted", "experiments", "blocked", "passed", "cannot say", "median time"]
    return table(head, rows)


if __name__ == "__main__":
    main()
