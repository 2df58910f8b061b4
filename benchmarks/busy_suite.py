"""Does the suite hold beside busy processes? The tests, again and again, beside two that spin.

    python benchmarks/busy_suite.py --suites 3 --repeats 50 --minutes 60 \\
        --write docs/benchmarks/busy_suite.md
    python benchmarks/busy_suite.py --page-only --write docs/benchmarks/busy_suite.md

Each line of docs/benchmarks/busy_suite.jsonl is one run of the whole suite, or of one file of
tests that touch clocks, processes or Ray. Files that have not run often enough since a test in them
failed run in calls of pytest of a few minutes each, several at a time: what there is time for
counts, and the next start goes on from there. A call that is broken off is not written. Runs count
whatever the commit was that they are of, which stands in their lines. Lines of some earlier commits
come from one call for all files.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import takewhile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hotloop.loop.host import describe, host_facts
from league.process import append, read
from spinning import spinning
from tables import machines, table, write_page

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/benchmarks/busy_suite.jsonl"
SPINNERS = 2
SUITE, FILE = "suite", "file"
CALL_S = 240.0  # of tests in a call, where there are so many: starting it takes some seconds
MARKED = "not slow and not gpu"  # as in CI
# What the source of a test, or of what it is supported by, has where it touches one of them.
TOUCHES = re.compile(
    r"subprocess|multiprocessing|threading|Thread|ProcessPool|\bray\b|\bRay\b|signal\.|Popen"
    r"|os\.(fork|kill)|time\.(sleep|perf_counter|monotonic|process_time|thread_time)|RealClock"
    r"|\"process\"|command_server"
)
SUPPORT = re.compile(r"^from support\.(\w+) import", flags=re.M)


def touching() -> list[str]:
    """The files of tests that touch clocks, processes or Ray."""
    tests = ROOT / "tests"
    touches = {path.stem for path in (tests / "support").glob("*.py") if _touches(path)}
    return [
        str(path.relative_to(ROOT))
        for path in sorted(tests.rglob("test_*.py"))
        if _touches(path) or touches & set(SUPPORT.findall(path.read_text()))
    ]


def _touches(path: Path) -> bool:
    """Whether a source does; with that of the fixtures of its folder."""
    both = (path, path.with_name("conftest.py"))
    return any(TOUCHES.search(each.read_text()) is not None for each in both if each.exists())


def sources() -> str:
    """The commit of the sources and tests."""
    command = ["git", "log", "-1", "--format=%h", "--", "src", "tests", "pyproject.toml"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout[:-1]


def run_tests(tests: Sequence[str], at_once: int = 1) -> dict[str, dict[str, Any]]:
    """Call pytest once beside the spinners; returns what came of each file of tests.

    at_once: the number of processes among which it divides the files.
    Raises: RuntimeError where pytest ended otherwise than after all tests.
    """
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "tests.xml")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", MARKED]
        command += ["-n", f"{at_once}", "--dist", "loadfile"] if at_once > 1 else []
        command += [f"--junitxml={written}", "-o", "junit_family=xunit1"]  # this one names files
        done = subprocess.run([*command, *tests], cwd=ROOT, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"pytest ended with code {done.returncode}:\n{done.stdout[-2000:]}")
        cases = ElementTree.parse(written).findall(".//testcase")
    files: dict[str, dict[str, Any]] = {}
    for case in cases:
        of_file = files.setdefault(case.attrib["file"], {"passed": 0, "failed": [], "tests_s": 0.0})
        of_file["tests_s"] = round(of_file["tests_s"] + float(case.attrib["time"]), 1)
        faults = [found for found in case if found.tag in ("failure", "error")]
        if faults:
            name = f"{case.attrib['file']}::{case.attrib['name']}"
            why = faults[0].get("message", "").splitlines()[:1]
            of_file["failed"].append(": ".join([name, *why]))
            print(name, faults[0].text, sep="\n", flush=True)
        elif case.find("skipped") is None:
            of_file["passed"] += 1
    return files


def run_all(suites: int, repeats: int, at_once: int, deadline: float) -> None:
    """Run what is missing, `at_once` files at a time, and write what came of it."""
    version, machine = sources(), describe(host_facts())

    def keep(kind: str, found: dict[str, Any]) -> None:
        line = {"kind": kind, **found, "at_once": at_once, "machine": machine}
        append(RESULTS, version, line)

    def suites_done() -> int:
        return _since_a_failure(runs_of(read(RESULTS))[SUITE])

    while suites_done() < suites and time.perf_counter() < deadline:
        files = run_tests(["tests"], at_once).values()
        failed = [name for found in files for name in found["failed"]]
        keep(SUITE, {"passed": sum(found["passed"] for found in files), "failed": failed})

    under_way: dict[Future[dict[str, dict[str, Any]]], list[str]] = {}
    with ThreadPoolExecutor(at_once) as pool:
        while True:
            running = Counter(file for files in under_way.values() for file in files)
            files_next = next_files(repeats, running) if time.perf_counter() < deadline else []
            if files_next and len(under_way) < at_once:
                under_way[pool.submit(run_tests, files_next)] = files_next
                continue
            if not under_way:
                return
            for call in wait(under_way, return_when=FIRST_COMPLETED).done:
                found_of = call.result()
                for file in under_way.pop(call):  # all tests of a file may be marked
                    keep(FILE, {"file": file, **found_of.get(file, {"passed": 0, "failed": []})})


def next_files(repeats: int, running: Counter[str]) -> list[str]:
    """The files of the next call: those first that need most time until they ran often enough.

    running: how many runs of each file are under way; one with many takes its turn behind others.
    """
    runs = runs_of(read(RESULTS))
    tests_s, work_s = {}, {}
    for file in touching():
        of_file = runs.get(file, [])
        missing = repeats - _since_a_failure(of_file) - running[file]
        if missing > 0:
            tests_s[file] = of_file[-1].get("tests_s", 0.0) if of_file else 0.0
            work_s[file] = missing * (tests_s[file] + 1.0) / (1 + running[file])
    chosen: list[str] = []
    for file in sorted(work_s, key=lambda file: -work_s[file]):
        if not chosen or sum(tests_s[each] for each in chosen) + tests_s[file] <= CALL_S:
            chosen.append(file)
    return chosen


def runs_of(lines: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The runs of each file by its name, and of the whole suite by its kind, oldest first."""
    runs: dict[str, list[dict[str, Any]]] = {SUITE: []}
    for line in lines:
        runs.setdefault(line.get("file", line["kind"]), []).append(line)
    return runs


def page(lines: list[dict[str, Any]]) -> list[str]:
    """The parts of the page: how often each folder's files ran, then every failure by its name."""
    runs = runs_of(lines)
    of_file = {file: runs.get(file, []) for file in touching()}
    folders: dict[str, list[str]] = {}
    for file in of_file:
        folders.setdefault(Path(file).parts[1] if file.count("/") > 1 else "the rest", []).append(
            file
        )
    rows = [_row("the whole suite", [runs[SUITE]])] if runs[SUITE] else []
    rows += [_row(folder, [of_file[file] for file in files]) for folder, files in folders.items()]
    rows.append(_row("all files that touch clocks, processes or Ray", [*of_file.values()]))
    commits = list(dict.fromkeys(line["version"] for line in lines))
    at_once = sorted({f"{line['at_once']}" for line in lines})
    parts = [
        f"The tests beside {SPINNERS} processes that compute without end, on two cores; "
        f"{' or '.join(at_once)} processes of tests run at a time. Commits: {', '.join(commits)}.",
        table(
            ["tests", "files", "runs of each", "of them since a failure", "passed", "failed"], rows
        ),
    ]
    failures = [f"- {line['version']}: `{name}`" for line in lines for name in line["failed"]]
    return [*parts, "Failures:\n\n" + "\n".join(failures)] if failures else parts


def _row(name: str, files: list[list[dict[str, Any]]]) -> list[str]:
    """A row: how often each file ran, since its last failure as well, and what came of it."""
    some = [run for runs in files for run in runs]
    return [
        name,
        f"{len(files)}" if name != "the whole suite" else "all",
        _span([len(runs) for runs in files]),
        _span([_since_a_failure(runs) for runs in files]),
        f"{sum(run['passed'] for run in some):,}",
        f"{sum(len(run['failed']) for run in some)}",
    ]


def _span(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"


def _since_a_failure(runs: list[dict[str, Any]]) -> int:
    """How many runs there are after the last one with a failure."""
    return len(list(takewhile(lambda run: not run["failed"], reversed(runs))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--suites", type=int, default=3, help="runs of the whole suite since it failed"
    )
    parser.add_argument("--repeats", type=int, default=50, help="runs of each file since it failed")
    parser.add_argument("--at-once", type=int, default=4, help="processes of tests")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no run after this time")
    parser.add_argument("--write", type=Path, default=None, help="the page to write")
    parser.add_argument("--page-only", action="store_true", help="run nothing")
    options = parser.parse_args()
    if not options.page_only:
        deadline = time.perf_counter() + 60 * options.minutes
        with spinning(SPINNERS):
            run_all(options.suites, options.repeats, options.at_once, deadline)
    lines = read(RESULTS)
    title = "The suite beside busy processes"
    made_by = "benchmarks/busy_suite.py"
    write_page(options.write, title, page(lines), made_by, machine=machines(lines))


if __name__ == "__main__":
    main()
