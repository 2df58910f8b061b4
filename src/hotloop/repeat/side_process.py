"""A side of a comparison while it runs: a process that waits, frozen, until it is its turn."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from typing import Any

from hotloop.errors import SideError
from hotloop.repeat.afterwards import Afterwards
from hotloop.repeat.channel import Channel, Closed
from hotloop.repeat.sides import TEST, Side

GRACE_S = 3.0  # to end by itself, then after a signal
_SHOWN_LINES = 8  # of what a side that died printed last
_MODULE = "hotloop.cli.side"


class SideProcess:
    """One side's process, from its start to its end; a context that leaves nothing behind.

    While it is not its turn the whole group of its processes is stopped: its workers and threads
    neither take the processor from the other side nor work ahead.
    """

    def __init__(self, side: Side, seed: int) -> None:
        """seed: of Python's hashes, the same on both sides."""
        self.side = side
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [side.place.python, "-m", _MODULE, str(theirs.fileno())],
                cwd=side.place.folder,
                # Equal hashes on both sides: equal code then lays out its data alike.
                env=side.environment() | {"PYTHONHASHSEED": str(seed)},
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                # Ctrl-C is for the comparison alone.
                process_group=0,
            )
        group = f"-{self.process.pid}"
        self._if_we_are_killed = Afterwards(
            f"kill -CONT -- {group}; kill -TERM -- {group}; sleep 2; kill -KILL -- {group}"
        )
        self._channel = Channel(ours)
        self._tell(
            {
                "kind": side.kind,
                "target": side.words[0],
                "arguments": list(side.words[1:]) if side.kind != TEST else [],
                "settings": dict(side.settings),
                "levers": dict(side.levers),
                "original": None if side.place.original is None else str(side.place.original),
            }
        )

    def begin(self) -> dict[str, Any]:
        """Wait until the loop is at its first iteration: its unit.

        Raises: SideError if it failed, or runs code of another tree than its own.
        """
        found = self._answer()
        if found["foreign_modules"]:
            raise SideError(
                f"{self._named()} imports {', '.join(found['foreign_modules'][:3])} from the "
                f"working tree {self.side.place.original}, and not from its own version: expected "
                "imports that follow the folder of the script or the module path"
            )
        return found

    def order(self, message: dict[str, Any]) -> None:
        """Let it do something; it runs from now on. Raises: SideError."""
        self.thaw()
        self._tell(message)

    def answer(self) -> dict[str, Any]:
        """Wait until it is done, then stop it. Raises: SideError; EndedEarly."""
        found = self._answer()
        self.freeze()
        return found

    def freeze(self) -> None:
        """Stop all of its processes where they are."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def pin(self, core: int) -> None:
        """Have its main thread run on this core only."""
        with contextlib.suppress(OSError):
            os.sched_setaffinity(self.process.pid, {core})

    def kill(self) -> None:
        """End all of its processes at once."""
        self._signal(signal.SIGKILL)

    def end(self) -> None:
        """Tell it to close its loop and to end."""
        with contextlib.suppress(SideError):
            self.order({"end": True})

    def close(self) -> None:
        """Wait for its end, or kill it after a while."""
        self.thaw()
        self._channel.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self._signal(number)
            try:
                self.process.wait(GRACE_S)
                break
            except subprocess.TimeoutExpired:
                continue
        self._signal(signal.SIGKILL)  # what it has left in its group
        self.process.wait()
        self._if_we_are_killed.forget()
        self._output.close()

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self._channel.send(message)
        except Closed:
            raise self._died() from None

    def _answer(self) -> dict[str, Any]:
        try:
            found = self._channel.receive()
        except Closed:
            raise self._died() from None
        if "ended" in found:
            raise self._ended(found)
        return found

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _ended(self, message: dict[str, Any]) -> Exception:
        error = message["ended"]
        if error is None:
            return EndedEarly(self._named(), message.get("why"))
        if error["ours"]:
            return SideError(f"{self._named()}: {error['text']}")
        where = f"\n{error['where'].rstrip()}" if error["where"] else ""
        return SideError(
            f"{self._named()}: the loop raised {error['type']}: {error['text']}{where}"
        )

    def _died(self) -> SideError:
        deadline = time.monotonic() + GRACE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        code = self.process.poll()
        how = "is gone" if code is None else exit_text(code)
        self._output.seek(0)
        printed = self._output.read().decode(errors="replace")
        if _MODULE.startswith(missing_module(printed)):
            return SideError(
                f"{self._named()}: expected this version of hotloop where {self.side.place.python} "
                "imports it from, got an older one or none; install it there, or compare whole "
                'commands, as in "python script.py"'
            )
        return SideError(f"{self._named()} {how}{last_lines(printed)}")

    def _named(self) -> str:
        return f"{self.side.name} ({self.side.label})"


class EndedEarly(Exception):
    """A side that ended, without an error, before it was told to. why: if it was stopped."""

    def __init__(self, side: str, why: str | None) -> None:
        super().__init__(side, why)
        self.side, self.why = side, why


def missing_module(printed: str) -> str:
    """The module that Python said last it does not have; a blank where it said nothing of it."""
    found = re.findall(r"No module named '?([\w.]+)", printed)
    return str(found[-1]) if found else " "


def last_lines(printed: str) -> str:
    """How a message ends about a process that failed: with what it printed last, if anything."""
    lines = printed.strip().splitlines()[-_SHOWN_LINES:]
    return "; it printed last:" + "".join(f"\n  {line}" for line in lines) if lines else ""


def exit_text(code: int) -> str:
    """How a process ended, in words."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
        return f"was ended by signal {-code}"
    return f"exited with {code}"
