"""Commands that run when this process has ended, in whatever way: nothing of it is left behind."""

import contextlib
import subprocess

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
