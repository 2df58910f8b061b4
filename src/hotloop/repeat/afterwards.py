"""Commands that run when this process has ended, in whatever way: nothing of it is left behind."""

import contextlib
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from hotloop.loop.control import ENVIRONMENT_VARIABLE
from hotloop.repeat import git


class Afterwards:
    """A shell command that waits in a small process of its own.

    That process reads from a pipe whose other end only this process holds open: when this one is
    killed, the pipe ends, and the command runs.
    """

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(
            # A line means that there is nothing to do; the end of the pipe that there is.
            ["sh", "-c", f"read line || {{ {command}; }}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=git.environment(),  # the command may be git's
            start_new_session=True,
        )

    def run(self) -> None:
        """Run the command now."""
        self._end(b"")

    def forget(self) -> None:
        """End without it."""
        self._end(b"\n")

    def _end(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line)
            self._process.stdin.close()
        self._process.wait()


# Ends what has a word in its environment, apart from this shell. %s: the word.
_END_MARKED = """
for each in $(grep -lsz '^%s' /proc/[0-9]*/environ); do
    each=${each#/proc/}; each=${each%%/environ}
    [ "$each" = $$ ] || kill -KILL "$each"
done"""


@contextlib.contextmanager
def removed_if_killed(folder: Path) -> Iterator[None]:
    """Have a folder removed if this process is killed within, and the programs it has started.

    Where it is not, they are the caller's to remove and to end. Programs are known by the control
    that they inherit (see `hotloop.loop.control`).
    """
    # The slash, so that no other process's number begins alike.
    ours = f"{ENVIRONMENT_VARIABLE}=/proc/{os.getpid()}/"
    # What is killed may write for a moment longer.
    remove = f"rm -rf {shlex.quote(str(folder))}"
    killed = Afterwards(f"{_END_MARKED % ours}\n{remove}; sleep 1; {remove}")
    try:
        yield
    finally:
        killed.forget()
