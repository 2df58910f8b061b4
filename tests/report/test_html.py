"""The page: complete for any runs, self-contained, well-formed, with reasons for unknowns."""

import re
import xml.etree.ElementTree as ET
from dataclasses import asdict
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

from hotloop.benchmark.summary import summarize
from hotloop.benchmark.warmup import WarmUp
from hotloop.errors import RunError
from hotloop.loop.arm import Arm
from hotloop.loop.figures import Interval, Unknown
from hotloop.loop.run import Run, load
from hotloop.report.benchmark import print_benchmark, print_compared
from hotloop.report.charts.ladder import ladder_waterfall
from hotloop.report.charts.learning import LearningCurve, learning_curve
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.charts.timeline import Call, Lane, timeline
from hotloop.report.html import render, write_html
from hotloop.report.numbers import interval, rate, times
from hotloop.report.simplify import headline
from hotloop.simplify.arm_names import ALL_FREE, BASELINE, aa_name, free_name, only_name
from hotloop.simplify.ceilings import Rung
from hotloop.simplify.record import Record
from hotloop.simplify.saved_run import judge_run
from hotloop.simplify.settings import SimplifySettings
from support.stages import MS, stage_facts

HOST = {
    "date": "2026-01-02T03:04:05+00:00",
    "processor": "Test <CPU>",
    "cores": 2,
    "quota_cores": None,
    "memory_bytes": 8 << 30,
    "python": "3.11.0",
    "gpu": None,
    "command": "hotloop simplify loop.py:make",
}
NASTY = "log <&\"'>"
CHARTS = {"ladder", "tornado", "timeline", "learning"}


def train_run(solved: bool = True, threshold: float | None = 475.0) -> Run:
    returns = np.array([20.0, 150.0, 480.0, 300.0, 476.0, 500.0])
    return Run(
        verb="train",
        target="ppo:CartPole-v1",
        settings={"seed": 0},
        facts={
            "env_id": "CartPole-v1",
            "unit": "env steps",
            "threshold": threshold,
            "solved": solved,
            "steps_to_solve": 30_000 if solved else None,
            "seconds_to_solve": 12.5 if solved else None,
        },
        arrays={
            "env_steps": np.arange(1, 7) * 5_000,
            "seconds": np.linspace(2, 12.5, 6),
            "mean_return": returns,
            "passed": returns >= (threshold or np.inf),
        },
        host=HOST,
    )


def one_iteration(start: int) -> list[tuple[int, int, int, int]]:
    """act and store in turn, far narrower than a pixel, then an update with a part inside."""
    events = []
    for k in range(400):
        at = start + k * 15_000
        events += [(0, at, at + 9_000, 7), (1, at + 9_000, at + 12_000, 7)]
    events.append((3, start + 6 * MS, start + 8 * MS, 7))
    events.append((2, start + 6 * MS, start + 9 * MS, 7))
    events.append((2, start + 1 * MS, start + 2 * MS, -1))
    return events


def benchmark_run(target: str = "loop.py:make") -> Run:
    names = ["act", NASTY, "update", "backward"]
    starts = np.arange(20, dtype=np.int64) * 10 * MS
    return Run(
        verb="benchmark",
        target=target,
        settings={"seconds": 1.0},
        facts={
            "unit": "env steps",
            "price_per_hour": None,
            "warm_up": {"seconds": 0.1, "stable": True},
            "stages": [
                {
                    "name": name,
                    "kind": "cpu",
                    "effect": "pure",
                    "inside": "update" if name == "backward" else None,
                    "bytes_per_call": None,
                    "cpu_share": 1.0,
                    "index": k,
                }
                for k, name in enumerate(names)
            ],
            "work": None,
            "work_problem": "nothing to count",
            "peaks": None,
            "gpu_problem": "no card",
            "gpu_activity_problem": "no card",
            "usable_cores": 2.0,
        },
        arrays={
            "start_ns": starts,
            "duration_ns": np.full(20, 10 * MS) + np.arange(20) * 1_000,
            "units": np.full(20, 64.0),
            "block_of": np.arange(20) // 2,
            "stage_ns": np.tile([7.2e6, 2.4e6, 6e6, 4e6], (10, 1)),
            "stage_calls": np.tile([800, 800, 2, 2], (10, 1)),
            "events": np.array([e for s in starts[-2:] for e in one_iteration(int(s))]),
        },
        host=HOST,
    )


def simplify_run(*, restless: bool = False, rounds: int = 24, ladder: bool = True) -> Run:
    """A serial loop of 10 ms: act 6 ms, update 3 ms, the rest 1 ms; the log is never replaced."""
    names = {"act": 6.0, "update": 3.0, NASTY: 0.1}
    times_ms = {BASELINE: 10.0, aa_name(1): 11.0 if restless else 10.0, aa_name(2): 10.0}
    times_ms |= {free_name("act"): 4.0, free_name("update"): 7.0}
    if ladder:
        times_ms |= {only_name("act"): 7.0, only_name("update"): 4.0, ALL_FREE: 1.0}
    record = Record(unit="env steps", seconds=3.0, usable_cores=2.0, warm_up=WarmUp(0.01), kinds=[])
    record.arms = {name: Arm(name) for name in times_ms}
    record.stages = [
        stage_facts(
            name,
            k,
            ms,
            effect="effectful" if name == NASTY else "pure",
            not_replaced="effectful: delayed, never replaced" if name == NASTY else None,
        )
        for k, (name, ms) in enumerate(names.items())
    ]
    noise = np.random.default_rng(0)
    for number in range(rounds):
        for k, ms in enumerate(times_ms.values()):
            record.arm_of.append(k)
            record.round_of.append(number)
            record.ns.append(ms * MS * noise.normal(1, 0.01))
            record.units.append(64.0)
            record.iterations.append(1)
            record.delayed_ns.append(0.0)
            for column in (record.cpu_ns, record.process_cpu_ns, record.stolen_ns):
                column.append(0)
            record.switches.append(0)
            record.pressure_us.append(0)
            record.probe_ns.append(0)
            stages = np.array([stage.ns_per_iteration for stage in record.stages])
            record.stage_ns.append(stages)
            record.running_ns.append(stages)
            record.stage_calls.append(np.ones(len(stages)))
            record.rare_ns.append(np.zeros(0))
            record.rare_events.append(np.zeros(0))
    events = []
    for s in range(0, 50 * MS, 10 * MS):
        events += [(0, s, s + 6 * MS, 7), (1, s + 6 * MS, s + 9 * MS, 7)]
        events.append((2, s + 9 * MS, s + 9 * MS + 100_000, 7))
    record.events = np.array(events)
    return Run(
        verb="simplify",
        target="loop.py:make",
        settings=asdict(SimplifySettings()),
        facts=record.facts(),
        arrays=record.arrays(),
        host=HOST,
    )


def svgs(page: str) -> list[ET.Element]:
    return [ET.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, flags=re.S)]


def classes(page: str) -> list[str]:
    return [svg.attrib["class"] for svg in svgs(page)]


def texts(svg: ET.Element) -> str:
    return " | ".join("".join(text.itertext()) for text in svg.iter("text"))


def plain(markup: str) -> str:
    """The words of some markup, without its tags."""
    return unescape(re.sub("<.*?>", "", markup))


@pytest.fixture(scope="module")
def page() -> str:
    return render([train_run(), benchmark_run(), simplify_run()])


def test_all_four_charts_in_both_widths(page: str) -> None:
    for chart in CHARTS:
        assert sorted(c for c in classes(page) if c.endswith(chart)) == [
            f"chart narrow {chart}",
            f"chart wide {chart}",
        ]


def test_the_page_begins_with_the_answer(page: str) -> None:
    order = ['class="answer"', "What holds it back", "How fast it is", "How it learned"]
    places = [page.index(part) for part in order]
    assert places == sorted(places)
    answer = page[places[0] : places[0] + 600]
    assert "<strong>act</strong>" in answer
    assert re.search(r'<span class="n">60\.\d%</span> <span class="iv">\[', answer)


def test_self_contained(page: str) -> None:
    assert "://" not in page
    for tag in ("<script", "<link", "<img", "<iframe", "@import", "src="):
        assert tag not in page
    assert all(target.startswith("#") for target in re.findall(r"url\((.*?)\)", page))
    assert all(target.startswith("#") for target in re.findall(r'href="(.*?)"', page))
    assert len(page.encode()) < 400_000


def test_svg_is_well_formed_and_described(page: str) -> None:
    ids: list[str] = []
    for svg in svgs(page):
        assert svg.attrib["role"] == "img"
        described = svg.attrib["aria-labelledby"].split()
        children = {child.attrib.get("id"): child for child in svg}
        for key in described:
            assert children[key].text
        ids += [element.attrib["id"] for element in svg.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))


def test_names_are_escaped(page: str) -> None:
    assert NASTY not in page
    assert "log &lt;&amp;" in page
    assert "Test <CPU>" not in page
    drawn = [svg for svg in svgs(page) if "tornado" in svg.attrib["class"]]
    assert all(NASTY in texts(svg) for svg in drawn)


def test_a_stage_has_one_colour_everywhere() -> None:
    page = render([benchmark_run(), simplify_run()])
    found: dict[str, set[str]] = {}
    for colour, name in re.findall(r'<span class="swatch (s\d+)"></span>([^<]+)', page):
        found.setdefault(name.strip(), set()).add(colour)
    for svg in svgs(page):
        for shape in [*svg.iter("rect"), *svg.iter("path")]:
            title = shape.find("title")
            colour = re.match(r"s\d+", shape.attrib.get("class", ""))
            if title is not None and title.text and colour:
                found.setdefault(title.text.split(":")[0], set()).add(colour[0])
    assert set(found) >= {"act", "update", "backward"}
    assert all(len(colours) == 1 for colours in found.values())
    assert len(set.union(*(found[name] for name in ("act", "update", "backward")))) == 3


def test_refused_verdict_is_said_first_and_greyed() -> None:
    page = render([simplify_run(restless=True)])
    assert "No verdict." in page
    assert page.index("No verdict.") < page.index('class="tile"')
    assert "two arms that are the same differ" in page.lower()
    assert 'class="answer"' not in page
    assert ">fix<" not in page
    for chart in classes(page):
        assert "refused" in chart or "timeline" in chart


def test_unknown_rung_is_hatched_with_its_reason() -> None:
    for svg in svgs(render([simplify_run()])):
        if "ladder" in svg.attrib["class"]:
            hatched = [r for r in svg.iter("rect") if r.attrib.get("class") == "unknown"]
            assert len(hatched) == 1
            assert hatched[0].attrib["fill"].startswith("url(#")
            assert "unknown: no operations were counted" in texts(svg)


def test_no_ladder_at_all_is_unknown_with_the_reason() -> None:
    page = render([simplify_run(ladder=False)])
    assert "too few rounds held all of its arms" in page
    assert "chart wide ladder" in classes(page)


def test_too_few_rounds_for_anything() -> None:
    page = render([simplify_run(rounds=2)])
    assert "Only 2 rounds were measured" in page
    assert "unknown: too few rounds" in page
    assert "nan" not in re.sub(r"<style>.*?</style>", "", page, flags=re.S).lower()


@pytest.mark.parametrize(
    ("run", "charts"),
    [
        (train_run(), {"learning"}),
        (benchmark_run(), {"timeline"}),
        (simplify_run(), {"ladder", "tornado", "timeline"}),
    ],
)
def test_page_of_one_run(run: Run, charts: set[str]) -> None:
    assert {name.split()[-1] for name in classes(render([run]))} == charts


def test_benchmarks_are_compared_with_the_first() -> None:
    page = render([benchmark_run("a.py:f"), benchmark_run("b.py:f")])
    assert "Benchmarks compared" in page
    assert re.search(r'<span class="n">1\.\d+×</span> <span class="iv">\[', page)
    assert "Benchmarks compared" not in render([benchmark_run()])


def test_benchmark_cut_short_before_its_first_iteration() -> None:
    run = benchmark_run()
    run.complete = False
    for name in ("start_ns", "duration_ns", "units", "block_of"):
        run.arrays[name] = run.arrays[name][:0]
    run.arrays["stage_ns"] = run.arrays["stage_calls"] = np.zeros((0, 4))
    page = render([run])
    assert "unknown: no steady iteration was measured" in page
    assert not classes(page)


def test_the_terminal_gives_the_same_answer() -> None:
    run = simplify_run()
    page, verdict = render([run]), judge_run(run)[0]
    state, *answer = (Text.from_markup(line).plain for line in headline(verdict))
    answers = re.findall(r"<dt>(fix|leave)</dt><dd>(.*?)</dd>", page)
    assert [f"{word:<7}{plain(sentence)}" for word, sentence in answers] == [
        f"{a}." for a in answer
    ]
    for ceiling in ("perfect overlap", "own resources"):
        (tile,) = re.findall(rf'<dt>{ceiling}</dt>\n<dd class="value"><span class="n">(.*?)×', page)
        (shown,) = re.findall(rf"{ceiling} ([\d.]+)×", state)
        assert float(shown) == pytest.approx(float(tile), rel=0.005)


def test_the_terminal_gives_the_same_figures() -> None:
    run = benchmark_run()
    (table,) = re.findall(r"<h3>Figures</h3>.*?<tbody>(.*?)</tbody>", render([run]), flags=re.S)
    rows = [
        [plain(cell) for cell in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row)]
        for row in re.findall("<tr>.*</tr>", table)
    ]
    printed = Console(file=StringIO(), width=300)
    print_benchmark(printed, summarize(run), run)
    text = re.sub(" +", " ", printed.file.getvalue())
    for name, value, note in rows:
        why = value.removeprefix("unknown: ")
        line = f"{name} {value} {note}".strip() if why == value else f"unknown {name}: {why}"
        assert line in text


def test_rates_in_other_units_are_not_compared() -> None:
    runs = [benchmark_run("a.py:f"), benchmark_run("b.py:f")]
    runs[1].facts["unit"] = "samples"
    printed = Console(file=StringIO(), width=300)
    print_compared(printed, [(run, summarize(run)) for run in runs])
    assert "unknown: another unit" in printed.file.getvalue()
    assert "unknown: another unit" in render(runs)


@pytest.mark.parametrize("threshold", [475.0, None])
def test_unsolved_training(threshold: float | None) -> None:
    page = render([train_run(solved=False, threshold=threshold)])
    assert "not solved" in page
    shapes = [c.attrib["class"] for svg in svgs(page) for c in svg.iter("circle")]
    assert "pass" not in shapes


def test_the_two_passes_are_marked() -> None:
    for svg in svgs(render([train_run()])):
        shapes = [circle.attrib["class"] for circle in svg.iter("circle")]
        assert shapes == ["point", "point", "passed", "point", "pass", "pass"]
        assert "threshold 475" in texts(svg)


def test_training_without_an_evaluation() -> None:
    run = train_run(solved=False)
    run.arrays = {name: array[:0] for name, array in run.arrays.items()}
    assert "nothing was evaluated" in render([run])


def test_same_runs_same_bytes_also_after_saving(tmp_path: Path) -> None:
    runs = [train_run(), benchmark_run(), simplify_run()]
    again = [load(run.save(tmp_path / f"{k}.run")) for k, run in enumerate(runs)]
    assert render(runs) == render(again) == render(runs)


def test_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write_html([train_run()], tmp_path / "sub" / "report.html")
    assert path.read_text(encoding="utf-8") == render([train_run()])
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    with pytest.raises(RunError, match=r"could not be written as .*Is a directory.*--html"):
        write_html([train_run()], tmp_path / "sub")
    assert [p.name for p in tmp_path.iterdir()] == ["sub"]


def test_what_has_no_report_is_refused() -> None:
    run: Any = train_run()
    run.verb = "doctor"
    with pytest.raises(RunError, match="a doctor run of ppo:CartPole-v1 has no report"):
        render([run])
    with pytest.raises(RunError, match="no run to report"):
        render([])


def test_thousands_of_narrow_calls_stay_small() -> None:
    calls = [
        Call("act" if k % 2 else "step", k * 100.0, k * 100.0 + 90.0, 0) for k in range(20_000)
    ]
    svg = timeline([Lane("thread", calls)], 2e6, {"act": 0, "step": 1}, width=WIDE, name="t")
    assert len(svg) < 40_000
    titles = [title.text for title in ET.fromstring(svg).iter("title")]
    assert "act: 10000 calls, 900 µs together" in titles


def test_area_of_narrow_calls_is_their_time() -> None:
    # Half of each pixel busy: half the height, all along.
    calls = [Call("act", k * 10.0, k * 10.0 + 5.0, 0) for k in range(WIDE)]
    svg = ET.fromstring(timeline([Lane("t", calls)], WIDE * 10, {}, width=WIDE, name="t"))
    (path,) = [p for p in svg.iter("path") if p.attrib.get("class") == "s0"]
    assert path.attrib["d"] == f"M0 29h{WIDE}v12h-{WIDE}z"


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_nothing_is_drawn_outside(page: str, width: int) -> None:
    for svg in svgs(page):
        if svg.attrib["width"] != str(width):
            continue
        for rect in svg.iter("rect"):
            if "x" in rect.attrib:
                x, wide = float(rect.attrib["x"]), float(rect.attrib["width"])
                assert x >= -0.05
                assert x + wide <= width + 0.05
        for text in svg.iter("text"):
            assert -0.05 <= float(text.attrib["x"]) <= width + 0.05


def test_factor_of_a_rung() -> None:
    now = Interval(10.0, 9.0, 11.0)
    assert times(now, Interval(5.0, 4.5, 5.5)) == "2.00× [1.64, 2.44]"
    assert times(now, Interval(10.0, 9.0, 11.0)).startswith("1.00× [1.00, ")
    assert times(now, Interval(0.5, 0.0, 1.0)).endswith("[9×, no limit]")
    assert times(now, Interval(0.0, 0.0, 0.0)) == "no limit"


def test_rate_of_an_iteration() -> None:
    assert rate(64, Interval(1e7, 1e7, 1e7)) == "6.4k"
    assert rate(64, Interval(1e7, 0.0, 2e7)) == "6.4k [3.2k, no limit]"


def test_a_value_far_below_the_upper_end_keeps_its_digits() -> None:
    assert interval(Interval(28_000.0, 19_000.0, 1_100_000.0)) == "28k [19k, 1.1M]"
    assert interval(Interval(330_000.0, 2_000.0, 7_500_000.0)) == "330k [2k, 7.5M]"
    assert interval(Interval(0.9, 0.3, 1.5)) == "0.9 [0.3, 1.5]"
    assert interval(Interval(12_310.0, 12_120.0, 12_540.0)) == "12.31k [12.12, 12.54]"
    assert interval(Interval(0.0, -3.0, 2_000_000.0)).startswith("0.0M [")


def test_charts_of_extremes() -> None:
    zero = Interval(0.0, 0.0, 0.0)
    rungs = [Rung("now", zero, "it", ""), Rung("roof", Unknown("why <so>"), "", "work")]
    ladder = ladder_waterfall(rungs, "steps", 1.0, width=NARROW, name="x")
    assert "why <so>" in texts(ET.fromstring(ladder))
    flat = LearningCurve([1], [0.0], [0.0], [False], None, False, "env steps")
    ET.fromstring(learning_curve(flat, width=NARROW, name="y"))
    control = timeline([Lane("a\x00b", [Call("\x07", 0, 1, 0)])], 1.0, {}, width=WIDE, name="z")
    ET.fromstring(control)


def test_calls_side_by_side_are_counted_once_in_the_share_and_named() -> None:
    run = benchmark_run()
    run.arrays["stage_running_ns"] = run.arrays["stage_ns"] / [4, 1, 1, 1]
    assert "4 calls run side by side on average" in plain(render([run]))
    assert "added up, they take 3.6 ms an iteration" in plain(render([run]))
    assert "side by side on average" not in plain(render([benchmark_run()]))


def test_percentiles_stand_beside_the_mean_with_the_reason_where_there_is_none() -> None:
    page = plain(render([benchmark_run()]))
    for name in ("iteration p50", "iteration p95", "per unit p50"):
        assert name in page
    assert "it needs 100 iterations, 20 were measured" in page
