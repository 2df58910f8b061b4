"""Git in the repositories of tests: no user's configuration, and no repository of a hook."""

import os
import subprocess
from pathlib import Path

_AUTHOR = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
_LOCAL = ("-c", "protocol.file.allow=always")


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; returns what it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *_AUTHOR, *_LOCAL, *words],
        cwd=folder,
        env=kept | {"GIT_CONFIG_GLOBAL": os.devnull},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()
