"""Loops to be compared."""

import os
import time
from pathlib import Path

import hotloop


def work(amount: int) -> int:
    total = 0
    for number in range(amount):
        total += number * number % 7
    return total


def make(amount=2_000, unit="samples", ends_after=None, breaks_after=None):
    """A loop of this much work; it may end, or break, after some iterations."""
    done = 0

    def body():
        nonlocal done
        done += 1
        if done == ends_after:
            raise StopIteration
        if done == breaks_after:
            raise ValueError("no more data")
        work(amount)
        return 10

    return hotloop.Loop(body=body, unit=unit)


def slow():
    """Twice the work."""
    return make(4_000)


def from_environment():
    return make(int(os.environ["AMOUNT"]))


def that_dies():
    def body():
        os._exit(7)

    return hotloop.Loop(body=body, unit="samples")


def that_says_when(name="measuring"):
    """Makes a file as soon as it runs."""
    loop = make()

    def body():
        Path(name).touch()
        return loop.body()

    return hotloop.Loop(body=body, unit="samples")


def waiting(seconds=0.001):
    def body():
        time.sleep(seconds)
        return 1

    return hotloop.Loop(body=body, unit="samples")


READY = make()  # a loop by itself, which no settings can change
