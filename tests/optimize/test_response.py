"""What all turns together say about choices, most of which have run seldom or never."""

import math
import random

import numpy as np
import pytest

from hotloop.loop.lever import Lever
from hotloop.optimize.response import Response
from hotloop.optimize.space import Space

LEVERS = [
    Lever("size", (1, 2, 4, 8, 16), now=1),
    Lever("mode", ("plain", "fused", "graph"), now="plain"),
    Lever("pinned", (False, True), now=False),
]


def speed(options) -> float:
    """The logarithm of a rate: the best is size=8, graph, pinned."""
    away = abs(math.log2(options["size"]) - 3)
    return (
        -0.1 * away
        + {"plain": 0.0, "fused": 0.1, "graph": 0.25}[options["mode"]]
        + (0.1 if options["pinned"] else 0.0)
    )


def measured(space: Space, races: int, noise: float, seed: int) -> Response:
    drawn, response = random.Random(seed), Response(space)
    choices = [*space.all()]
    for _ in range(races):
        together = drawn.gauss(0, 1)
        racing = [space.start, *drawn.sample(choices[1:], 3)]
        logs = {
            each: (together + speed(space.options(each)) + drawn.gauss(0, noise), 1, 0.0)
            for each in racing
        }
        response.add(logs, noise)
    return response


def test_without_turns_nothing_is_known():
    space = Space(LEVERS)
    means, errors = Response(space).of([*space.all()])
    assert not means.any()
    assert (errors > 0).all()


def test_exact_turns_are_known_exactly():
    space = Space(LEVERS)
    response = measured(space, 60, 0.0, seed=1)
    choices = [*space.all()]
    means, errors = response.of(choices)
    start = speed(space.options(space.start))
    expected = [speed(space.options(each)) - start for each in choices]
    np.testing.assert_allclose(means, expected, atol=0.02)
    assert errors.max() < 0.05


@pytest.mark.parametrize("seed", range(5))
def test_what_is_best_is_known_from_few_noisy_turns(seed):
    space = Space(LEVERS)
    response = measured(space, 25, 0.15, seed)  # each choice about three times
    choices = [*space.all()]
    means, _ = response.of(choices)
    found = speed(space.options(choices[int(means.argmax())]))
    best = max(speed(space.options(each)) for each in choices)
    assert found > best - 0.11  # one step of one lever at most


def test_only_the_newest_rows_count(monkeypatch):
    monkeypatch.setattr("hotloop.optimize.response.ROWS", 20)
    space = Space(LEVERS)
    fast = space.choice({"size": 8})
    response = Response(space)
    response.add({space.start: (0.0, 1, 0.0), fast: (2.0, 1, 0.0)}, 0.01)
    for _ in range(10):
        response.add({space.start: (0.0, 1, 0.0), fast: (0.3, 1, 0.0)}, 0.01)
    means, _ = response.of([fast])
    assert means[0] == pytest.approx(0.3, abs=0.05)
