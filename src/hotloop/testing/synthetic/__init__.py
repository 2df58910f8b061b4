"""Envs of set cost, size and faults, for benchmarks, tests of faults, and ceilings."""

from hotloop.testing.synthetic.counters import Counters, Ledger, read_counters
from hotloop.testing.synthetic.env import SyntheticEnv, synthetic_fns
from hotloop.testing.synthetic.settings import Duration, Failure, SyntheticSettings
from hotloop.testing.synthetic.vector import SyntheticVectorEnv

__all__ = [
    "Counters",
    "Duration",
    "Failure",
    "Ledger",
    "SyntheticEnv",
    "SyntheticSettings",
    "SyntheticVectorEnv",
    "read_counters",
    "synthetic_fns",
]
