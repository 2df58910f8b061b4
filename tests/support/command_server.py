"""Commands in processes that are forked from one which has imported everything already.

A command of the tests takes a second of importing and a tenth of a second of its own. Here a server
imports once and forks for each command: a real process with its own folder, environment, output
and exit code, only sooner. What starts, interrupts or kills a command uses a fresh interpreter.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LIGHT = ("benchmark", "simplify", "report", "doctor", "backends")
WITH_TORCH = ("train", "evaluate", "simulate", "calibrate")
_MORE = {
    "light": ("hotloop.envs.sweep",),
    "torch": (
        *("hotloop.learn.ppo", "hotloop.models.epidemic.covid", "hotloop.results.train"),
        "torch._dynamo",  # the first optimiser imports it, for 0.8 s
    ),
}
_READY = "ready\n"


class CommandServer:
    """The tests' side: starts the server when it is first needed, and ends it at exit."""

    def __init__(self, kind: str, command: str) -> None:
        self._kind, self._command = kind, command
        self._place = Path()  # of its socket; made where it is needed, as few processes ask for it
        self._process: subprocess.Popen[str] | None = None
        self._starting = threading.Lock()

    def run(
        self,
        arguments: Sequence[str],
        cwd: Path,
        variables: Mapping[str, str],
        timeout_s: float,
        script: Path | None = None,
    ) -> tuple[int, str, str]:
        """Run a command, or a script of Python, to its end; returns its exit code and what it
        printed.

        Raises: TimeoutError if it does not end.
        """
        with self._starting:
            self._start()
        with (
            socket.socket(socket.AF_UNIX) as connection,
            tempfile.TemporaryDirectory(prefix="hotloop-tests-") as folder,
        ):
            connection.connect(str(self._place))
            connection.settimeout(timeout_s)
            out, err = Path(folder) / "out", Path(folder) / "err"
            request = {
                "arguments": [self._command if script is None else str(script), *arguments],
                "cwd": str(cwd),
                "variables": dict(variables),
                "out": str(out),
                "err": str(err),
            }
            connection.sendall(json.dumps(request).encode() + b"\n")
            code = int(connection.makefile().readline())
            return code, out.read_text(), err.read_text()

    def _start(self) -> None:
        if self._process is not None:
            return
        self._place = Path(tempfile.mkdtemp(prefix="hotloop-tests-")) / "socket"
        code = "from support.command_server import serve; import sys; serve(*sys.argv[1:])"
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, self._kind, str(self._place)],
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._end)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == _READY

    def _end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._place.unlink(missing_ok=True)
        self._place.parent.rmdir()


def serve(kind: str, place: str) -> None:
    """Import what the commands need, then fork one process for each connection.

    It ends within a second after the tests that started it were killed.
    """
    tests = os.getppid()
    for verb in LIGHT if kind == "light" else WITH_TORCH:
        importlib.import_module(f"hotloop.cli.{verb}")
    for module in _MORE[kind]:
        importlib.import_module(module)
    gc.freeze()  # else the collector would write to, and so copy, every page that is shared
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(64)
        print(_READY, end="", flush=True)
        while os.getppid() == tests:
            if not select.select([listening], [], [], 1.0)[0]:
                continue
            connection, _ = listening.accept()
            while _reap():
                pass
            if os.fork() == 0:
                listening.close()
                _answer(connection)
                return
            connection.close()
    Path(place).unlink()
    Path(place).parent.rmdir()


def _reap() -> bool:
    """Collect a command that has ended."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] > 0
    except ChildProcessError:
        return False


def _answer(connection: socket.socket) -> None:
    """Run one command in a child of this process, and answer with its exit code."""
    request = json.loads(connection.makefile().readline())
    child = os.fork()
    if child == 0:
        connection.close()
        _become(request)
        if sys.argv[0].endswith(".py"):
            runpy.run_path(sys.argv[0], run_name="__main__")
            sys.exit()
        sys.exit(importlib.import_module("hotloop.cli.main").main())
    _, status = os.waitpid(child, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(request: Mapping[str, Any]) -> None:
    """Take on the folder, environment, arguments and output of a command."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["variables"])
    for descriptor, file in ((1, request["out"]), (2, request["err"])):
        target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, descriptor)
        os.close(target)
    sys.argv = request["arguments"]
    sys.path[0] = str(Path(request["arguments"][0]).parent)
    tests = str(Path(__file__).parents[1])
    sys.path[:] = [place for place in sys.path if place != tests]
