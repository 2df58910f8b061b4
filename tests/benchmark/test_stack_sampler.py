"""Samples of a thread's stack, against times that the thread itself has measured."""

import random
import sys
import time
import types
from collections import Counter
from collections.abc import Sequence

import pytest

from hotloop.benchmark.stack_sampler import STALL_S, StackSampler, stands_for_s

ROUNDS = 10
NUMBERS = list(range(40_000))
random.Random(0).shuffle(NUMBERS)


def computes() -> None:
    """One native call that keeps the interpreter lock to its end, for some ms."""
    sorted(NUMBERS)


def sleeps() -> None:
    time.sleep(0.01)


def test_a_function_that_keeps_the_interpreter_lock_has_its_share_of_the_time() -> None:
    """The sampler takes one sample after each such call, and ten while the loop sleeps."""
    sampled: Counter[str] = Counter()
    number: Counter[str] = Counter()

    def take(stack: Sequence[types.FrameType], seconds: float) -> None:
        name = "computes" if any(f.f_code is computes.__code__ for f in stack) else "other"
        sampled[name] += round(seconds * 1e9)
        number[name] += 1

    switch_s = sys.getswitchinterval()
    sampler = StackSampler(take)
    sampler.start()
    try:
        for _ in range(ROUNDS):
            computes()
            sleeps()
    finally:
        sampler.stop()
    assert sys.getswitchinterval() == switch_s
    share = sampled["computes"] / sampled.total()
    # A twelfth of the samples on a quiet machine, where the share is the true one. On a busy one
    # fewer are taken while the loop sleeps, and some come late, when the call has ended.
    assert number["computes"] / number.total() < share, "samples alone would tell another story"


def test_a_stall_counts_for_no_line() -> None:
    assert stands_for_s(0.643, 0.64) == pytest.approx(0.003), "another program had the core"
    assert stands_for_s(0.643, 0.0) == 0.643, "the loop kept the interpreter lock, or waited"
    assert stands_for_s(0.012, STALL_S) == 0.012, "its own threads may have had the core"
    assert stands_for_s(0.02, 0.03) == 0.0, "the two clocks were read one after the other"
