"""Small file systems for one command each: full soon, or read-only."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
mkdir disk && mount -t tmpfs -o size={size}k disk disk || exit 99
{between}
"$@"
code=$?
{after}
exit $code
"""


def on_disk(*, size_kb: int = 64, between: str = "true", after: str = "true") -> tuple[str, ...]:
    """What starts a command beside a folder `disk` that is a disk of its own.

    It is a piece of memory in a mount namespace that ends with the command. between: shell commands
    that run once it is there; after: that run at the end. Skips where nothing can be mounted.
    """
    user = () if os.geteuid() == 0 else ("--map-root-user",)
    start = ("unshare", "--mount", *user)
    mount = "mount -t tmpfs -o size=8k probe /mnt"
    if (
        shutil.which("unshare") is None
        or subprocess.run([*start, "sh", "-c", mount], capture_output=True).returncode
    ):
        pytest.skip("a file system cannot be mounted here")
    script = _SCRIPT.format(size=size_kb, between=between, after=after)
    return (*start, "sh", "-c", script, "sh")


def run_python_on_disk(
    code: str, cwd: Path, *, size_kb: int = 64, between: str = "true"
) -> subprocess.CompletedProcess[str]:
    """Run Python code beside such a disk."""
    return subprocess.run(
        [*on_disk(size_kb=size_kb, between=between), sys.executable, "-c", code],
        cwd=cwd,
        capture_output=True,
        text=True,
    )
