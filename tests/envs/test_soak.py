"""A short soak: random kills, partial batches, and no transition lost or doubled."""

import multiprocessing

import psutil
import pytest
from benchmarks.soak import soak


def test_soak():
    before = psutil.Process().num_fds()
    soaked = soak(50_000, num_envs=32, num_workers=2, kill_every=4_000)
    assert soaked.kills > 5
    assert 0 < soaked.lost_episodes <= 16 * soaked.kills
    assert soaked.transitions > 0.8 * soaked.steps
    assert soaked.memory_mib[-1] - soaked.memory_mib[1] < 8
    assert soaked.descriptors[-1] <= soaked.descriptors[0]
    assert psutil.Process().num_fds() <= before + 1  # the map's, until it is collected
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_soak_of_many_workers():
    soaked = soak(300_000, num_envs=64, num_workers=16, kill_every=2_000, seed=1)
    assert soaked.kills > 50
    assert soaked.lost_episodes > 0
