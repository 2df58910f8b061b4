"""What holds for every test."""

import os
import signal
from pathlib import Path

import pytest

# A shell that starts the tests in the background lets them ignore Ctrl-C, which some are about.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Nothing is written to the user's cache: populations are drawn anew, in milliseconds.
os.environ["HOTLOOP_CACHE"] = ""

COMPILED = ("models", "sim", "populations")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of a file to one worker; those of compiled models to one worker all together.

    On a fresh machine every worker would compile the same functions at the same time.
    """
    for item in items:
        place = item.path.relative_to(Path(__file__).parent)
        group = "compiled" if place.parts[0] in COMPILED else place.as_posix()
        item.add_marker(pytest.mark.xdist_group(group))
