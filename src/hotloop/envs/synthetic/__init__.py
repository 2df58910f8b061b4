"""Envs of set cost, size and faults: what benchmarks, fault tests and ceilings step."""

from hotloop.envs.synthetic.counters import Counters, Ledger, read_counters
from hotloop.envs.synthetic.env import SyntheticEnv, synthetic_fns
from hotloop.envs.synthetic.settings import Duration, Failure, SyntheticSettings
from hotloop.envs.synthetic.vector import SyntheticVectorEnv

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
