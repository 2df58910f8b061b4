"""The version of the code in a folder: its commit, and a hash of what is not committed."""

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hotloop.repeat import git

# A repository on a slow disk must not hold a command up for longer.
PATIENCE_S = 10.0
_DIFF = ("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "--full-index")
_STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=no")
_COMMIT = "# branch.oid "


@dataclass(frozen=True)
class CodeVersion:
    """commit: None outside of a git repository. diff_hash: None if no tracked file is changed."""

    commit: str | None = None
    diff_hash: str | None = None


def code_version(folder: Path) -> CodeVersion:
    """The version of the code in a folder; nothing is known of one without git.

    Calls git once, and a second time if a tracked file is changed.
    """
    if shutil.which("git") is None:
        return CodeVersion()
    status = _git(folder, *_STATUS)
    if status is None:
        return CodeVersion()
    lines = status.decode(errors="replace").splitlines()
    commit = next((line.removeprefix(_COMMIT) for line in lines if line.startswith(_COMMIT)), "(")
    if commit.startswith("("):  # "(initial)": nothing is committed yet
        return CodeVersion()
    if all(line.startswith("#") for line in lines):
        return CodeVersion(commit)
    diff = _git(folder, *_DIFF)
    return CodeVersion(commit, None if diff is None else hashlib.sha256(diff).hexdigest())


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git prints, or None where it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Otherwise `status` would write to the index, and another git would wait for it.
            env=git.environment() | {"GIT_OPTIONAL_LOCKS": "0"},
            timeout=PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
