"""What Ray warns of by itself, and tests that are stricter than Ray have to pass over."""

import pytest

# Files that it leaves to the garbage collector, interfaces that it is about to change.
RAY_WARNINGS = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
