"""A process of this machine that works for the driver: started as a program, ended with it.

Not forked: threads of the driver (torch, Ray) cannot hang it, and a script needs no guard around
its main part.
"""

import os
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Connection, Pipe
from typing import Any

from hotloop.envs.process.worker import end_with_driver
from hotloop.loop.host import THREAD_VARIABLES

_COMMAND = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"


class ChildProcess:
    """The driver's end of a process that runs `main` of a module; see `connection_to_driver`.

    threads: of numerical libraries there, unless the user has set something else.
    """

    def __init__(self, module: str, threads: int) -> None:
        self.connection, theirs = Pipe()
        # The kernel ends a child with the thread that started it, which must outlive it then.
        is_main = threading.current_thread() is threading.main_thread()
        with theirs:
            arguments = [theirs.fileno(), os.getpid(), int(is_main)]
            command = _COMMAND.format(path=sys.path, module=module)
            self.process = subprocess.Popen(
                [sys.executable, "-c", command, *map(str, arguments)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**dict.fromkeys(THREAD_VARIABLES, str(threads)), **os.environ},
            )
        self.pidfd = os.pidfd_open(self.process.pid) if sys.platform == "linux" else -1

    def send(self, *message: Any) -> None:
        """Send a message; a dead process is noticed where its answers are awaited."""
        try:
            self.connection.send(message)
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
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def connection_to_driver() -> "Connection[Any, Any]":
    """In the child: end with the driver, leave Ctrl-C to it, and return the connection to it."""
    descriptor, driver, started_by_main = map(int, sys.argv[1:4])
    end_with_driver(driver, bool(started_by_main))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles it and closes its children
    return Connection(descriptor)
