"""The samplers of stacks, the best first: py-spy, pyinstrument, cProfile."""

import cProfile
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from hotloop.loop.lifetime import allow_tracing
from hotloop.loop.named_call import FRAME, frame_name
from hotloop.profile.stacks import REST, Frame, Lane, Stacks
from hotloop.profile.tool import EXTRA, ToolError, expect_module

_DEEPEST_CALLS = 50
_START_S = 10.0  # py-spy begins to sample within this time, or does not work
_LINE = re.compile(r"^(?P<function>.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)$")
_PROCESS = re.compile(r'^process (?P<pid>\d+):"(?P<command>.*?)";(?P<rest>.*)$')
_THREAD = re.compile(r"^thread \((?P<thread>[^)]*)\):? ?(?P<name>.*)$")


class Sampler(Protocol):
    """Samples stacks between `start` and `stop`, which may be called again and again."""

    name: str

    def start(self) -> None:
        """Begin to sample. Raises: ToolError."""
        ...

    def stop(self) -> None:
        """End sampling; may be called twice."""
        ...

    def stacks(self) -> Stacks:
        """What was sampled."""
        ...


class PySpy:
    """Reads the stacks of this process and its children from a process of its own."""

    name = "py-spy"

    def __init__(self, rate_per_s: int, native: bool) -> None:
        self._rate, self._native = rate_per_s, native
        self._stacks = Stacks()
        self._process: subprocess.Popen[str] | None = None
        self._folder: Path | None = None
        program = Path(sys.executable).parent / "py-spy"
        found = str(program) if program.exists() else shutil.which("py-spy")
        if found is None:
            raise ToolError(f"py-spy is not installed: {EXTRA}")
        self._program = found

    def start(self) -> None:
        """Let it attach, and wait until it samples."""
        allow_tracing()
        self._folder = Path(tempfile.mkdtemp(prefix="hotloop-py-spy-"))
        command = [self._program, "record", "--pid", str(os.getpid()), "--format", "raw"]
        command += ["--output", str(self._folder / "stacks"), "--rate", str(self._rate)]
        command += ["--duration", "100000", "--full-filenames", "--threads", "--idle"]
        command += ["--subprocesses", *(["--native"] if self._native else [])]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is for the loop
        )
        said = self._said_until("Sampling process")
        if said is not None:
            self.stop()
            raise ToolError(_why_py_spy(said))

    def _said_until(self, words: str) -> str | None:
        """None once it says these words, else all that it has said instead."""
        assert self._process is not None
        assert self._process.stdout is not None
        late = threading.Timer(_START_S, self._process.kill)
        late.start()
        said = []
        try:
            for line in self._process.stdout:
                if words in line:
                    return None
                said.append(line)
        finally:
            late.cancel()
        return "".join(said) or f"it did not begin to sample within {_START_S:.0f} s"

    def stop(self) -> None:
        """Let it write what it has sampled, and read that."""
        process, folder = self._process, self._folder
        self._process = self._folder = None
        if process is None or folder is None:
            return
        try:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=_START_S)
            written = folder / "stacks"
            if written.exists():
                for lane, stack, count in read_raw(written.read_text(errors="replace")):
                    self._stacks.add(lane, stack, count)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def stacks(self) -> Stacks:
        """What was sampled, of all threads and child processes."""
        return self._stacks


class Pyinstrument:
    """Samples the thread that runs the loop, by a timer within this process."""

    name = "pyinstrument"

    def __init__(self, rate_per_s: int, native: bool) -> None:
        if native:
            raise ToolError("it sees no native frames, which --native asks for")
        expect_module("pyinstrument", "pyinstrument")
        self._interval_s = 1 / rate_per_s
        self._stacks = Stacks()
        self._profiler: Any = None

    def start(self) -> None:
        """Begin to sample on this thread."""
        from pyinstrument import Profiler

        self._profiler = Profiler(interval=self._interval_s, async_mode="disabled")
        self._profiler.start()

    def stop(self) -> None:
        """End sampling on this thread, and take the stacks."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        session = profiler.stop()
        lane = Lane("MainThread", is_loop=True)
        for identifiers, took_s in session.frame_records:
            frames = [_pyinstrument_frame(each) for each in identifiers]
            self._stacks.add(lane, [f for f in frames if f is not None], round(took_s * 1e6))

    def stacks(self) -> Stacks:
        """What was sampled; a count is a microsecond."""
        return self._stacks


class CProfile:
    """Times every call on the thread that runs the loop.

    It sees who called whom, and no stacks: a function's time is shared out among the stages as the
    time of its callers is, and a stack is a stage and one function.
    """

    name = "cProfile"

    def __init__(self, _rate_per_s: int, native: bool) -> None:
        if native:
            raise ToolError("it sees no native frames, which --native asks for")
        self._profile = cProfile.Profile()

    def start(self) -> None:
        """Begin to time calls on this thread."""
        try:
            self._profile.enable()
        except ValueError as taken:
            raise ToolError(f"another profiler is on: {taken}") from None

    def stop(self) -> None:
        """End timing."""
        self._profile.disable()

    def stacks(self) -> Stacks:
        """What was timed; a count is a microsecond."""
        found = Stacks()
        lane = Lane("MainThread", is_loop=True)
        entries = {entry.code: entry for entry in self._profile.getstats()}
        for code, shares in _shares_of_stages(entries).items():
            for stage, share in shares.items():
                took_us = round(entries[code].inlinetime * share * 1e6)
                above = [] if stage == REST else [Frame(frame_name(stage), "", 0)]
                found.add(lane, [*above, _frame_of(code)], took_us)
        return found


# The best first: the first that works is used.
SAMPLERS: Mapping[str, Callable[[int, bool], Sampler]] = {
    each.name: each for each in (PySpy, Pyinstrument, CProfile)
}


def _shares_of_stages(entries: Mapping[Any, Any]) -> dict[Any, dict[str, float]]:
    """How the time of each function is shared out among the stages, by the time of its callers."""
    callers: dict[Any, dict[Any, float]] = defaultdict(dict)
    for code, entry in entries.items():
        for call in entry.calls or ():
            callers[call.code][code] = call.totaltime
    shares: dict[Any, dict[str, float]] = {}
    for code in entries:
        name = getattr(code, "co_name", "")
        stage = name.removeprefix(FRAME) if name.startswith(FRAME) else REST
        shares[code] = {stage: 1.0}
    fixed = {code for code, share in shares.items() if REST not in share}
    for _ in range(_DEEPEST_CALLS):
        changed = False
        for code, above in callers.items():
            total = sum(above.values())
            if code in fixed or not total:
                continue
            new: dict[str, float] = defaultdict(float)
            for caller, took_s in above.items():
                for stage, share in shares[caller].items():
                    new[stage] += share * took_s / total
            changed |= new != shares[code]
            shares[code] = dict(new)
        if not changed:
            break
    return shares


def _frame_of(code: Any) -> Frame:
    """The frame of what cProfile has an entry of: a code object, or the name of a C function."""
    if isinstance(code, str):
        return Frame(code, "", 0)
    return Frame(code.co_qualname, code.co_filename, code.co_firstlineno)


def read_raw(text: str) -> Iterator[tuple[Lane, list[Frame], int]]:
    """Read the stacks that py-spy writes in its raw format, with their lanes and counts."""
    here = os.getpid()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        pid = here
        process = _PROCESS.match(stack)
        if process is not None:
            pid, stack = int(process["pid"]), process["rest"]
        parts = stack.split(";")
        thread = _THREAD.match(parts[0])
        name = ""
        if thread is not None:
            name, parts = thread["name"] or thread["thread"], parts[1:]
        is_main = pid == here and name == "MainThread"
        lane = name if pid == here else f"process {pid}, {name}"
        yield Lane(lane, is_main), [_frame(part) for part in parts], int(count)


def _frame(text: str) -> Frame:
    found = _LINE.match(text)
    if found is None:
        return Frame(text, "", 0)
    return Frame(found["function"], found["file"], int(found["line"] or 0))


def _pyinstrument_frame(identifier: str) -> Frame | None:
    """A frame of its records: name, file and first line, then its attributes with the line."""
    head, *attributes = identifier.split("\x01")
    name, _, rest = head.partition("\x00")
    file, _, first = rest.partition("\x00")
    line = next((a[1:] for a in attributes if a.startswith("l")), first)
    if file.startswith("<") or not line.isdigit():
        return None
    return Frame(name, file, int(line))


def _why_py_spy(said: str) -> str:
    text = " ".join(said.partition("Stack backtrace")[0].split())
    # With subprocesses it says of a process that it may not read that it is no Python.
    denied = "permission|ptrace|not permitted|root|python process"
    if re.search(denied, text, re.IGNORECASE):
        return (
            "the system does not permit it to read this process; run as root, give the container "
            "the capability SYS_PTRACE, or set kernel.yama.ptrace_scope to 0"
        )
    return f"it failed: {text.removeprefix('Error: ')[-300:]}"
