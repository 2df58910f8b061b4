"""The command line as its users run it: in a process of its own, in a folder of its own."""

import os
import pty
import select
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from hotloop.learn.algorithms import ALGORITHMS
from support.command_server import WITH_TORCH, CommandServer
from support.wait import DEADLINE_S, PATIENCE_S, wait_until

TARGETS = Path(__file__).parent / "targets"
LEARNERS = tuple(f"{name}:" for name in ALGORITHMS)
COMMAND = str(Path(sys.executable).parent / "hotloop")
# The command in a session of its own, with its standard input as the controlling terminal.
ON_ITS_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def messages(self) -> list[str]:
        """The lines in which the command speaks for itself."""
        return [line for line in self.err.splitlines() if line.startswith("hotloop: ")]


def environment() -> dict[str, str]:
    """This process's, without what a measurement leaves there."""
    kept = {name: value for name, value in os.environ.items() if name != "HOTLOOP_CONTROL"}
    return kept | {"OMP_NUM_THREADS": "1"}


def _read_at_start(variables: Mapping[str, str]) -> bool:
    """Whether the interpreter reads one of these when it starts, which a fork does not."""
    return any(name.startswith(("PYTHON", "OMP_", "LD_")) for name in variables)


def _needs_torch(words: list[str]) -> bool:
    return words[0] in WITH_TORCH or any(word.startswith(LEARNERS) for word in words)


def run_command(
    *arguments: object,
    cwd: Path,
    before: tuple[str, ...] = (),
    stdout: int = subprocess.PIPE,
    **variables: str,
) -> Ended:
    """Run `hotloop …` to its end; `before` is what starts it, as `nice` would."""
    words = [str(argument) for argument in arguments]
    if not before and stdout == subprocess.PIPE and words and not _read_at_start(variables):
        server = WITH_TORCH_LOADED if _needs_torch(words) else IMPORTED
        return Ended(*server.run(words, cwd, environment() | variables, DEADLINE_S))
    done = subprocess.run(
        [*before, COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment() | variables,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
    )
    return Ended(done.returncode, done.stdout or "", done.stderr)


IMPORTED = CommandServer("light", COMMAND)
WITH_TORCH_LOADED = CommandServer("torch", COMMAND)


class Started:
    """A command that runs while the test goes on; what it prints goes to files."""

    def __init__(self, *arguments: object, cwd: Path) -> None:
        self.cwd = cwd
        self._out, self._err = (cwd / "stdout").open("w"), (cwd / "stderr").open("w")
        self.process = subprocess.Popen(
            [COMMAND, *map(str, arguments)],
            cwd=cwd,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
        )
        self.children: list[psutil.Process] = []

    def wait_for(self, sign: str | Path) -> None:
        """Wait for a file that the loop makes, then note which processes have been started."""
        wait_until(
            lambda: (self.cwd / sign).exists() or self.process.poll() is not None,
            f"the loop did not make {sign}",
        )
        assert self.process.poll() is None, (self.cwd / "stderr").read_text()
        self.children = psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> Ended:
        """Wait for its end. Raises: subprocess.TimeoutExpired if it hangs."""
        code = self.process.wait(DEADLINE_S)
        return Ended(code, (self.cwd / "stdout").read_text(), (self.cwd / "stderr").read_text())

    def alive(self) -> list[psutil.Process]:
        """The noted processes that still run, once those that are ending have had their time."""
        _, alive = psutil.wait_procs(self.children, timeout=PATIENCE_S)
        return [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]

    def clean_up(self) -> None:
        """Leave nothing behind, whatever the test found."""
        if self.process.poll() is None:
            self.children = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            self.process.wait()
        for child in self.children:
            if child.is_running():
                child.kill()
        psutil.wait_procs(self.children, timeout=PATIENCE_S)
        self._out.close()
        self._err.close()


class Terminal:
    """A pseudo-terminal with a command on it, as a user sits before one."""

    def __init__(self, *arguments: object, cwd: Path) -> None:
        self.screen = b""
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (40, 120))
        self._theirs = theirs
        self.settings = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_ITS_TERMINAL, COMMAND, *map(str, arguments)],
            cwd=cwd,
            env=environment() | {"TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )

    def read_until(self, holds: Callable[[], bool]) -> None:
        """Take in what is printed until something holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < deadline, self.screen[-2000:].decode(errors="replace")
            self.read(0.05)

    def read(self, timeout: float) -> bool:
        """Take in what is there; returns whether anything was."""
        poll = select.poll()  # `select.select` takes no descriptor beyond 1023
        poll.register(self._ours, select.POLLIN)
        ready = bool(poll.poll(timeout * 1e3))
        if ready:
            self.screen += os.read(self._ours, 65536)
        return ready

    def read_to_the_end(self) -> None:
        """Take in the rest, until the command has ended."""
        self.read_until(lambda: self.process.poll() is not None)
        while self.read(0.2):
            pass

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def settings_now(self) -> list[object]:
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        if self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                child.kill()
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture(scope="session")
def hotloop() -> Callable[..., Ended]:
    """Runs `hotloop …` to its end."""
    return run_command


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[..., Started]]:
    """Starts `hotloop …` and hands back the running command; nothing of it outlives the tests."""
    started: list[Started] = []

    def begin(*arguments: object, cwd: Path) -> Started:
        started.append(Started(*arguments, cwd=cwd))
        return started[-1]

    yield begin
    for command in started:
        command.clean_up()


@pytest.fixture
def on_terminal(project: Path) -> Iterator[Callable[..., Terminal]]:
    """Starts `hotloop …` on a terminal; nothing of it outlives the test."""
    started: list[Terminal] = []

    def begin(*arguments: object) -> Terminal:
        started.append(Terminal(*arguments, cwd=project))
        return started[-1]

    yield begin
    for terminal in started:
        terminal.close()


@pytest.fixture(scope="session")
def make_project() -> Callable[[Path], Path]:
    """Puts the loops and scripts of these tests into a folder where runs may be saved."""

    def copy(into: Path) -> Path:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(TARGETS, into, dirs_exist_ok=True, ignore=ignore)
        return into

    return copy


@pytest.fixture
def project(make_project: Callable[[Path], Path], tmp_path: Path) -> Path:
    """A user's folder, one for each test."""
    return make_project(tmp_path)


@pytest.fixture(scope="module")
def shared_project(
    make_project: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A user's folder, one for all tests of a file."""
    return make_project(tmp_path_factory.mktemp("project"))
