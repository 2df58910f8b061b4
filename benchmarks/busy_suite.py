"""Does the suite hold beside busy processes? The tests, again and again, beside two that spin.

    python benchmarks/busy_suite.py --suites 3 --repeats 50 --minutes 60 \\
        --write docs/benchmarks/busy_suite.md
    python benchmarks/busy_suite.py --page-only --write docs/benchmarks/busy_suite.md

Each line of docs/benchmarks/busy_suite.jsonl is one run of pytest: of the whole suite, or of one
file of tests that touch clocks, processes or Ray. Several run at a time, and those that have run
least come first: what there is time for counts, and the next call goes on from there. A run that
is broken off is not written. Runs count whatever the commit was that they are of, which stands in
their lines.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hotloop.loop.host import describe, host_facts
from league.process import append, read
from spinning import spinning
from tables import machines, table, write_page

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/benchmarks/busy_suite.jsonl"
SPINNERS = 2
SUITE, FILE = "suite", "file"
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


def run_tests(*arguments: str) -> dict[str, Any]:
    """Run pytest once beside the spinners; returns its counts and the tests that failed."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rf", "--durations=1"]
    done = subprocess.run(
        [*command, "-m", MARKED, *arguments],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "400"},  # else pytest leaves out why a test failed
        capture_output=True,
        text=True,
    )
    last = done.stdout.strip().rpartition("\n")[2]
    counts = {
        word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", last)
    }
    found = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - (.*))?$", done.stdout, flags=re.M)
    failed = [f"{name}: {why}" if why else name for name, why in found]
    slowest = re.search(r"^([\d.]+)s (?:setup|call|teardown) +(.+)$", done.stdout, flags=re.M)
    if done.returncode not in (0, 1, 5):  # 5: all tests of the file were deselected
        failed.append(f"pytest ended with code {done.returncode}")
    return {
        "passed": counts.get("passed", 0),
        "failed": failed,
        "code": done.returncode,
        "slowest": [float(slowest[1]), slowest[2]] if slowest else None,
        "wall_s": round(time.perf_counter() - begin, 1),
    }


class Files:
    """The files that are still to run, that with the fewest runs first; for several threads."""

    def __init__(self, repeats: int) -> None:
        self._lock, self._repeats = threading.Lock(), repeats
        self._runs = dict.fromkeys(touching(), 0)
        for line in read(RESULTS):
            if line["kind"] == FILE and line["file"] in self._runs:
                self._runs[line["file"]] += 1

    def until(self, deadline: float) -> Iterator[str]:
        """The files, each as its turn comes; none after the deadline, of `time.perf_counter`."""
        while time.perf_counter() < deadline:
            with self._lock:
                file = min(self._runs, key=self._runs.__getitem__)
                if self._runs[file] >= self._repeats:
                    return
                self._runs[file] += 1
            yield file


def run_all(suites: int, repeats: int, at_once: int, deadline: float) -> None:
    """Run what is missing, `at_once` at a time, and write a line for each run."""
    version, machine = sources(), describe(host_facts())
    writing = threading.Lock()

    def keep(kind: str, found: dict[str, Any], **also: str) -> None:
        with writing:
            line = {"kind": kind, **also, **found, "at_once": at_once, "machine": machine}
            append(RESULTS, version, line)
            if found["failed"]:
                print(kind, *also.values(), found["failed"], flush=True)

    done = sum(line["kind"] == SUITE for line in read(RESULTS))
    for _ in range(done, suites):
        if time.perf_counter() < deadline:
            keep(SUITE, run_tests("-n", str(at_once), "--dist", "loadfile", "tests"))
    files = Files(repeats)

    def run_files(_number: int) -> None:
        for file in files.until(deadline):
            keep(FILE, run_tests(file), file=file)

    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(run_files, range(at_once)))


def page(lines: list[dict[str, Any]]) -> list[str]:
    """The parts of the page: how often each folder's files ran, then every failure by its name."""
    suites = [line for line in lines if line["kind"] == SUITE]
    of_file: dict[str, list[dict[str, Any]]] = {file: [] for file in touching()}
    for line in lines:
        if line["kind"] == FILE and line["file"] in of_file:
            of_file[line["file"]].append(line)
    folders: dict[str, list[str]] = {}
    for file in of_file:
        folders.setdefault(Path(file).parts[1] if file.count("/") > 1 else "the rest", []).append(
            file
        )
    rows = [_row("the whole suite", [suites])] if suites else []
    rows += [_row(folder, [of_file[file] for file in files]) for folder, files in folders.items()]
    rows.append(_row("all files that touch clocks, processes or Ray", [*of_file.values()]))
    commits = list(dict.fromkeys(line["version"] for line in lines))
    at_once = sorted({f"{line['at_once']}" for line in lines})
    parts = [
        f"The tests beside {SPINNERS} processes that compute without end, on two cores; "
        f"{' or '.join(at_once)} processes of tests run at a time. Commits: {', '.join(commits)}.",
        table(["tests", "files", "runs of each", "passed", "failed", "minutes of a run"], rows),
    ]
    failures = [f"- {line['version']}: `{name}`" for line in lines for name in line["failed"]]
    return [*parts, "Failures:\n\n" + "\n".join(failures)] if failures else parts


def _row(name: str, files: list[list[dict[str, Any]]]) -> list[str]:
    """A row: how often each file ran, at least and at most, and what came of it."""
    counts = [len(runs) for runs in files]
    some = [run for runs in files for run in runs]
    took_s = sum(statistics.median(run["wall_s"] for run in runs) for runs in files if runs)
    return [
        name,
        f"{len(files)}" if name != "the whole suite" else "all",
        f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}",
        f"{sum(run['passed'] for run in some):,}",
        f"{sum(len(run['failed']) for run in some)}",
        f"{took_s / 60:.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", type=int, default=3, help="runs of the whole suite")
    parser.add_argument("--repeats", type=int, default=50, help="runs of each other file")
    parser.add_argument("--at-once", type=int, default=4, help="as many as `make test` has")
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
