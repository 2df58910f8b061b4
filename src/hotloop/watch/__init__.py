"""Watching a training that really goes on: `hotloop.watch()`, and callbacks of libraries.

The package can be called, so that `hotloop.watch()` and `hotloop.watch.lightning` are one name.
"""

import sys
from types import ModuleType
from typing import Any

from hotloop.watch.watching import Watch, watch

__all__ = ["Watch", "watch"]


class _CallablePackage(ModuleType):
    """A package that does what its function of the same name does."""

    def __call__(self, **settings: Any) -> Watch:
        return watch(**settings)


sys.modules[__name__].__class__ = _CallablePackage
