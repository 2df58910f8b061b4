"""What runs between the stages, found on a loop whose parts take known times."""

import functools
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from hotloop.loop.conduct import drive
from hotloop.loop.control import SharedControl
from hotloop.loop.loop import Loop
from hotloop.loop.stage import Stage
from hotloop.simplify.record import Record
from hotloop.simplify.rest import sample_rest
from hotloop.simplify.stage_facts import Place

ACT_SHARE = 2 / 18


def prepare() -> None:
    time.sleep(0.009)


def decorated(function: Callable[[], None]) -> Callable[[], None]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> None:
        return function(*args)

    return wrapper


@decorated
def normalise() -> None:
    time.sleep(0.005)


def sampled(record: Record) -> list[Place]:
    """Of a loop that acts for 2 of 18 ms, and does three other things."""
    control = SharedControl()
    act = Stage("act", control=control)(lambda: time.sleep(0.002))

    def within() -> None:
        act()
        prepare()

    def body() -> int:
        within()
        normalise()
        # One wait, as each part has: beside busy processes each of them lasts longer, by as much.
        [time.sleep(0.002) for _ in range(1)]  # the time of the loop's own lines
        return 1

    drive(Loop(body), sample_rest([record], budget=25.0), control)
    assert record.rest_share_when_sampled == (record.rest_share if record.stages else None)
    return record.rest_places


@pytest.fixture(scope="module")
def places() -> list[Place]:
    record = Record()
    timed_stage: Any = types.SimpleNamespace(share=ACT_SHARE, inside=None, beside_main=False)
    record.stages.append(timed_stage)
    return sampled(record)


def test_functions_between_the_stages_are_named_as_stages_are(places: list[Place]) -> None:
    first, second, *_ = places
    assert first.stage == f"{__name__}:prepare"
    assert first.function == "prepare"
    assert second.stage == f"{__name__}:normalise", "not the wrapper of its decorator"
    assert first.share > second.share > 0.1


def test_what_a_function_that_calls_stages_does_by_itself(places: list[Place]) -> None:
    by_itself = [place for place in places if place.calls_stages]
    assert [place.function for place in by_itself] == ["sampled.<locals>.body"]
    assert by_itself[0].stage is None
    with open(__file__) as file:
        assert "the loop's own lines" in file.readlines()[by_itself[0].line - 1]


def test_stages_and_hotloop_are_not_among_them(places: list[Place]) -> None:
    assert all("lambda" not in place.function for place in places)
    assert all(__file__ == place.file for place in places)
    # Samples say what the time between the stages is made of, and not how much it is.
    assert sum(place.share for place in places) <= (1 - ACT_SHARE) * 1.001


def test_before_the_stages_are_timed_they_have_their_share_of_the_samples() -> None:
    assert 0.1 < sum(place.share for place in sampled(Record())) < 1.0
