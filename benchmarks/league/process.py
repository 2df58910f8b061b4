"""One measurement in a process of its own, and the file in which its raw result is kept."""

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from hotloop.loop.lifetime import kill_with_parent


@dataclass(frozen=True)
class Ended:
    """How a process ended; code is None where it was killed after its limit."""

    code: int | None
    out: str
    errors: str
    wall_s: float

    @property
    def refused(self) -> str:
        """Why it did not do what it was asked for; empty if it did."""
        if self.code is None:
            return f"did not end within {self.wall_s:.0f} s"
        last = self.errors.strip().rpartition("\n")[2] or "it printed nothing"
        return f"ended with code {self.code}: {last}" if self.code else ""


def run_command(
    command: Sequence[str],
    limit_s: float,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Ended:
    """Run a command; after the limit it is killed with all that it had started.

    environment: all variables, None for those of this process; folder: in which it runs.
    """
    begin = time.perf_counter()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=folder,
    ) as process:
        try:
            out, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return Ended(None, "", "", limit_s)
        finally:
            _end(process.pid)
    return Ended(process.returncode, out, errors, time.perf_counter() - begin)


def run_in_turns(
    commands: Sequence[Sequence[str]],
    limit_s: float,
    *,
    turn_s: float,
    environment: Mapping[str, str] | None = None,
) -> list[Ended]:
    """Run commands side by side, one at a time: while one has its turn, the others are stopped.

    `wall_s` is the sum of a command's own turns, so that what the machine does meanwhile meets all
    alike. Each runs in a folder of its own; one that is not done after limit_s of its own turns is
    killed.
    """
    with ExitStack() as cleaning:
        runs = [cleaning.enter_context(_Run(words, environment)) for words in commands]
        for run in itertools.cycle(runs):
            if all(each.is_over for each in runs):
                break
            if not run.is_over:
                run.take_turn(turn_s, limit_s)
        return [run.ended() for run in runs]


class _Run:
    """A command that goes on only in its turns; killed with all that it started on leaving."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None) -> None:
        self._cleaning = ExitStack()
        self._out, self._errors = (self._file() for _ in range(2))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._errors,
            env=environment,
            preexec_fn=kill_with_parent,  # one that is stopped would stay for ever
            cwd=self._cleaning.enter_context(tempfile.TemporaryDirectory()),
        )
        self._signal(signal.SIGSTOP)
        self._wall_s, self.is_over = 0.0, False

    def _file(self) -> IO[str]:
        return self._cleaning.enter_context(tempfile.TemporaryFile("w+"))

    def take_turn(self, turn_s: float, limit_s: float) -> None:
        """Go on for turn_s or to the end."""
        self._signal(signal.SIGCONT)
        begin = time.perf_counter()
        try:
            self._process.wait(turn_s)
            self.is_over = True
        except subprocess.TimeoutExpired:
            self.is_over = self._wall_s + turn_s > limit_s
        self._wall_s += time.perf_counter() - begin
        if not self.is_over:
            self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        """To the process and to all that it has started."""
        for member in _family(self._process.pid):
            try:
                os.kill(member.pid, number)
            except ProcessLookupError:
                continue

    def ended(self) -> Ended:
        for file in (self._out, self._errors):
            file.seek(0)
        return Ended(self._process.poll(), self._out.read(), self._errors.read(), self._wall_s)

    def __enter__(self) -> "_Run":
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._process.pid)
        self._process.wait()
        self._cleaning.close()


def run_alone(
    script: Path, arguments: Sequence[str], limit_s: float, *, python: str = sys.executable
) -> dict[str, Any]:
    """Run a script that prints a mapping as JSON in its last line; returns the mapping.

    python: the interpreter, of another virtual environment where the script needs one.
    Where there is none, "refused" says why: it failed, or it did not end within the limit, and was
    killed with all that it had started.
    """
    ended = run_command([python, str(script), *arguments], limit_s)
    last = ended.out.strip().rpartition("\n")[2]
    if ended.code == 0 and last.startswith("{"):
        return json.loads(last) | {"wall_s": ended.wall_s}  # type: ignore[no-any-return]
    why = ended.refused or "ended with code 0: it printed no mapping"
    return {"refused": why, "wall_s": ended.wall_s}


def _end(pid: int) -> None:
    """Kill a process with all that it has started; nothing to do where it has ended."""
    for member in _family(pid):
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue


def _family(pid: int) -> list[psutil.Process]:
    """What a process has started, and itself; empty where it has ended."""
    try:
        process = psutil.Process(pid)
        return [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return []


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
