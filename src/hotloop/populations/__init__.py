"""Populations of agents: drawn from a seed, or read from a folder.

    from hotloop.populations import astoria, load

    data = load(astoria)

Importing this loads neither torch nor pandas, and compiles nothing.
"""

from hotloop.errors import expect_linux

expect_linux()

from hotloop.populations import astoria, brooklyn
from hotloop.populations.data import PopulationData
from hotloop.populations.load import load

__all__ = ["PopulationData", "astoria", "brooklyn", "load"]
