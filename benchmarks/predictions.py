"""Does a real fix gain what `hotloop simplify` predicted? A league of loops and their fixes.

Each loop is run through the experiment, which predicts what it would gain if a stage were free, or
k times faster. Then the stage is really fixed: it returns a ready output, or does half or a quarter
of its work. The truth is the mean time, rare long iterations included, of the old and the new
version in turns. Each prediction and each truth runs in a process of its own; one that hangs or
fails is noted, and the league goes on. A league that was broken off goes on where it was.

    python benchmarks/predictions.py --version now
    python benchmarks/predictions.py --version now --only 'bursts-*' --budget 20
    python benchmarks/predictions.py --page-only --markdown docs/benchmarks/predictions.md
"""

import argparse
import fnmatch
import json
import os
import time
from pathlib import Path
from typing import Any

from hotloop.loop.host import host_facts
from league.entry import Draws, Fixes
from league.loops import LOOPS, PAIRS
from league.page import write
from league.process import append, read, run_alone

RESULTS = Path("docs/benchmarks/predictions.jsonl")
SET_UP_S = 60.0  # a process may take for imports and for making its loop
TRUTH_OVERHEAD = 3.0  # a truth may take so many times its seconds: a restless machine, set-ups


def main() -> None:
    chosen = _options()
    if chosen.list:
        for name, stage, left in PAIRS:
            print(f"{name:24} {LOOPS[name].kind:12} {stage:16} {left:g}")
        print(f"{len(LOOPS)} loops, {len(PAIRS)} pairs")
    elif chosen.one:
        print(json.dumps(_one(chosen)), flush=True)
        # Threads or workers that a loop could not end must not keep this process.
        os._exit(0)
    else:
        if not chosen.page_only:
            _play(chosen)
        elif not read(chosen.results):
            raise SystemExit(f"{chosen.results}: no results yet; run without --page-only")
        write(chosen.results, chosen.version, chosen.markdown)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--version", help="label of the method that predicts; default: the last")
    options.add_argument("--budget", type=float, default=60.0, help="seconds of an experiment")
    options.add_argument("--seconds-truth", type=float, default=6.0, help="seconds of a truth")
    options.add_argument("--only", default="*", metavar="GLOB", help="names of loops")
    options.add_argument("--results", type=Path, default=RESULTS, help="where raw results go")
    options.add_argument("--markdown", type=Path, help="where the page goes")
    options.add_argument("--page-only", action="store_true", help="measure nothing")
    options.add_argument("--list", action="store_true", help="print the pairs and stop")
    options.add_argument(
        "--one",
        nargs="+",
        metavar="WHAT",
        help="predict LOOP, or truth LOOP STAGE FACTOR: this one alone, printed as JSON",
    )
    chosen = options.parse_args()
    if chosen.one and (chosen.one[0], len(chosen.one)) not in (("predict", 2), ("truth", 4)):
        options.error(f"--one: expected predict LOOP or truth LOOP STAGE FACTOR, got {chosen.one}")
    if chosen.one and chosen.one[1] not in LOOPS:
        options.error(f"--one: there is no loop {chosen.one[1]!r}; --list prints them")
    if not (chosen.version or chosen.one or chosen.list or chosen.page_only):
        options.error("--version: expected a label for the results, got none")
    return chosen


# --- one measurement, in a process of its own ----------------------------------------------------


def _one(chosen: argparse.Namespace) -> dict[str, Any]:
    what, name, *rest = chosen.one
    try:
        if what == "predict":
            return _predict(name, chosen.budget)
        from league.truth import measure

        return measure(LOOPS[name], rest[0], float(rest[1]), chosen.seconds_truth)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def _predict(name: str, budget: float) -> dict[str, Any]:
    from league.prediction import before_making, predict

    before_making()
    draws = Draws(int.from_bytes(os.urandom(4), "little"))
    with LOOPS[name].make(Fixes(), draws) as loop:
        return predict(loop, budget)


# --- the league ----------------------------------------------------------------------------------


def _play(chosen: argparse.Namespace) -> None:
    """Measure what the results do not hold yet: each loop's prediction, then its truths."""
    done = {_key(line) for line in read(chosen.results) if line["version"] == chosen.version}
    append(chosen.results, chosen.version, {"what": "machine", "facts": host_facts()})
    options = ["--budget", str(chosen.budget), "--seconds-truth", str(chosen.seconds_truth)]
    begin = time.perf_counter()
    for name, entry in LOOPS.items():
        if not fnmatch.fnmatch(name, chosen.only):
            continue
        jobs: list[tuple[dict[str, Any], list[str], float]] = [
            (
                {"what": "prediction", "loop": name, "budget": chosen.budget},
                ["predict", name],
                1.1 * chosen.budget + SET_UP_S,
            )
        ]
        for stage, left in entry.fixes:
            jobs.append(
                (
                    {"what": "truth", "loop": name, "stage": stage, "left": left},
                    ["truth", name, stage, f"{left:g}"],
                    TRUTH_OVERHEAD * entry.slow * chosen.seconds_truth + SET_UP_S,
                )
            )
        for facts, arguments, limit_s in jobs:
            if _key(facts) in done:
                continue
            answer = run_alone(Path(__file__), [*options, "--one", *arguments], limit_s)
            append(chosen.results, chosen.version, facts | answer)
            print(f"{time.perf_counter() - begin:6.0f} s  {_said(facts, answer)}", flush=True)


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("what", "loop", "stage", "left"))


def _said(facts: dict[str, Any], answer: dict[str, Any]) -> str:
    """A line about one measurement, for whoever watches."""
    name = " ".join(str(facts[key]) for key in ("what", "loop", "stage", "left") if key in facts)
    if answer.get("refused"):
        return f"{name}: refused: {answer['refused']}"
    if facts["what"] == "truth":
        half = (answer["high"] - answer["low"]) / 2
        return f"{name}: {100 * answer['value']:.1f}% ± {100 * half:.1f}"
    return f"{name}: fix {answer['fix']}, leave {answer['leave']}"


if __name__ == "__main__":
    main()
