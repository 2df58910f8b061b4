"""Git as a command: without what a hook of git would lead it astray with."""

import os


def environment() -> dict[str, str]:
    """The environment for a git command, or for a process that runs one.

    A hook of git runs with variables that lead to the repository of the hook.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
