"""Tests of envs: a conformance kit for envs of your own, and synthetic envs of known cost.

    from hotloop.testing.conformance import ConformanceSettings, check
    from hotloop.testing.synthetic import Duration, Failure, SyntheticEnv, SyntheticSettings

`check(make)` tests an env or a vector env against Gymnasium's contract. A `SyntheticEnv` has a
set step time, observation size, episode length and faults; `SyntheticVectorEnv` holds many.
"""
