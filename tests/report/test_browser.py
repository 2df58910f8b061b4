"""The page of all kinds of runs in a real browser: it is drawn, reached and read as it should."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hotloop
from hotloop.loop.host import host_facts
from hotloop.loop.run import Run
from hotloop.repeat.entries import GAIN, KEPT, RATE_A, RATE_B, RATIO, Metric, RunEntry, TryEntry
from hotloop.repeat.journal import Contents
from hotloop.repeat.overview import overview
from hotloop.repeat.stop import Limits
from hotloop.report.html import render, write_html
from hotloop.report.kinds import kind_of
from hotloop.report.staircase import staircase_section
from support.every_run import MAKERS

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium: `make test` installs it on Debian"),
    # Playwright leaves its own event loop open until the process ends.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
MOST_BYTES = 2 << 20


# Every chart that the page may have. The journal's are of three tries.
CHARTS = (
    *("One iteration", "How fast it could be", "Share of time beside gain", "Roofline"),
    *("Flame graph", "Memory of the process tree", "Learning curve", "The staircase"),
    *("How predictions came true", "Speed over workers", "Efficiency over the duration of a step"),
)


def computing() -> Run:
    """A profile of what torch computes, with a roofline."""
    import torch

    net, x = torch.nn.Linear(64, 64), torch.ones(64, 64)
    step = hotloop.stage("forward", lambda: net(x))
    loop = hotloop.Loop(body=lambda: len(step()), unit="samples", name="net")
    return hotloop.run_profile(loop, model=True, network=True, seconds=0.5).run


def tried() -> Contents:
    """Three tries that were predicted: each saves a little less than was promised."""
    gains = {GAIN + "forward": Metric(0.3)}
    made = {"host": host_facts()}
    runs = [RunEntry("2026-11-24", "simplify", "net", gains, number=1, **made)]
    tries = []
    for number, (gain, achieved) in enumerate([(0.2, 0.18), (0.3, 0.22), (0.1, 0.08)], 2):
        rates = Metric(100.0 * number, unit="samples/s"), Metric(125.0 * number, unit="samples/s")
        metrics = {RATIO: Metric(1 - achieved), RATE_A: rates[0], RATE_B: rates[1]}
        runs.append(RunEntry("2026-11-24", "compare", "net", metrics, number=number, **made))
        interval = Metric(achieved, achieved - 0.02, achieved + 0.02)
        words = ("2026-11-24", f"try {number}", "net", "a", "b", "faster", KEPT)
        gained = {"predicted": Metric(gain), "achieved": interval}
        tries.append(TryEntry(*words, **gained, run=number, number=number))
    return Contents(runs, tries)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [*(make() for make in MAKERS.values()), computing()]


@pytest.fixture(scope="module")
def place(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    stairs = overview(tried(), "net", Limits(), lambda run: run.metrics)
    more = [staircase_section(stairs, "tries")]
    return write_html(runs, tmp_path_factory.mktemp("page") / "page.html", more)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield running
        running.close()


class Opened:
    """A page that is open, and what went wrong on it."""

    def __init__(self, page: Any, place: Path) -> None:
        self.page = page
        self.faults: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda said: self.faults.append(said.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(place.as_uri())


@pytest.fixture(params=["light", "dark"])
def opened(request: pytest.FixtureRequest, browser: Any, place: Path) -> Iterator[Opened]:
    page = browser.new_page(color_scheme=request.param)
    yield Opened(page, place)
    page.close()


@pytest.mark.long
def test_nothing_fails_and_nothing_is_fetched(opened: Opened, place: Path) -> None:
    assert opened.faults == []
    assert opened.requests == [place.as_uri()]
    assert place.stat().st_size <= MOST_BYTES


def test_every_chart_is_drawn(opened: Opened) -> None:
    drawn = opened.page.evaluate(
        """() => [...document.querySelectorAll("svg.wide")].map(chart => {
            const box = chart.getBoundingClientRect();
            const marks = chart.querySelectorAll("rect, path, line, circle").length;
            return [chart.querySelector("title").textContent, box.width, box.height, marks];
        })"""
    )
    titles = opened.page.locator("figure h3").all_inner_texts()
    assert set(CHARTS) <= set(titles)
    assert len(drawn) == len(titles)
    assert opened.page.locator("svg.narrow").count() == len(titles)
    assert [each for each in drawn if min(each[1:]) <= 0] == []


@pytest.mark.long
def test_no_serious_barrier_is_found(opened: Opened) -> None:
    axe = pytest.importorskip("axe_core_python.sync_playwright").Axe()
    asked = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"], "resultTypes": ["violations"]}
    found = axe.run(opened.page, options=asked)["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in serious] == []


@pytest.mark.parametrize("width", [360, 800])
def test_a_narrow_window_scrolls_down_only(browser: Any, place: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 700})
    page.goto(place.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


@pytest.mark.long
def test_the_keyboard_opens_what_is_folded(opened: Opened) -> None:
    page = opened.page
    folded = page.locator("details").count()
    assert folded >= 1
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    page.keyboard.press("Enter")
    assert page.locator("details[open]").count() >= 1


def test_it_prints_without_what_needs_a_screen(browser: Any, place: Path) -> None:
    page = browser.new_page()
    page.goto(place.as_uri())
    page.emulate_media(media="print")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)"
    assert page.pdf()[:5] == b"%PDF-"
    page.close()


def test_the_values_shown_are_those_of_the_runs(opened: Opened, runs: list[Run]) -> None:
    text = opened.page.inner_text("body")
    for run in runs:
        assert run.target.split(" / ")[0] in text
    benchmark = next(run for run in runs if run.verb == "benchmark")
    rate = kind_of(benchmark).summarize(benchmark).units_per_s.value
    tile = next(
        tile
        for tile in opened.page.locator(".tile").all_inner_texts()
        if tile.startswith("iterations per second")
    )
    shown = re.search(r"([\d.]+)(k?)", tile.partition("\n")[2])
    assert shown is not None
    assert float(shown[1]) * (1000 if shown[2] else 1) == pytest.approx(rate, rel=0.01)
    assert render(runs[:1]).count("<svg") >= 1
