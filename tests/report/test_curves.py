"""Curves by day, drawn from their run: what is computed, and that every face of it agrees."""

import re
import xml.etree.ElementTree as ET
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hotloop.benchmark.noise import Interval
from hotloop.errors import RunError
from hotloop.loop.run import Run, load
from hotloop.report.charts.curves import curve_chart, drawn
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.console_curves import print_calibrate, print_simulate
from hotloop.report.curves import Curve, fitted, shown_days, simulated
from hotloop.report.html import render
from hotloop.report.picture import write_picture

HOST = {
    "date": "2026-01-02T03:04:05+00:00",
    "processor": "Test CPU",
    "cores": 2,
    "quota_cores": None,
    "memory_bytes": 8 << 30,
    "python": "3.11.0",
    "gpu": None,
    "command": "hotloop simulate covid",
}
STATS = {
    "agent_steps_per_s": 2e8,
    "active_share": 0.05,
    "program": "fused cpu",
    "precision": "double",
}
NASTY = "town [bold] <&>"


def facts(**others: Any) -> dict[str, Any]:
    return {
        "model": "covid",
        "population": NASTY,
        "agents": 1000,
        "contacts": 4000,
        "infected_at_start": 3,
        "replicates": 40,
        "device": "cpu",
        "seconds": 0.5,
        "stats": STATS,
        "notes": [],
    } | others


def simulate_run(replicates: int = 40, days: int = 10, **others: Any) -> Run:
    """Run r of R infects r a day, more on day 5; nobody dies but in the last run."""
    infected = np.repeat(np.arange(replicates)[:, None], days, axis=1)
    if days > 5:
        infected[:, 5] += 10
    deaths = np.zeros_like(infected)
    deaths[-1, -1] = 7
    return Run(
        verb="simulate",
        target=f"covid:{NASTY}",
        settings={"seed": 0, "steps": 10, "replicates": 40},
        facts=facts(replicates=replicates),
        arrays={"daily_infected": infected, "daily_deaths": deaths},
        host=HOST,
        **others,
    )


def calibrate_run(**others: Any) -> Run:
    days = np.arange(10.0)
    band = np.stack([days, days - 1, days + 1])
    return Run(
        verb="calibrate",
        target=f"covid:{NASTY}",
        settings={"seed": 0},
        facts=facts(
            mortality=0.1, mortality_first=0.12, mortality_interval=[0.05, 0.2], notes=["a <note>"]
        ),
        arrays={
            "loss": np.array([8.0, 2.0, 1.0]),
            "rate": np.array([3.0, 4.0]),
            "rate_first": np.array([4.75, 4.75]),
            "rate_interval": np.array([[2.5, 3.6], [1e-90, 1e90]]),
            "observed_infected": np.where(days == 4, 9.0, days),
            "observed_deaths": days,
            "infected": band,
            "deaths": band,
        },
        host=HOST,
        **others,
    )


def printed(run: Run, width: int = 120) -> str:
    console = Console(file=StringIO(), width=width)
    if run.verb == "simulate":
        print_simulate(console, simulated(run), run, charts=True)
    else:
        print_calibrate(console, fitted(run), run, charts=True)
    return console.file.getvalue()


def lines(curve: Curve, width: int = 64) -> list[str]:
    return ["".join(cell.char for cell in row) for row in drawn(curve, width=width)[0]]


def flat(values: list[float], **others: Any) -> Curve:
    return Curve("infections", values, values, values, **others)


def test_the_interval_is_of_the_runs_not_of_the_days() -> None:
    found = simulated(simulate_run())
    assert found.infected == Interval(205.0, *np.percentile(np.arange(40) * 10 + 10, [2.5, 97.5]))
    assert found.peak.value == 29.5
    assert (found.peak_day.value, found.peak_day.low, found.peak_day.high) == (5, 5, 5)
    assert found.daily[0].middle == [19.5] * 5 + [29.5] + [19.5] * 4
    assert found.totals[0].middle[-1] == found.infected.value
    assert found.deaths.value == 0 < found.deaths.high


@pytest.mark.parametrize(
    ("run", "note"),
    [
        (simulate_run(replicates=1), "one run: too few"),
        (simulate_run(replicates=5), "5 runs: too few"),
        (simulate_run(days=4, complete=False), "interrupted: 4 of 10 days"),
        (calibrate_run(complete=False), "the fit was interrupted"),
    ],
)
def test_what_weakens_a_report_is_said_in_both(run: Run, note: str) -> None:
    assert note in printed(run)
    assert note in render([run])


def test_an_interval_that_says_nothing_is_not_shown() -> None:
    found = fitted(calibrate_run())
    first, second, mortality = found.parameters
    assert (first.value, first.why_no_interval) == (Interval(3.0, 2.5, 3.6), "")
    assert second.value == Interval(4.0, 4.0, 4.0)
    assert second.why_no_interval == "the observed days say nothing about it"
    assert mortality.value == Interval(0.1, 0.05, 0.2)
    assert "e-90" not in printed(calibrate_run()) + render([calibrate_run()])


def test_the_fit_counts_the_observed_days_inside_its_band() -> None:
    assert fitted(calibrate_run()).inside == (19, 20)
    assert "19 of 20 observed counts" in printed(calibrate_run())


def test_a_fit_cut_short_has_no_curves() -> None:
    run = calibrate_run(complete=False)
    for name in ("infected", "deaths"):
        del run.arrays[name]
    run.facts["mortality_interval"] = None
    run.arrays["rate_interval"][:] = np.nan
    found = fitted(run)
    assert found.daily == []
    assert found.inside is None
    assert {each.why_no_interval for each in found.parameters} == {"the fit was cut short"}
    assert "nan" not in printed(run) + render([run])


@pytest.mark.parametrize("run", [simulate_run(), calibrate_run()], ids=lambda run: run.verb)
def test_terminal_and_page_say_the_same(run: Run, tmp_path: Path) -> None:
    page, text = render([run]), printed(run)
    plain = re.sub("<[^>]*>", "", page)
    answer = text.splitlines()[1:4]
    for line in answer:
        said = re.sub(r"\s+", " ", line.split("  ", 1)[1]).strip()
        assert said.replace("’", "'") in re.sub(r"\s+", " ", plain).replace("’", "'"), said
    assert NASTY in text
    assert "town [bold] &lt;&amp;&gt;" in page
    assert "<&>" not in page
    assert render([load(run.save(tmp_path / "a.run"))]) == page


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("days", [0, 1, 2, 21, 400])
def test_the_pages_chart_stays_inside_its_box(width: int, days: int) -> None:
    middle = [float(day * day) for day in range(days)]
    curve = Curve("infections", middle, [v / 2 for v in middle], [v * 2 for v in middle])
    drawing = ET.fromstring(curve_chart(curve, width=width, name="c"))
    height = float(drawing.get("viewBox", "").split()[3])
    for dot in drawing.iter("circle"):
        assert 0 <= float(dot.get("cx", "nan")) <= width
        assert 0 <= float(dot.get("cy", "nan")) <= height
    bands = [path for path in drawing.iter("path") if "share" in path.get("class", "")]
    assert len(bands) == (days > 1)


def test_the_terminals_chart_rises_where_the_curve_does() -> None:
    rows = lines(flat([0.0, 0.0, 10.0, 10.0]))
    assert rows[0].rstrip().endswith("▄") or rows[0].rstrip().endswith("▀")
    assert rows[0].strip()[0] in "▄▀█"
    assert rows[0].index(rows[0].strip()[0]) > len(rows[0]) / 2
    assert rows[-1].startswith("▄▄")
    for column in range(len(rows[0])):
        assert any(row[column] in "▄▀█" for row in rows), "the line has a hole"


def test_the_terminals_chart_shows_band_and_observed() -> None:
    curve = Curve("deaths", [5.0] * 3, [2.0] * 3, [8.0] * 3, [0.0, 5.0, 8.0])
    rows = lines(curve)
    shaded = [k for k, row in enumerate(rows[:-1]) if set(row) & set("░▄▀")]
    assert shaded == list(range(shaded[0], shaded[-1] + 1))
    # The upper edge is 8: a row is 0.8, so the band is the rows from 8 to 2.
    assert (shaded[0], shaded[-1]) == (0, 7)
    assert "".join(rows).count("o") == 3
    assert rows[-1][0] == "o"
    assert rows[0][-1] == "o"


@pytest.mark.parametrize("days", [0, 1, 2, 21, 64, 65, 400])
@pytest.mark.parametrize("width", [8, 64, 200])
def test_any_number_of_days_fits_any_terminal(days: int, width: int) -> None:
    curve = flat([float(day) for day in range(days)])
    assert {len(row) for row in lines(curve, width)} <= set(range(2, min(width, 64) + 1))


def test_a_narrow_terminal_is_not_overrun() -> None:
    assert max(map(len, printed(simulate_run(), width=40).splitlines())) <= 40


def test_a_long_table_shows_weeks_and_the_last_day() -> None:
    assert shown_days(31) == list(range(31))
    assert shown_days(50) == [0, 7, 14, 21, 28, 35, 42, 49]
    assert shown_days(52)[-2:] == [49, 51]


def test_a_picture_is_whole_or_not_there(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    curves = fitted(calibrate_run()).daily
    path = write_picture([*curves, flat([1.0])], NASTY, tmp_path / "new" / "c.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="name another place with --plot"):
        write_picture(curves, NASTY, tmp_path / "file" / "c.png")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["c.png", "file", "new"]
