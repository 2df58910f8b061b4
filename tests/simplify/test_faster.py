"""The gain of a faster stage, from tables in which every time is known."""

import numpy as np
import pytest

from hotloop.simplify.arm_names import BASELINE, faster_name, free_name
from hotloop.simplify.estimate import Samples
from hotloop.simplify.faster import gain_if_faster
from hotloop.simplify.record import Record
from support.stages import stage_facts

FREE = free_name("x")


def gain(
    ms: dict[str, float], own_ms: dict[str, float], k: float, *, concurrent: bool, noise: float = 0
) -> tuple[float, float, float]:
    """The gain of stage x for loops that take `ms`, and its own calls `own_ms`, in each arm."""
    arms, rng = list(ms), np.random.default_rng(1)
    ns = np.array([list(ms.values())] * 12) * rng.normal(1, noise, (12, len(arms)))
    own = np.array([[own_ms[arm] for arm in arms]] * 12)[:, :, None]
    one = np.ones_like(ns)
    serial = not concurrent
    # Everything else computes for 3 in an iteration, on another thread.
    cpu = 3.0 + own[:, :, 0]
    samples = Samples(ns, one, arms, arms[:1], stage_ns=own, cpu_ns=cpu, serial=serial)
    x = stage_facts("x", 0, own_ms[BASELINE])
    record = Record(stages=[x], concurrent=concurrent, faster=[2.0])
    free = samples.means([BASELINE, FREE]).gain(FREE, BASELINE)
    found = gain_if_faster(record, samples, x, free, k)
    assert found is not None
    return found.value, found.low, found.high


def burned(base: float, free: float, half: float) -> dict[str, float]:
    return {BASELINE: base, FREE: free, faster_name("x", "burn", 2.0): half}


@pytest.mark.parametrize(("k", "expected"), [(2.0, 0.2), (4.0, 0.3)])
def test_in_a_sequence_a_part_of_the_time_gains_that_part(k: float, expected: float) -> None:
    value, low, high = gain(burned(10, 6, 8), burned(4, 0, 2), k, concurrent=False)
    assert value == pytest.approx(expected)
    assert high - low == pytest.approx(0, abs=1e-9)


def test_what_a_stage_leaves_in_the_caches_widens_the_interval() -> None:
    """Free, 6 of 10 are gained: 4 of its own, 2 of its neighbours', which burning hides."""
    value, low, high = gain(burned(10, 4, 6), burned(4, 0, 2), 2.0, concurrent=False)
    assert value == pytest.approx(0.3)
    assert (low, high) == (pytest.approx(0.2), pytest.approx(0.4))


def test_a_check_that_agrees_within_its_error_widens_nothing() -> None:
    _, low, high = gain(burned(10, 6, 8), burned(4, 0, 2), 2.0, concurrent=False, noise=0.01)
    _, free_low, free_high = gain(burned(10, 6, 8), burned(4, 0, 2), 1e9, concurrent=False)
    assert high - low < 0.02
    assert free_high - free_low < 0.02


def test_side_by_side_half_of_the_work_may_gain_everything() -> None:
    """A consumer of 4 behind a producer of 3: from half of its work on it waits."""
    value, _, _ = gain(burned(4, 3, 3), burned(4, 0, 2), 2.0, concurrent=True)
    assert value == pytest.approx(0.25)


@pytest.mark.parametrize("concurrent", [False, True])
def test_never_more_than_a_free_stage_gains(concurrent: bool) -> None:
    value, _, high = gain(burned(10, 8, 6), burned(4, 0, 1), 2.0, concurrent=concurrent)
    assert value <= 0.2 + 1e-9
    assert high <= 0.2 + 1e-9


def test_a_stage_whose_absence_costs_time_costs_half_of_it_if_half_is_gone() -> None:
    """Its work keeps the caches warm, or it is noise: then a part is not the whole of it."""
    value, low, high = gain(burned(10, 11, 10.5), burned(4, 0, 2), 2.0, concurrent=False)
    assert value == pytest.approx(-0.05)
    assert low <= value + 1e-9
    assert value - 1e-9 <= high <= 1e-9
