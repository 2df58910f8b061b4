"""Memory over time on the page: its peak, its unit, and how small it stays for a long run."""

import dataclasses
import re

import numpy as np
import pytest

from hotloop.benchmark.meters import COLUMNS
from hotloop.loop.run import Run
from hotloop.report.charts.memory import MOST_POINTS, MemoryCurve, memory_chart
from hotloop.report.html import render
from hotloop.report.memory_views import memory_views
from support.every_run import MAKERS

GIBIBYTE = 1 << 30
MOST_BYTES = 2 << 20
HOUR_S = 3600


def metered(held: np.ndarray, *, period_s: float = 0.5, card: float = np.nan) -> Run:
    """A benchmark whose process tree held these bytes."""
    run = MAKERS["benchmark"]()
    meters = np.full((len(held), len(COLUMNS)), np.nan)
    meters[:, COLUMNS.index("time_ns")] = 7e15 + np.arange(len(held)) * period_s * 1e9
    meters[:, COLUMNS.index("memory_bytes")] = held
    meters[:, COLUMNS.index("gpu_memory_bytes")] = card
    meters[:, COLUMNS.index("cpu_s")] = np.arange(len(held)) * period_s
    return dataclasses.replace(run, arrays={**run.arrays, "meters": meters})


@pytest.mark.long
def test_the_peak_is_the_runs_whatever_was_joined() -> None:
    held = np.full(5000, 1.0 * GIBIBYTE)
    held[3217] = 3.5 * GIBIBYTE
    run = metered(held)
    [view] = memory_views("r0", run)
    for chart in view.charts:
        assert "at most 3.5 GiB, after 1.61e+03 s" in chart
        assert ">3 GiB<" in chart  # a mark of the axis
        [path] = re.findall(r'class="curve"[^>]*|<path[^>]*curve[^>]*', chart)
        assert path.count("L") == MOST_POINTS - 1
    assert view.notes == ["Each point is the most of its stretch."]


@pytest.mark.long
def test_a_card_has_a_chart_of_its_own_and_too_few_samples_have_none() -> None:
    views = memory_views("r0", metered(np.full(9, 1e6), card=2e9))
    assert [view.title for view in views] == ["Memory of the process tree", "Memory of the card"]
    assert memory_views("r0", metered(np.full(2, 1e6))) == []


def test_memory_that_was_never_used_is_drawn() -> None:
    chart = memory_chart(MemoryCurve([0.0, 1.0], [0.0, 0.0]), width=600, name="m", of="the card")
    assert "at most 0 B" in chart


@pytest.mark.long
def test_a_table_without_a_row_has_no_head() -> None:
    run = MAKERS["profile"]()
    run.facts["profiles"]["memory"]["growing"] = []
    page = render([run])
    growth = page[page.index("<h3>Growth</h3>") :]
    assert growth.index('<ul class="foot">') < growth.find("<table") or "<table" not in growth


@pytest.mark.parametrize("verb", ["benchmark", "watch", "train", "simplify"])
def test_the_page_of_an_hour_is_small(verb: str) -> None:
    run = metered(np.full(2 * HOUR_S, 1e9)) if verb == "benchmark" else MAKERS[verb]()
    run = _lengthened(run)
    assert len(render([run]).encode()) <= MOST_BYTES


def _lengthened(run: Run) -> Run:
    """As many samples as an hour brings, of what a run has one for each iteration or period."""
    arrays = dict(run.arrays)
    whole = {"benchmark": ("start_ns", "duration_ns", "units", "block_of")}.get(run.verb, ())
    for name in whole:
        times = -(-1_000_000 // len(arrays[name]))
        arrays[name] = np.tile(arrays[name], times)
    if run.verb == "benchmark":
        arrays["start_ns"] = np.cumsum(arrays["duration_ns"])
        arrays["events"] = np.tile(arrays["events"], (500, 1))
    if run.verb == "watch":
        for name in ("period_s", "period_iterations", "period_units"):
            arrays[name] = np.resize(arrays[name], HOUR_S)
    if run.verb == "train":
        count = len(arrays["env_steps"]) if "env_steps" in arrays else 0
        longer = {n for n, a in arrays.items() if len(a) == count and count}
        for name in longer:
            arrays[name] = np.sort(np.resize(arrays[name], 2000))
    return dataclasses.replace(run, arrays=arrays)
