"""Does the suite hold beside busy processes? The tests, again and again, beside two that spin.

    python benchmarks/busy_suite.py --suites 3 --repeats 50 --write docs/benchmarks/busy_suite.md

Each line of docs/benchmarks/busy_suite.jsonl is one run of pytest: the whole suite, or the tests
that touch clocks, processes or Ray. A run that is broken off is not written; the next call goes on
from the lines that are there for the present commit of the sources.
"""

import argparse
import multiprocessing
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from league.process import append, read
from tables import table, write_page

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/benchmarks/busy_suite.jsonl"
SPINNERS = 2
TOUCHY = (
    *("loop", "benchmark", "simplify", "envs", "rollout", "cli"),
    *("learn/test_ppo_backends.py", "sim/test_ensemble_ray.py", "results/test_python.py"),
)
KINDS = {
    "suite": ["tests"],
    "touchy": [f"tests/{place}" for place in TOUCHY],
}


def spin() -> None:
    """Compute without end."""
    while True:
        pass


def sources() -> str:
    """The commit of the sources and tests."""
    command = ["git", "log", "-1", "--format=%h", "--", "src", "tests", "pyproject.toml"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout[:-1]


def run_tests(places: list[str]) -> dict[str, Any]:
    """Run pytest once beside the spinners; returns its counts and the tests that failed."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "3", "--dist", "loadfile", "-rf", *places],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    last = done.stdout.strip().rpartition("\n")[2]
    counts = {
        word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", last)
    }
    found = re.findall(r"^(?:FAILED|ERROR) (\S+)(?: - (.*))?", done.stdout, flags=re.M)
    failed = [f"{name}: {why}" if why else name for name, why in found]
    return {
        "passed": counts.get("passed", 0),
        "failed": failed,
        "code": done.returncode,
        "wall_s": round(time.perf_counter() - begin, 1),
    }


def page(lines: list[dict[str, Any]]) -> list[str]:
    """The parts of the page: a table by commit and kind, then every failure by its name."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["version"], line["kind"]), []).append(line)
    rows, failures = [], []
    for (version, kind), runs in groups.items():
        minutes = sorted(run["wall_s"] / 60 for run in runs)
        rows.append(
            [
                version,
                "the whole suite" if kind == "suite" else "clocks, processes, Ray",
                str(len(runs)),
                f"{sum(run['passed'] for run in runs):,}",
                str(sum(len(run["failed"]) for run in runs)),
                f"{minutes[len(minutes) // 2]:.1f} min",
            ]
        )
        failures += [f"- {version}: `{name}`" for run in runs for name in run["failed"]]
    header = ["commit", "tests", "runs", "passed", "failed", "a run took"]
    parts = [
        f"The tests beside {SPINNERS} processes that compute without end, on two cores.",
        table(header, rows),
    ]
    return [*parts, "Failures:\n\n" + "\n".join(failures)] if failures else parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", type=int, default=3, help="runs of the whole suite")
    parser.add_argument("--repeats", type=int, default=50, help="runs of the others")
    parser.add_argument("--minutes", type=float, default=None, help="begin no run after this time")
    parser.add_argument("--write", type=Path, default=None, help="the page to write")
    options = parser.parse_args()
    version, begin = sources(), time.perf_counter()
    wanted = {"suite": options.suites, "touchy": options.repeats}
    spinners = [multiprocessing.Process(target=spin, daemon=True) for _ in range(SPINNERS)]
    for spinner in spinners:
        spinner.start()
    try:
        for kind, count in wanted.items():
            done = sum(
                line["version"] == version and line["kind"] == kind for line in read(RESULTS)
            )
            for number in range(done, count):
                if options.minutes and time.perf_counter() - begin > 60 * options.minutes:
                    break
                found = run_tests(KINDS[kind])
                append(RESULTS, version, {"kind": kind, **found})
                print(f"{kind} {number + 1} of {count}: {found}", flush=True)
    finally:
        for spinner in spinners:
            spinner.kill()
    title = "The suite beside busy processes"
    write_page(options.write, title, page(read(RESULTS)), "benchmarks/busy_suite.py")


if __name__ == "__main__":
    main()
