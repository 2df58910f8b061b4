"""A process of this machine that is started as a program, and the driver's end of it.

Not forked: threads of the driver (torch, Ray) cannot hang it, and a script needs no guard around
its main part. It ends with its driver, however that ends.
"""

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from hotloop.data.shared import SharedBlock
from hotloop.envs.process.worker import end_with_driver
from hotloop.loop.host import THREAD_VARIABLES

CLOSE_S = 5.0  # programs that have not ended so long after their connections were closed are killed
_COMMAND = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"


class Program(ABC):
    """The driver's end of one process.

    module: its `main` is run there; see `serve_driver`. threads: of numerical libraries.
    """

    def __init__(self, module: str, threads: int) -> None:
        self.connection, theirs = Pipe()
        # The kernel ends a program with the thread that started it, which must outlive it then.
        is_main = threading.current_thread() is threading.main_thread()
        with theirs:
            arguments = [theirs.fileno(), os.getpid(), int(is_main)]
            command = _COMMAND.format(path=sys.path, module=module)
            self.process = subprocess.Popen(
                [sys.executable, "-c", command, *map(str, arguments)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))},
            )
        self.pidfd = os.pidfd_open(self.process.pid)

    @abstractmethod
    def receive(self) -> Any:
        """Return what its next message brings, None for nothing. Raises: EOFError or OSError."""

    def receive_all(self) -> tuple[list[Any], bool]:
        """Return what has arrived, and whether the process has died."""
        arrived: list[Any] = []
        try:
            # A dead process may have left messages; the end of file comes after them.
            while self.connection.poll(0):
                got = self.receive()
                if got is not None:
                    arrived.append(got)
            return arrived, self.process.poll() is not None and not self.connection.poll(0)
        except (EOFError, OSError):
            return arrived, True

    def send(self, *message: Any) -> None:
        """Send a message; a dead process is noticed where its answers are awaited."""
        try:
            self.connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def send_block(self, block: SharedBlock, *message: Any) -> None:
        """Send a message and a block of memory with it."""
        try:
            self.connection.send(message)
            block.send(self.connection, self.process.pid)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def end(self) -> str:
        """Kill the process if it still runs; returns how it ended."""
        if self.process.poll() is None:
            self.process.kill()
        code = self.process.wait()
        self.connection.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"process {self.process.pid}: {how}"


def wait_for_news(programs: Mapping[int, Program], timeout_s: float | None) -> list[int]:
    """Wait until a program has sent something or has died; returns which, none in time."""
    watched: dict[Any, int] = {}
    for index, program in programs.items():
        watched[program.connection] = index
        if program.pidfd >= 0:
            watched[program.pidfd] = index
    return sorted({watched[source] for source in wait(list(watched), timeout_s)})


def end_all(programs: MutableMapping[int, Any]) -> None:
    """End all programs, as the driver's end is closed; the mapping is cleared."""
    running: Iterable[Program] = list(programs.values())
    for program in running:
        program.connection.close()
    until = time.monotonic() + CLOSE_S
    for program in running:
        try:
            program.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        program.end()
    programs.clear()


# --- in the program ----------------------------------------------------------------------------


def serve_driver(serve: "Callable[[Connection[Any, Any]], None]") -> None:
    """Run the body of a program: `serve` takes the connection to the driver, until it is closed.

    Does not return, unless `serve` raises what is not about the connection.
    """
    descriptor, driver, started_by_main = map(int, sys.argv[1:4])
    end_with_driver(driver, bool(started_by_main))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles it and closes its programs
    try:
        serve(Connection(descriptor))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the driver has closed its end
    # The interpreter would take half a second more, to free every object of torch one by one.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
