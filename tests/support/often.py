"""How often a property is tried: all its examples by `make test-all`, a part of them each time."""

import os


def examples(count: int) -> int:
    """The number of examples: `count`; a fifth of it, at least 10, where not all is asked for."""
    return count if os.environ.get("HOTLOOP_TEST_ALL") else min(count, max(10, count // 5))
