"""Does a real fix gain what `hotloop simplify` predicted? A league of loops and their fixes.

Each loop is run through the experiment, which predicts what it would gain if a stage were free, or
k times faster. Then the stage is really fixed: it returns a ready output, or does half or a quarter
of its work. The truth is the mean time, rare long iterations included, of the old and the new
version in turns. Each prediction and each truth runs in a process of its own; one that hangs or
fails is noted, and the league goes on. A league that was broken off goes on where it was.

On a machine that others share, a loop's old version may run at one speed while its gain is
predicted, and at another while its truth is measured; then they are not of the same loop. Such a
truth is measured again, once more at most, and the one whose old version comes nearest to the
speed in the experiment counts, whatever its gain.

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
SCRIPTS = Path("docs/benchmarks/foreign_scripts.jsonl")  # of `foreign_scripts.py`
SET_UP_S = 60.0  # a process may take for imports and for making its loop
TRUTH_OVERHEAD = 3.0  # a truth may take so many times its seconds: a restless machine, set-ups
# A loop that is faster or slower by this factor than it was in the experiment has another truth.
OTHER_SPEED = 1.1
MOST_TRUTHS = 2


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
        write(chosen.results, chosen.version, chosen.markdown, chosen.scripts)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--version", help="label of the method that predicts; default: the last")
    options.add_argument("--budget", type=float, default=60.0, help="seconds of an experiment")
    options.add_argument("--seconds-truth", type=float, default=6.0, help="seconds of a truth")
    options.add_argument("--only", default="*", metavar="GLOB", help="names of loops")
    options.add_argument("--results", type=Path, default=RESULTS, help="where raw results go")
    options.add_argument("--scripts", type=Path, default=SCRIPTS, help="results of scripts")
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
    done = {_key(line): line for line in read(chosen.results) if line["version"] == chosen.version}
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
        unit_s = None
        for facts, arguments, limit_s in jobs:
            answer = done.get(_key(facts))
            if answer is None:
                command = [*options, "--one", *arguments]
                answers = _answers(command, limit_s, unit_s)
                answer = min(answers, key=lambda each: _other_speed(each, unit_s))
                for each in answers:
                    what = facts if each is answer else facts | {"what": "set aside"}
                    append(chosen.results, chosen.version, what | each)
                print(f"{time.perf_counter() - begin:6.0f} s  {_said(facts, answer)}", flush=True)
            unit_s = answer.get("unit_s", unit_s)


def _answers(command: list[str], limit_s: float, unit_s: float | None) -> list[dict[str, Any]]:
    """A prediction, or truths until one is of the speed that was predicted for."""
    answers: list[dict[str, Any]] = []
    while len(answers) < MOST_TRUTHS:
        answers.append(run_alone(Path(__file__), command, limit_s))
        if _other_speed(answers[-1], unit_s) <= OTHER_SPEED:
            break
    return answers


def _other_speed(truth: dict[str, Any], unit_s: float | None) -> float:
    """The factor between the speeds in the experiment and in a truth; 1 where one is not known."""
    if unit_s is None or "old_s" not in truth:
        return 1.0
    factor: float = truth["old_s"] / unit_s
    return max(factor, 1 / factor)


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
