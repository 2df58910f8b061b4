"""Does the search of `hotloop optimize` find planted optima, and sooner than its peers?

Loops with known speeds run on a clock of their own, so the result does not depend on the machine.
Each system has the same seconds, and every turn costs the same. Regret is how much slower the
choice that a system ends with is than the best one. The peers evaluate a choice with three turns.

    pip install 'hotloop[optimize]'
    python benchmarks/optimize_search.py --seeds 30 --markdown docs/benchmarks/optimize_search.md

Raw results are appended to a file, from which a run that was broken off goes on.
"""

import argparse
import json
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import optuna

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hotloop.optimize.bench import TrialError
from hotloop.optimize.search import Search
from optimize.planted import LOOPS, Planted
from tables import table, write_page

NOISES = (0.0, 0.05, 0.15)
DRIFT = 0.3
BUDGET_S = 30.0
TURNS = 3
FOUND = 0.02
RAW = Path("docs/benchmarks/optimize_search.jsonl")


def ours(bench: Planted, seed: int) -> float:
    search = Search(bench.space, bench, BUDGET_S, bench.clock, seed=seed)
    search.run()
    return bench.speed(bench.space.options(search.best))


def sampled(make: Callable[[int], optuna.samplers.BaseSampler]) -> Callable[[Planted, int], float]:
    """A peer: a sampler of Optuna, and the best mean of three turns."""

    def run(bench: Planted, seed: int) -> float:
        levers = bench.levers
        study = optuna.create_study(direction="maximize", sampler=make(seed))
        study.enqueue_trial({each.name: each.options.index(each.now) for each in levers})
        best, chosen, tried = 0.0, bench.space.start, 0
        while bench.now_s < BUDGET_S and tried < BUDGET_S / bench.turn_s:
            tried += 1
            trial = study.ask()
            options = {
                each.name: each.options[
                    trial.suggest_categorical(each.name, list(range(len(each.options))))
                ]
                for each in levers
            }
            choice = bench.space.choice(options)
            try:
                entrant = bench.open(choice)
            except TrialError:
                study.tell(trial, 0.0)
                continue
            turns = []
            for _ in range(TURNS):
                bench.next_round()
                turns.append(entrant.turn())
            entrant.close()
            study.tell(trial, statistics.mean(turns))
            if statistics.mean(turns) > best:
                best, chosen = statistics.mean(turns), choice
        return bench.speed(bench.space.options(chosen))

    return run


SYSTEMS: dict[str, Callable[[Planted, int], float]] = {
    "hotloop": ours,
    "Optuna TPE": sampled(lambda seed: optuna.samplers.TPESampler(seed=seed)),
    "random": sampled(lambda seed: optuna.samplers.RandomSampler(seed=seed)),
}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seeds", type=int, default=30)
    options.add_argument("--raw", type=Path, default=RAW)
    options.add_argument("--markdown", type=Path)
    chosen = options.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    lines = _read(chosen.raw)
    for seed in range(chosen.seeds):
        for noise in NOISES:
            for loop, (levers, speed) in LOOPS.items():
                for name, run in SYSTEMS.items():
                    if (name, loop, noise, seed) in lines:
                        continue
                    drift = DRIFT if noise else 0.0
                    bench = Planted(levers, speed, noise=noise, drift=drift, seed=seed)
                    start = speed(bench.space.options(bench.space.start))
                    found = run(bench, seed)
                    line = [name, loop, noise, seed, 1 - found / bench.best(), found / start - 1]
                    with chosen.raw.open("a") as file:
                        file.write(json.dumps(line) + "\n")
                    lines[name, loop, noise, seed] = (line[4], line[5])
    write_page(
        chosen.markdown,
        "The search of `hotloop optimize` beside Optuna's",
        _parts(lines),
        "benchmarks/optimize_search.py",
    )


Lines = dict[tuple[str, str, float, int], tuple[float, float]]


def _read(path: Path) -> Lines:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {(name, loop, noise, seed): (a, b) for name, loop, noise, seed, a, b in rows}


def _parts(lines: Lines) -> list[str]:
    rows = []
    for noise in NOISES:
        for loop in [*LOOPS, "all"]:
            row = [f"{noise:.0%}", loop]
            for system in SYSTEMS:
                found = [
                    value
                    for (name, where, level, _), value in lines.items()
                    if name == system and level == noise and loop in (where, "all")
                ]
                regret = statistics.mean(value[0] for value in found)
                hits = sum(value[0] <= FOUND for value in found)
                slower = sum(value[1] < 0 for value in found)
                row.append(f"{100 * regret:.2f}% ({hits} of {len(found)}, {slower} slower)")
            rows.append(row)
    seeds = len({seed for *_, seed in lines})
    return [
        f"Mean regret over {seeds} seeds in {BUDGET_S:.0f} s of turns of 0.1 s; in brackets how "
        f"often the choice was within {FOUND:.0%} of the best, and how often slower. "
        "Noise is the standard deviation of a turn's rate; where there is any, all turns of a "
        f"round drift together by {DRIFT:.0%} as well. Speeds are planted and the clock is "
        "simulated, so the machine does not matter: `tests/optimize/planted.py`.",
        table(["noise", "loop", *SYSTEMS], rows),
    ]


if __name__ == "__main__":
    main()
