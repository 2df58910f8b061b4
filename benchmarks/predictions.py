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
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from hotloop.loop.host import host_facts
from league.entry import Draws, Fixes
from league.loops import LOOPS, PAIRS
from league.page import write

RESULTS = Path("docs/benchmarks/predictions.jsonl")
SET_UP_S = 30.0  # a process may take for imports and for making its loop
TRUTH_OVERHEAD = 2.5  # a truth may take so many times its seconds: a restless machine, set-ups


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
        write(chosen.results, chosen.version, chosen.markdown)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--version", help="label of the method that predicts; default: the last")
    options.add_argument("--budget", type=float, default=60.0, help="seconds of an experiment")
    options.add_argument("--seconds-truth", type=float, default=8.0, help="seconds of a truth")
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
    _append(chosen, {"what": "machine", "facts": host_facts()})
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
            answer = run_one(Path(__file__), arguments, chosen, limit_s)
            _append(chosen, facts | answer)
            print(f"{time.perf_counter() - begin:6.0f} s  {_said(facts, answer)}", flush=True)


def run_one(
    script: Path, arguments: list[str], chosen: argparse.Namespace, limit_s: float
) -> dict[str, Any]:
    """Run one measurement as a process; returns its answer, or why there is none as "refused"."""
    command = [sys.executable, str(script), "--budget", str(chosen.budget)]
    command += ["--seconds-truth", str(chosen.seconds_truth), "--one", *arguments]
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            _end(process.pid)
            return {"refused": f"did not end within {limit_s:.0f} s", "wall_s": limit_s}
        finally:
            _end(process.pid)
    wall_s = time.perf_counter() - begin
    last = out.strip().rpartition("\n")[2]
    if process.returncode == 0 and last.startswith("{"):
        return json.loads(last) | {"wall_s": wall_s}  # type: ignore[no-any-return]
    why = errors.strip().rpartition("\n")[2] or "it printed nothing"
    return {"refused": f"ended with code {process.returncode}: {why}", "wall_s": wall_s}


def _end(pid: int) -> None:
    """Kill a process with all that it has started; nothing to do where it has ended cleanly."""
    try:
        process = psutil.Process(pid)
        family = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("what", "loop", "stage", "left"))


def _append(chosen: argparse.Namespace, line: dict[str, Any]) -> None:
    stamped = {"version": chosen.version, "at": round(time.time(), 1)} | line
    with chosen.results.open("a") as out:
        out.write(json.dumps(stamped) + "\n")


def read(results: Path) -> list[dict[str, Any]]:
    """The raw results, a mapping a line; none where there is no file yet."""
    if not results.exists():
        return []
    lines = results.read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


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
