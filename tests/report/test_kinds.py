"""A new kind of run: one definition and one line of the table are all that a report needs."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from hotloop.cli import report
from hotloop.cli.finish import finish
from hotloop.cli.output import show_run
from hotloop.errors import RunError
from hotloop.loop.run import Run
from hotloop.repeat.entries import Metric
from hotloop.repeat.journal import Journal
from hotloop.report.format import Format
from hotloop.report.html import render
from hotloop.report.kind import Comparison, Kind, PageContext
from hotloop.report.kinds import KINDS, kind_of
from hotloop.report.section import Section, TableView, Tile, number_markup
from hotloop.results.saved import open_run

Heights = list[float]


def throw_run(*heights: float, complete: bool = True) -> Run:
    return Run(
        verb="throw",
        target="ball",
        settings={"seed": 0},
        facts={"unit": "m"},
        arrays={"height": np.array(heights)},
        complete=complete,
    )


def section(page: PageContext, heights: Heights, run: Run) -> Section:
    return Section(
        key=page.key,
        run=run,
        heading=f"How high the {run.target} flew",
        tiles=[Tile("highest", number_markup(f"{max(heights)} {run.facts['unit']}"))],
        charts=[],
        warnings=[],
    )


def print_throw(console: Console, heights: Heights, run: Run) -> None:
    console.print(f"{run.target}: {max(heights)} {run.facts['unit']}")


def print_highest(console: Console, throws: list[tuple[Run, Heights]]) -> None:
    console.print(f"highest of {len(throws)}: {max(max(heights) for _, heights in throws)}")


def highest_view(throws: list[tuple[Run, Heights]]) -> TableView:
    rows = [[run.target, str(max(heights))] for run, heights in throws]
    return TableView("Throws compared", ["run", "highest"], rows, [])


THROW = Kind[Heights](
    format=Format(facts={"unit": str}, arrays={"height": "real n"}),
    summarize=lambda run: run.arrays["height"].tolist(),
    print=print_throw,
    section=section,
    json=lambda heights, run: {"unit": run.facts["unit"], "heights": heights},
    has_samples=lambda run: run.arrays["height"].size > 0,
    comparison=Comparison(print_highest, highest_view),
    metrics=lambda heights, run: {"highest": Metric(max(heights), unit=run.facts["unit"])},
)


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(KINDS, "throw", THROW)
    monkeypatch.chdir(tmp_path)  # where its runs are noted


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "throw.run"
    run = throw_run(1.0, 2.5)
    assert finish(Console(stderr=True), run, None, path, lambda: None) == 0
    return path


def test_it_is_noted_with_the_metrics_that_it_names(saved: Path) -> None:
    (entry,) = Journal().contents().runs
    assert (entry.verb, entry.target, entry.file) == ("throw", "ball", str(saved))
    assert entry.metrics == {"highest": Metric(2.5, unit="m")}


def test_a_kind_that_names_no_metrics_is_noted_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = [each.name for each in dataclasses.fields(Kind) if each.name != "metrics"]
    plain = Kind[Heights](**{name: getattr(THROW, name) for name in names})
    monkeypatch.setitem(KINDS, "throw", plain)
    run = throw_run(1.0)
    assert finish(Console(stderr=True), run, None, tmp_path / "a.run", lambda: None) == 0
    assert [entry.metrics for entry in Journal().contents().runs] == [{}]


def test_it_is_opened_and_printed(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert open_run(saved).arrays["height"].tolist() == [1.0, 2.5]
    assert report.run([str(saved)]) == 0
    assert capsys.readouterr().out == "ball: 2.5 m\n"


def test_it_is_printed_as_json(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert report.run([str(saved), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"unit": "m", "heights": [1.0, 2.5]}
    show_run(Console(), throw_run(1.0, 2.5), json=True)
    assert json.loads(capsys.readouterr().out) == printed


def test_it_has_a_section_on_the_page(saved: Path, tmp_path: Path) -> None:
    assert report.run([str(saved), "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "How high the ball flew" in page
    assert '<span class="n">2.5 m</span>' in page
    assert "Throws compared" not in page


def test_two_are_compared(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert report.run([str(saved), str(saved)]) == 0
    assert capsys.readouterr().out == "ball: 2.5 m\nball: 2.5 m\nhighest of 2: 2.5\n"
    page = render([throw_run(1.0), throw_run(3.0)])
    assert page.index("Throws compared") < page.index("How high the ball flew")


def test_sections_stand_in_the_order_of_the_table() -> None:
    trained = Run(
        verb="train",
        target="ppo:Some-v1",
        settings={},
        facts={
            **{"env_id": "Some-v1", "threshold": None, "solved": False},
            **{"steps_to_solve": None, "seconds_to_solve": None},
        },
        arrays={
            **{"env_steps": np.array([10]), "seconds": np.array([1.0])},
            **{"mean_return": np.array([5.0]), "passed": np.array([False])},
        },
    )
    page = render([throw_run(1.0), trained])
    assert page.index("How it learned Some-v1") < page.index("How high the ball flew")


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    run = throw_run(1.0)
    del run.facts["unit"]
    with pytest.raises(RunError, match=r"a\.run was edited or damaged: facts: it has no 'unit'"):
        open_run(run.save(tmp_path / "a.run"))


def test_without_samples_an_interrupted_one_is_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    for run, kept in ((throw_run(complete=False), False), (throw_run(1.0, complete=False), True)):
        with pytest.raises(KeyboardInterrupt):
            finish(Console(stderr=True), run, KeyboardInterrupt(), path, lambda: None)
        assert path.exists() == kept


def test_an_unknown_kind_names_the_known_ones(tmp_path: Path) -> None:
    run = throw_run(1.0)
    run.verb = "juggle"
    with pytest.raises(RunError, match=r"a juggle run of ball has no report.*'simplify'.*'throw'"):
        kind_of(run)
    with pytest.raises(RunError, match=r"a\.run is a juggle run, .*'simplify'.*'throw'"):
        open_run(run.save(tmp_path / "a.run"))
    run.verb = "thrown"
    with pytest.raises(RunError, match="did you mean 'throw'"):
        render([run])
