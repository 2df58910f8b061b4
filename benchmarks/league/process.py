"""One measurement in a process of its own, and the file in which its raw result is kept."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil


def run_alone(
    script: Path, arguments: Sequence[str], limit_s: float, *, python: str = sys.executable
) -> dict[str, Any]:
    """Run a script that prints a mapping as JSON in its last line; returns the mapping.

    python: the interpreter, of another virtual environment where the script needs one.
    Where there is none, "refused" says why: it failed, or it did not end within the limit, and was
    killed with all that it had started.
    """
    command = [python, str(script), *arguments]
    begin = time.perf_counter()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
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
    """Kill a process with all that it has started; nothing to do where it has ended."""
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


def append(results: Path, version: str, line: dict[str, Any]) -> None:
    """Add a line to the raw results, with its version and the time."""
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a") as out:
        out.write(json.dumps({"version": version, "at": round(time.time(), 1)} | line) + "\n")


def read(results: Path) -> list[dict[str, Any]]:
    """The raw results, a mapping a line; a line that was broken off does not count."""
    if not results.exists():
        return []
    found = []
    for line in results.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found
