"""Curves over steps, drawn from their run: terminal, page and picture show the same numbers."""

import re
import xml.etree.ElementTree as ET
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hotloop.errors import RunError
from hotloop.loop.figures import Interval
from hotloop.loop.run import Run, load
from hotloop.report.calibrate import fitted, print_calibrate
from hotloop.report.charts.curves import characters, curve_chart
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.curves import Curve, shown_steps
from hotloop.report.html import render
from hotloop.report.picture import write_picture
from hotloop.report.simulate import print_simulate, simulated

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
INFECTIONS = {
    "name": "daily_infected",
    "label": "infections",
    "kind": "count",
    "word": "infected",
    "total_name": "total_infected",
    "total_label": "infections in all",
    "share_of": "agents",
    "share_label": "of the agents",
    "peak": True,
    "colour": 0,
}
DEATHS = {
    "name": "daily_deaths",
    "label": "deaths",
    "kind": "count",
    "word": "died",
    "total_name": "total_deaths",
    "total_label": "deaths in all",
    "share_of": "daily_infected",
    "share_label": "of the infected so far",
    "peak": False,
    "colour": 3,
}


def facts(**others: Any) -> dict[str, Any]:
    return {
        "model": "covid",
        "population": NASTY,
        "agents": 1000,
        "contacts": 4000,
        "step": "day",
        "start": [["infected", 3]],
        "outputs": [INFECTIONS, DEATHS],
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
            parameters=[
                {"label": "R, week 1", "group": "R by week", "fitted": True},
                {"label": "R, week 2", "group": "R by week", "fitted": True},
                {"label": "mortality", "group": "mortality", "fitted": True},
            ],
            groups=[{"label": "mortality", "note": " fitted to the deaths"}],
            notes=["a <note>"],
        ),
        arrays={
            "loss": np.array([8.0, 2.0, 1.0]),
            "parameter": np.array([3.0, 4.0, 0.1]),
            "parameter_first": np.array([4.75, 4.75, 0.12]),
            "parameter_interval": np.array([[2.5, 3.6], [1e-9, 1e9], [0.05, 0.2]]),
            "observed_daily_infected": np.where(days == 4, 9.0, days),
            "observed_daily_deaths": days,
            "fitted_daily_infected": band,
            "fitted_daily_deaths": band,
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
    return ["".join(cell.char for cell in row) for row in characters(curve, width=width).rows]


def flat(values: list[float], **others: Any) -> Curve:
    return Curve("infections", values, values, values, **others)


def test_the_interval_is_over_runs_not_over_days() -> None:
    found = simulated(simulate_run())
    infected, deaths = (found.outputs[name] for name in ("daily_infected", "daily_deaths"))
    assert infected.total == Interval(205.0, *np.percentile(np.arange(40) * 10 + 10, [2.5, 97.5]))
    assert infected.peak.value == 29.5
    assert infected.peak_step == Interval(5, 5, 5)
    assert found.by_step[0].middle == [19.5] * 5 + [29.5] + [19.5] * 4
    assert found.totals[0].middle[-1] == infected.total.value
    assert deaths.total.value == 0 < deaths.total.high
    assert deaths.peak is None


@pytest.mark.parametrize(
    ("run", "note"),
    [
        (simulate_run(replicates=1), "one run: too few"),
        (simulate_run(replicates=5), "5 runs: too few"),
        (simulate_run(days=4, complete=False), "interrupted: 4 of 10 days"),
        (calibrate_run(complete=False), "the fit was interrupted"),
    ],
)
def test_warnings_are_in_the_terminal_and_on_the_page(run: Run, note: str) -> None:
    assert note in printed(run)
    assert note in render([run])


def test_an_interval_of_nearly_any_value_is_not_shown() -> None:
    found = fitted(calibrate_run())
    first, second, mortality = found.parameters
    assert (first.value, first.why_no_interval) == (Interval(3.0, 2.5, 3.6), "")
    assert second.value == Interval(4.0, 4.0, 4.0)
    assert second.why_no_interval == "the observed days say nothing about it"
    assert mortality.value == Interval(0.1, 0.05, 0.2)
    assert "e-09" not in printed(calibrate_run()) + render([calibrate_run()])


def test_the_fit_counts_the_observed_days_inside_its_band() -> None:
    assert fitted(calibrate_run()).inside == (19, 20)
    assert "19 of 20 observed counts" in printed(calibrate_run())


def test_a_fit_cut_short_has_no_curves() -> None:
    run = calibrate_run(complete=False)
    for name in ("daily_infected", "daily_deaths"):
        del run.arrays[f"fitted_{name}"]
    run.arrays["parameter_interval"][:] = np.nan
    found = fitted(run)
    assert found.by_step == []
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
    assert shown_steps(31, "day") == list(range(31))
    assert shown_steps(50, "day") == [0, 7, 14, 21, 28, 35, 42, 49]
    assert shown_steps(52, "day")[-2:] == [49, 51]


@pytest.mark.parametrize("steps", [32, 50, 99, 310, 311, 4_000, 1_000_000])
def test_a_table_of_other_steps_stays_short(steps: int) -> None:
    shown = shown_steps(steps, "step")
    assert shown[0] == 0
    assert shown[-1] == steps - 1
    assert 10 < len(shown) <= 32


def test_a_picture_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    curves = fitted(calibrate_run()).by_step
    path = write_picture([*curves, flat([1.0])], NASTY, tmp_path / "new" / "c.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="name another place with --plot"):
        write_picture(curves, NASTY, tmp_path / "file" / "c.png")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["c.png", "file", "new"]


# --- a model of other words ---------------------------------------------------------------------

POLARISATION = {
    "name": "polarisation",
    "label": "polarisation",
    "kind": "level",
    "word": None,
    "total_name": None,
    "total_label": None,
    "share_of": None,
    "share_label": None,
    "peak": True,
    "colour": 2,
}
TURNS = {"name": "turns", "label": "turns", "kind": "count", "peak": False, "colour": 4}
DRIFT = {"name": "drift", "label": "drift", "kind": "level", "peak": False, "colour": 12}


def flock_run(**others: Any) -> Run:
    """Polarisation rises to its highest at step 80 and falls a little; drift is below zero."""
    steps = np.arange(100)
    rise = np.minimum(steps, 80) / 80 - np.maximum(steps - 80, 0) * 1e-3
    spread = np.linspace(0.95, 1.0, 40)[:, None]
    return Run(
        verb="simulate",
        target="boids:500",
        settings={"seed": 0, "steps": 100, "replicates": 40},
        facts=facts(
            model="boids",
            population="500",
            contacts=None,
            step="step",
            start=[],
            outputs=[POLARISATION, TURNS, DRIFT],
            **others,
        ),
        arrays={
            "polarisation": rise * spread,
            "turns": np.full((40, 100), 3),
            "drift": np.full((40, 100), -0.25),
        },
        host=HOST,
    )


def test_a_level_is_reported_at_the_end_and_where_it_is_highest() -> None:
    head, polarisation, turns, drift, *_ = printed(flock_run()).splitlines()
    assert head == "boids on 500  1,000 agents; 100 steps, 40 runs from seed 0 on cpu"
    assert polarisation == (
        "polarisation  0.956 [0.933, 0.98] at the end; highest 0.975, at step 80"
    )
    assert turns == "turns         300 in 100 steps"
    assert drift == "drift         -0.25 at the end"


def test_a_level_has_no_total_and_no_share() -> None:
    found = simulated(flock_run())
    assert found.outputs["polarisation"].total is None
    assert found.outputs["turns"].end is None
    assert [curve.name for curve in found.totals] == ["turns in all"]
    assert [curve.title for curve in found.by_step] == ["polarisation", "turns a step", "drift"]


def test_the_words_of_a_report_are_those_of_its_run() -> None:
    run = flock_run()
    for said in (
        printed(run),
        re.sub("<style>.*?</style>|<[^>]*>", " ", render([run]), flags=re.S),
    ):
        assert not re.findall(r"infect|death|died|\bdays?\b|mortal|R by week", said)
    assert "boids on 500" in render([run])
    assert "How they fly" in render([flock_run(heading="How they fly")])


def test_a_level_below_zero_is_inside_its_chart() -> None:
    curve = simulated(flock_run()).by_step[2]
    chart = characters(curve)
    assert (chart.low, chart.high) == (-0.25, 0.0)
    assert [cell.char for cell in chart.rows[-1]].count("▄") == len(chart.rows[-1])
    drawing = ET.fromstring(curve_chart(curve, width=WIDE, name="c"))
    height = float(drawing.get("viewBox", "").split()[3])
    assert all(0 <= float(dot.get("cy", "nan")) <= height for dot in drawing.iter("circle"))


def test_a_fit_of_a_level_counts_values() -> None:
    run = calibrate_run()
    run.facts["outputs"] = [INFECTIONS | {"kind": "level"}, DEATHS]
    assert "19 of 20 observed values" in printed(run)
    assert "\ninfections  observed: o" in printed(run)
    assert "\ndeaths a day  observed: o" in printed(run)
