"""A report of a sweep of backends: the best one, its interval, and what was not measured."""

import re
import xml.etree.ElementTree as ET
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hotloop.benchmark.backends import compare_backends
from hotloop.loop.figures import Interval, Unknown
from hotloop.loop.run import Run, load
from hotloop.report.backends import print_backends
from hotloop.report.charts.backends import Mark, Series, backends_chart
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.html import render

HOST = {
    "date": "2026-01-02T03:04:05+00:00",
    "processor": "Test CPU",
    "cores": 2,
    "quota_cores": None,
    "memory_bytes": 8 << 30,
    "python": "3.11.0",
    "gpu": None,
    "command": "hotloop benchmark Some-v1 --backends all",
}
# The machine's speed in each round.
SPEED = np.array([1.0, 0.5, 0.8, 1.2, 0.9, 1.1])
NOT_INSTALLED = "Ray is not installed: pip install 'hotloop[ray]'"


def variant(backend: str, workers: int | None = None, **others: Any) -> dict[str, Any]:
    return {
        "backend": backend,
        "num_workers": workers,
        "splits": 1,
        "envs_per_worker": 64 // (workers or 1),
        "chosen": None,
        "problem": None,
    } | others


def sweep_run(**others: Any) -> Run:
    """Serial at 1,000 SPS at speed 1, faster with more workers; Ray is not installed."""
    variants = [
        variant("serial"),
        variant("native", problem="no <vector> env of its own"),
        variant("process", 1),
        variant("process", 2),
        variant("process", 4),
        variant("process", 2, splits=2),
        variant("auto", 2, chosen="process"),
        variant("ray", problem=NOT_INSTALLED, envs_per_worker=None),
    ]
    base = [1000.0, np.nan, 800.0, 1500.0, 2000.0, 1600.0, 1500.0, np.nan]
    return Run(
        verb="backends",
        target="Some-v1",
        settings={"num_envs": 64},
        facts={
            "unit": "env steps",
            "env_id": "Some-v1",
            "num_envs": 64,
            "round_s": 0.3,
            "choice": "envs run in 2 worker processes",
            "variants": variants,
        },
        arrays={"sps": np.outer(base, SPEED)},
        host=HOST,
        **others,
    )


def printed(run: Run) -> str:
    console = Console(file=StringIO(), width=140)
    print_backends(console, compare_backends(run), run)
    return console.file.getvalue()


def svgs(page: str) -> list[ET.Element]:
    found = re.findall(r"<svg.*?</svg>", page, flags=re.S)
    return [ET.fromstring(each) for each in found if "backends" in each[:400]]


def test_the_best_is_compared_within_rounds() -> None:
    table = compare_backends(sweep_run())
    best = table.rows[table.best]
    assert (best.backend, best.num_workers) == ("process", 4)
    # The machine's speed is in both rates and drops out: the ratio is exact, the rates are not.
    assert isinstance(best.sps, Interval)
    assert best.sps.high / best.sps.low > 1.2
    assert (best.to_serial.value, best.to_serial.low, best.to_serial.high) == pytest.approx(
        (2.0, 2.0, 2.0)
    )
    assert table.equals == []
    assert table.rows[table.auto].to_best.value == pytest.approx(0.75)


def test_variants_that_may_be_as_good_as_the_best_are_named() -> None:
    run = sweep_run()
    run.arrays["sps"][3] = run.arrays["sps"][4] * [1.1, 0.8, 1.1, 0.8, 1.1, 0.8]
    table = compare_backends(run)
    assert table.best == 4
    assert table.equals == [3]
    text = " ".join(printed(run).split())
    assert "not told apart from process, 2 workers; the next, process, 2 workers, 2 splits" in text


def test_auto_is_not_called_best_beside_what_it_chose() -> None:
    run = sweep_run()
    run.arrays["sps"][6] *= 3
    assert compare_backends(run).best == 4
    assert "300" not in printed(run).split("auto", 1)[0]
    alone = sweep_run()
    alone.facts["variants"] = [alone.facts["variants"][6]]
    alone.arrays["sps"] = alone.arrays["sps"][6:7]
    assert compare_backends(alone).best == 0
    assert "best auto (process), 2 workers: 1.38k" in " ".join(printed(alone).split())


def test_the_terminal_says_the_answer_first_then_every_variant() -> None:
    lines = printed(sweep_run()).splitlines()
    assert lines[0].startswith("Some-v1  64 envs")
    assert lines[1].startswith("best   process, 4 workers: ")
    assert " SPS, 2× serial’s; the next, process, 2 workers, 2 splits, has 80.0% " in lines[1]
    text = "\n".join(lines)
    assert "auto   chose process, 2 workers: 75.0%" in text
    assert NOT_INSTALLED in text
    assert "auto: envs run in 2 worker processes" in text
    (head,) = (k for k, line in enumerate(lines) if line.startswith("backend"))
    assert [line.split()[0] for line in lines[head + 1 : head + 9]] == [
        *("serial", "native", "process", "process", "process", "process,", "auto", "ray")
    ]
    assert lines[head + 9].startswith("6 rounds in random order, 0.3 s each")


def test_bars_are_as_long_as_the_rates() -> None:
    bars = {
        tuple(line.split()[:2]): line.count("█")
        for line in printed(sweep_run()).splitlines()
        if "█" in line
    }
    assert bars["process", "4"] == 2 * bars["serial", "-"] == 32


def test_without_serial_there_is_no_ratio_to_it() -> None:
    run = sweep_run()
    run.facts["variants"], run.arrays["sps"] = run.facts["variants"][2:], run.arrays["sps"][2:]
    table = compare_backends(run)
    assert table.rows[0].to_serial == Unknown("serial was not measured")
    assert "serial’s" not in printed(run)
    assert "serial was not measured" in render([run])


def test_an_interrupted_sweep_reports_what_it_has() -> None:
    run = sweep_run(complete=False)
    run.arrays["sps"][3:, -1] = np.nan
    run.arrays["sps"][5] = np.nan
    table = compare_backends(run)
    assert table.rows[5].sps == Unknown("its turn had not come")
    assert table.rows[4].to_serial.value == pytest.approx(2.0)
    for drawn in (printed(run), render([run])):
        assert "interrupted" in drawn
        assert "nan" not in re.sub(r"<style>.*?</style>", "", drawn, flags=re.S).lower()


def test_one_round_has_no_interval() -> None:
    run = sweep_run()
    run.arrays["sps"] = run.arrays["sps"][:, :1]
    for drawn in (printed(run), render([run])):
        assert "too few samples for an interval" in " ".join(drawn.split())


def test_nothing_measured_at_all() -> None:
    run = sweep_run(complete=False)
    run.arrays["sps"] = run.arrays["sps"][:, :0]
    assert compare_backends(run).best is None
    assert "nothing was measured" in printed(run)
    assert "nothing was measured" in render([run])


def test_the_page_shows_the_chart_and_the_reasons() -> None:
    page = render([sweep_run()])
    assert '<dl class="answer">' in page
    assert "no &lt;vector&gt; env of its own" in page
    wide, narrow = svgs(page)
    for svg in (wide, narrow):
        shades = [c.attrib["class"] for c in svg.iter("circle")]
        assert shades.count("pass") == 1
        assert len(shades) == 6  # every variant that was measured
        lines = [p.attrib["class"] for p in svg.iter("path") if "trace" in p.attrib["class"]]
        assert len(lines) == 1  # one number of workers makes no line
        (best,) = (c for c in svg.iter("circle") if c.attrib["class"] == "pass")
        assert best.find("title").text.startswith("process, 4 workers: 1.83k [")


def test_faster_is_higher_and_more_workers_are_further_right() -> None:
    for svg in svgs(render([sweep_run()])):
        places = {
            circle.find("title").text.split(":")[0]: (
                float(circle.attrib["cx"]),
                float(circle.attrib["cy"]),
            )
            for circle in svg.iter("circle")
        }
        serial, one, two, four = (
            places[name]
            for name in ("serial", "process, 1 worker", "process, 2 workers", "process, 4 workers")
        )
        assert serial[0] < one[0] < two[0] < four[0]
        assert one[1] > serial[1] > two[1] > four[1]
        assert two[0] - one[0] == pytest.approx(four[0] - two[0], abs=0.2)


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize(("low", "high"), [(1.0, 1e7), (5e5, 5.1e5), (0.02, 0.03), (100.0, 100.0)])
def test_nothing_is_drawn_outside(width: int, low: float, high: float) -> None:
    marks = [
        Mark("process, 1 worker", 1, Interval(low, -low, 2 * low), False),
        Mark("process, 64 workers", 64, Interval(high, high / 2, float("nan")), True),
    ]
    alone = [Mark("serial", None, Interval(low, low, low), False)]
    series = [Series("serial", 0, alone), Series("process", 1, marks)]
    svg = ET.fromstring(backends_chart(series, width=width, name="x"))
    height = float(svg.attrib["height"])
    for circle in svg.iter("circle"):
        assert 0 <= float(circle.attrib["cx"]) <= width
        assert 0 <= float(circle.attrib["cy"]) <= height
    for text in svg.iter("text"):
        assert -0.05 <= float(text.attrib["x"]) <= width + 0.05
        assert 0 <= float(text.attrib["y"]) <= height
    for path in svg.iter("path"):
        assert not re.search("nan|inf", path.attrib["d"])


def test_it_stands_beside_other_sweeps_and_is_the_same_after_saving(tmp_path: Path) -> None:
    runs = [sweep_run(), sweep_run()]
    again = [load(run.save(tmp_path / f"{k}.run")) for k, run in enumerate(runs)]
    assert render(runs) == render(again)
    assert printed(runs[0]) == printed(again[0])
    ids = re.findall(r'id="(.*?)"', render(runs))
    assert len(ids) == len(set(ids))
