"""The doctor's findings, from known facts."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.benchmark.doctor import examine, noise_of
from hotloop.loop.host import cores, host_facts, usable_cores, usable_cpus, whole_cores


def test_every_finding_says_what_it_means() -> None:
    findings = examine(seconds=0.2)
    assert {"cores", "clock", "waits", "noise", "GPU", "ptrace", "pressure"} <= {
        finding.name for finding in findings
    }
    assert all(finding.value and finding.means for finding in findings)


@given(st.floats(0.001, 0.3))
@settings(max_examples=10)
def test_the_smallest_gain_grows_with_the_noise(spread: float) -> None:
    rng = np.random.default_rng(0)
    quiet = noise_of(*np.exp(rng.normal(0, spread / 4, (2, 400))), seconds=5.0)
    loud = noise_of(*np.exp(rng.normal(0, spread, (2, 400))), seconds=5.0)
    assert loud.smallest_gain > quiet.smallest_gain
    assert quiet.same.low <= quiet.same.value <= quiet.same.high


def test_usable_cores_never_exceed_the_affinity() -> None:
    assert 0 < usable_cores() <= cores()
    assert host_facts()["cores"] == cores()


def test_whole_cores_are_among_those_that_may_be_used() -> None:
    assert len(usable_cpus()) == cores()
    assert 1 <= whole_cores() <= cores()
