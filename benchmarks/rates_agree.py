"""Do `hotloop benchmark` and `hotloop simplify` give the same rate of the same loop?

Both measure the same loop at the same time: when each has prepared itself, who has had less time
has the next block. The loops are of several kinds of the prediction league: steady, with rare
bursts, with a queue. Both verbs give units per second with an interval. They agree if they differ
by at most √(h₁² + h₂²), the two half-widths; 95 of 100 should, if both intervals are right. What
was broken off goes on where it was.

    python benchmarks/rates_agree.py --version now --markdown docs/benchmarks/rates_agree.md
"""

import argparse
import json
import math
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.loop.host import describe, host_facts
from league.entry import Draws, Fixes
from league.loops import LOOPS
from league.process import append, read, run_alone
from tables import table

RESULTS = Path("docs/benchmarks/rates_agree.jsonl")
KINDS = (
    "serial-python",
    "serial-unequal",
    "bursts-20-serial",
    "random-20-serial",
    "dqn",
    "bursts-20-thread",
    "threads-waiting",
    "vector-env",
)
VERBS = ("benchmark", "simplify")
SET_UP_S = 60.0


def main() -> None:
    chosen = _options()
    if chosen.one:
        print(json.dumps(_one(chosen.one, chosen.seconds)), flush=True)
        os._exit(0)  # whatever threads the loop could not end
    if not chosen.page_only:
        _measure(chosen)
    _page(chosen)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--version", help="label of the results; default: the last")
    options.add_argument("--pairs", type=int, default=40)
    options.add_argument("--seconds", type=float, default=20.0, help="budget of the experiment")
    options.add_argument("--results", type=Path, default=RESULTS, help="where raw results go")
    options.add_argument("--markdown", type=Path, help="where the page goes")
    options.add_argument("--page-only", action="store_true", help="measure nothing")
    options.add_argument("--one", metavar="LOOP", choices=LOOPS, help="one pair, as JSON")
    chosen = options.parse_args()
    if not (chosen.version or chosen.one or chosen.page_only):
        options.error("--version: expected a label for the results, got none")
    return chosen


def _one(name: str, seconds: float) -> dict[str, Any]:
    from league.prediction import before_making, both_rates

    try:
        before_making()
        draws = Draws(int.from_bytes(os.urandom(4), "little"))
        with LOOPS[name].make(Fixes(), draws) as loop:
            return {"rates": both_rates(loop, seconds)}
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def _measure(chosen: argparse.Namespace) -> None:
    """Run the pairs that the results do not hold yet, the loops in turn."""
    lines = [line for line in read(chosen.results) if line["version"] == chosen.version]
    done = {line["pair"] for line in lines if line["what"] == "pair"}
    append(chosen.results, chosen.version, {"what": "machine", "facts": host_facts()})
    for pair in range(chosen.pairs):
        if pair in done:
            continue
        name = KINDS[pair % len(KINDS)]
        arguments = ["--seconds", str(chosen.seconds), "--one", name]
        found = run_alone(Path(__file__), arguments, 2 * chosen.seconds + SET_UP_S)
        append(chosen.results, chosen.version, {"what": "pair", "pair": pair, "loop": name} | found)
        print(pair, name, found, flush=True)


def _page(chosen: argparse.Namespace) -> None:
    lines = read(chosen.results)
    version = chosen.version or lines[-1]["version"]
    lines = [line for line in lines if line["version"] == version]
    facts = [line["facts"] for line in lines if line["what"] == "machine"][-1]
    by_loop: dict[str, list[tuple[float, bool, bool]]] = defaultdict(list)
    refused = []
    for line in lines:
        if line["what"] != "pair":
            continue
        rates = [line.get("rates", {}).get(verb, line.get("refused")) for verb in VERBS]
        if all(isinstance(rate, list) for rate in rates):
            by_loop[line["loop"]].append(_compared(*rates))
        else:
            refused.append([line["loop"], *(r if isinstance(r, str) else "" for r in rates)])
    rows = [_row(name, pairs) for name, pairs in by_loop.items()]
    everything = [pair for pairs in by_loop.values() for pair in pairs]
    if everything:
        rows.append(_row("all", everything))
    header = ["loop", "pairs", "agree", "intervals overlap", "median of simplify / benchmark − 1"]
    parts = [
        "# The rate of two verbs",
        describe(facts) + ".",
        f"Version `{version}`. Pairs of a benchmark and an experiment on the same loop at the same "
        "time: they take turns block by block. They agree if they differ by at most "
        "√(h₁² + h₂²).",
        table(header, rows),
    ]
    if refused:
        parts += ["## No rate", table(["loop", *VERBS], refused)]
    parts.append("Made by `benchmarks/rates_agree.py`, whose first lines say how to run it.")
    page = "\n\n".join(parts) + "\n"
    print(page)
    if chosen.markdown is not None:
        chosen.markdown.write_text(page)


def _compared(first: list[float], second: list[float]) -> tuple[float, bool, bool]:
    """How far the second rate is off, relative to the first; do they agree; do they overlap."""
    halves = [(rate[2] - rate[1]) / 2 for rate in (first, second)]
    agree = abs(second[0] - first[0]) <= math.hypot(*halves)
    overlap = first[1] <= second[2] and second[1] <= first[2]
    return second[0] / first[0] - 1, agree, overlap


def _row(name: str, pairs: list[tuple[float, bool, bool]]) -> list[str]:
    count = len(pairs)
    return [
        name,
        str(count),
        f"{sum(agree for _, agree, _ in pairs)} ({np.mean([a for _, a, _ in pairs]):.0%})",
        f"{sum(overlap for _, _, overlap in pairs)} ({np.mean([o for *_, o in pairs]):.0%})",
        f"{100 * np.median([off for off, _, _ in pairs]):+.1f}%",
    ]


if __name__ == "__main__":
    main()
