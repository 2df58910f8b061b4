"""The journal in words and charts: what is expected of a try, and charts that are well-formed."""

import dataclasses
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.loop.host import host_facts
from hotloop.repeat.entries import (
    GAIN,
    KEPT,
    RATE_A,
    RATE_B,
    RATIO,
    REVERTED,
    Metric,
    RunEntry,
    TryEntry,
)
from hotloop.repeat.journal import Contents
from hotloop.repeat.overview import overview
from hotloop.repeat.stop import Limits
from hotloop.repeat.tries import calibration, staircase
from hotloop.report.charts.calibration import calibration_chart
from hotloop.report.charts.staircase import staircase_chart
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.html import page
from hotloop.report.staircase import staircase_section
from hotloop.report.staircase_words import notes

LIMITS = Limits(hours=1000.0, price_per_hour=2.0, effort_hours=1.0)


def predicted(number: int, achieved: float) -> TryEntry:
    gains = {"predicted": Metric(0.2), "achieved": Metric(achieved)}
    return TryEntry(
        *("now", f"try {number}", "T", "a", "b", "faster", REVERTED), run=9, number=number, **gains
    )


@pytest.mark.parametrize(
    ("achieved", "saved"), [((0.1, 0.1, 0.1), "250"), ((-0.1, 0.0, -0.1), "0"), ((0.1, 0.1), None)]
)
def test_what_became_of_three_predictions_is_expected_of_the_next(
    achieved: tuple[float, ...], saved: str | None
) -> None:
    metrics = {GAIN + "update": Metric(0.25, 0.2, 0.3)}
    tries = [predicted(number, each) for number, each in enumerate(achieved, 1)]
    runs = [RunEntry("now", "simplify", "T", metrics, number=1)]
    found = overview(Contents(runs, tries), None, LIMITS, lambda run: run.metrics)
    said = [note for note in notes(found) if "would be saved" in note]
    assert len(said) == (saved is not None)
    assert saved is None or f"at that rate {saved} would be saved" in said[0]


def test_a_command_in_a_sentence_is_code_on_the_page() -> None:
    runs = [RunEntry("now", "simplify", "<T>", {}, number=1, host=host_facts())]
    found = overview(Contents(runs, []), None, LIMITS, lambda run: run.metrics)
    text = page([staircase_section(found)], title=found.target, hosts=[])
    assert "<code>hotloop simplify &lt;T&gt;</code>" in text
    assert "`" not in re.sub(r"<(style|script).*?</\1>", "", text, flags=re.DOTALL)
    assert "<T>" not in text


def test_a_prediction_of_next_to_nothing_has_no_ratio() -> None:
    tries = [predicted(1, 0.1), predicted(2, 0.3)]
    tries.append(dataclasses.replace(predicted(3, 0.5), predicted=Metric(5e-324)))
    tries.append(dataclasses.replace(predicted(4, -0.5), predicted=Metric(5e-324)))
    assert calibration(tries).ratio == pytest.approx(1.0)


SHARE = st.floats(-5, 0.99)
RATES = st.floats(1e-6, 1e12)


@st.composite
def journals(draw: st.DrawFn) -> tuple[list[TryEntry], list[RunEntry]]:
    """Tries of which some were predicted, some measured and some kept."""
    tries, runs = [], []
    for number in range(1, draw(st.integers(1, 40)) + 1):
        low, value, high = sorted(draw(st.tuples(SHARE, SHARE, SHARE)))
        metrics = {RATIO: Metric(1 - value), RATE_A: Metric(draw(RATES), unit="steps/s")}
        metrics |= {RATE_B: Metric(draw(RATES), unit="steps/s")}
        runs.append(
            RunEntry("now", "compare", "T", metrics if draw(st.booleans()) else {}, number=number)
        )
        tries.append(
            TryEntry(
                *("now", '<b> & "quoted" \x00', "T", "a", "b", "faster"),
                draw(st.sampled_from([KEPT, REVERTED])),
                predicted=draw(st.none() | st.builds(Metric, SHARE)),
                achieved=draw(st.sampled_from([None, Metric(value), Metric(value, low, high)])),
                run=number,
                number=number,
            )
        )
    return tries, runs


def check(chart: str) -> ET.Element:
    root = ET.fromstring(chart)
    assert not re.search(r'="[^"]*\b(nan|inf)\b', chart)
    return root


@pytest.mark.long
@pytest.mark.parametrize("width", [WIDE, NARROW])
@given(journal=journals())
def test_the_charts_are_well_formed(
    width: float, journal: tuple[list[TryEntry], list[RunEntry]]
) -> None:
    tries, runs = journal
    found = staircase(tries, runs, 2.0)
    root = check(staircase_chart(found, width=width, name="s"))
    if found.rate is not None and any(step.rate for step in found.steps):
        points = [each for each in root.iter() if each.tag == "circle"]
        assert len(points) == 1 + sum(step.rate is not None for step in found.steps)
    predictions = calibration(tries).predictions
    if predictions:
        root = check(calibration_chart(predictions, width=width, name="c"))
        assert sum(each.tag == "circle" for each in root.iter()) == len(predictions)
        for each in root.iter("circle"):
            assert 0 <= float(each.attrib["cx"]) <= width
