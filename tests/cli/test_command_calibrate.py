"""`hotloop calibrate`: planted parameters are found, and what cannot be fitted is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from hotloop.cli.calibrate import run as calibrate
from hotloop.cli.report import run as report
from hotloop.errors import SettingError
from hotloop.loop.run import load
from hotloop.models.epidemic.covid import MODEL
from hotloop.results.observations import read_observations

PLANTED_R, PLANTED_M = (7.0, 4.0), 0.3
DAYS = 14
POPULATION = ("covid", "--population", "10000")
BRIEFLY = ("--iterations", "25", "--replicates", "24", "--interval-replicates", "60")
FIT = (*POPULATION, *BRIEFLY, "--observed-runs", "64")
GOOD = "day,daily_infected\n" + "".join(f"{day},{day + 1}\n" for day in range(DAYS))


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOTLOOP_CACHE", "")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mean of 64 runs with known parameters."""
    from hotloop.models.epidemic import covid
    from hotloop.populations.synthetic import Settings, generate
    from hotloop.sim import Executor

    size = Settings.of_size(10000)
    data = generate(size.num_agents, size.seed, "p", num_edges=size.num_edges)
    settings = covid.CovidSettings(num_steps=DAYS, r_by_week=PLANTED_R, mortality=PLANTED_M)
    runner = Executor(covid.model(settings), data, replicates=64, seed=1000, device="cpu").execute()
    with runner:
        curves = [
            runner.state[f"environment/{name}"].mean(0).tolist()
            for name in ("daily_infected", "daily_deaths")
        ]
    path = tmp_path_factory.mktemp("planted") / "cases.csv"
    lines = [f"{day},{a},{b}\n" for day, (a, b) in enumerate(zip(*curves, strict=True))]
    path.write_text("day,cases,deaths\n" + "".join(lines))
    return path


def json_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert calibrate([*map(str, arguments), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.long
def test_planted_parameters_are_found_about_within_their_intervals(
    planted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json_of(
        capsys, *FIT, "--iterations", 60, "--target", planted, "--out", "fit.csv", "--save", "f.run"
    )
    values = [each["value"] for each in found["parameters"]]
    assert [each["name"] for each in found["parameters"]] == ["R, week 1", "R, week 2", "mortality"]
    for value, truth in zip(values, (*PLANTED_R, PLANTED_M), strict=True):
        # One interval in twenty misses: in its own scale, half as wide again is allowed.
        middle = (value["low"] + value["high"]) / 2
        assert abs(truth - middle) <= 0.75 * (value["high"] - value["low"]), found["parameters"]
        assert value["low"] > 0.3 * truth
    assert found["loss"][-1] < 0.5 * found["loss"][0]
    assert found["inside"][0] >= 0.9 * found["inside"][1] == 0.9 * 2 * DAYS
    infected, deaths = found["by_step"]
    assert np.corrcoef(infected["middle"], infected["observed"])[0, 1] > 0.98
    assert len(deaths["low"]) == DAYS
    head, *rows = Path("fit.csv").read_text().splitlines()
    assert head.startswith("day,observed_infected,infected_mean,infected_low,infected_high,obs")
    assert [row.split(",")[0] for row in rows] == [str(day) for day in range(DAYS)]
    saved = load(Path("f.run"))
    assert (saved.verb, saved.complete, len(saved.arrays["loss"])) == ("calibrate", True, 60)


def test_the_report_page_and_table_say_the_same(
    planted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (*FIT, "--target", str(planted), "--r", "5", "--save", "f.run", "--plot")
    assert calibrate(list(arguments)) == 0
    out = capsys.readouterr().out
    head, rates, mortality, fit, *rest = out.splitlines()
    assert "14 days, 60 runs" in head
    assert rates.startswith("R by week  ")
    assert rates.count("[") == 2
    assert mortality.endswith("fitted to the deaths")
    assert "of 28 observed counts lie in the band of 95%" in fit
    assert any(line.startswith("R, week 2") and line.endswith(" 5") for line in rest)
    assert "observed: o" in out
    assert report(["f.run"]) == 0
    assert capsys.readouterr().out == out
    page = Path("covid-synthetic-10000.html").read_text()
    for words in ("What was fitted", "R, week 1", "Loss by iteration", "observed"):
        assert words in page


def test_without_deaths_the_mortality_stays(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cases.csv").write_text(GOOD)
    found = json_of(capsys, *FIT, "--target", "cases.csv", "--mortality", "0.2", "--iterations", 3)
    mortality = found["parameters"][-1]
    assert mortality["value"]["value"] == pytest.approx(0.2)
    assert mortality["why_no_interval"] == "it was not fitted"
    assert any("mortality was kept" in note for note in found["notes"])
    assert [curve["observed"] is None for curve in found["by_step"]] == [False, True]


def test_an_interrupted_fit_says_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hotloop.models.epidemic import calibration

    iterate = calibration._Fit.iterate

    def until_3(self: Any, number: int) -> Any:
        if number == 3:
            raise KeyboardInterrupt
        return iterate(self, number)

    monkeypatch.setattr(calibration._Fit, "iterate", until_3)
    Path("cases.csv").write_text(GOOD)
    with pytest.raises(KeyboardInterrupt):
        calibrate([*FIT, "--target", "cases.csv", "--plot", "--out", "f.csv", "--save", "f.run"])
    out = capsys.readouterr().out
    assert "in 3 iterations" in out
    assert "the fit was interrupted: no intervals, no curves" in out
    assert sorted(path.name for path in Path.cwd().iterdir()) == [".hotloop", "cases.csv", "f.run"]
    assert [path.name for path in Path(".hotloop").iterdir()] == ["journal.db"]
    assert not load(Path("f.run")).complete
    assert report(["f.run"]) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty; expected a header: day,daily_infected"),
        (GOOD.replace("daily_infected", "daily_infectd"), "did you mean 'daily_infected'"),
        (GOOD.replace("daily_infected", "x"), "no column 'daily_infected'; it has 'day', 'x'"),
        (GOOD.replace("3,4\n", "3,nan\n"), "line 5: daily_infected: expected a count of 0 or more"),
        (GOOD.replace("3,4\n", "3,-4\n"), "line 5: daily_infected: expected a count of 0 or more"),
        (GOOD.replace("3,4\n", "3,\n"), "line 5: daily_infected: expected a count"),
        (GOOD.replace("3,4\n", "3,inf\n"), "line 5: daily_infected: expected a count"),
        (GOOD.replace("3,4\n", "3,4,5\n"), "line 5: expected 2 values, as in the header, got 3"),
        (GOOD.replace("3,4\n", ""), "line 5: expected the day after that of the line before"),
        (GOOD.replace("3,4\n", "Monday,4\n"), "line 5: expected a day as a whole number"),
        ("\n".join(GOOD.splitlines()[:7]), "expected at least 7 lines of counts, got 6"),
        (
            "day,cases\n" + "".join(f"{d},0\n" for d in range(9)),
            "is 0 in every line",
        ),
        (GOOD.replace("3,4\n", "3,19000\n"), "among the 10,000 agents of synthetic-10000"),
    ],
)
def test_counts_that_cannot_be_fitted_are_refused(text: str, words: str) -> None:
    Path("cases.csv").write_text(text)
    with pytest.raises(SettingError) as raised:
        calibrate([*POPULATION, "--target", "cases.csv"])
    assert words in str(raised.value)
    assert [path.name for path in Path.cwd().iterdir()] == ["cases.csv"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--target nowhere.csv", "nowhere.csv: No such file or directory"),
        ("--target .", "Is a directory"),
        ("--target binary.csv", "is no CSV file"),
        ("--target cases.csv --population astorai", "did you mean 'astoria'"),
        ("--target cases.csv --estimator expcted", "did you mean 'expected'"),
        ("--target cases.csv --r 1,2,3", "--r: 3 weeks, but the 14 observed days are in 2"),
        ("--target cases.csv --mortality 2", "mortality: expected 0 to 1"),
        ("--target cases.csv --iterations 0", "iterations: expected a number above 0"),
        ("--target cases.csv --plot c.gif", "ends in .png or .html"),
        ("--target cases.csv --out c.gif", "ends in .csv or .parquet"),
        ("covd --target cases.csv", "did you mean 'covid'"),
    ],
)
def test_bad_settings_are_refused_before_it_starts(
    arguments: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = "hotloop.models.epidemic.weekly_rates.calibrate"
    monkeypatch.setattr(begun, lambda *_: pytest.fail("it started"))
    Path("cases.csv").write_text(GOOD)
    Path("binary.csv").write_bytes(b"\xff\xfe\x00day")
    given = [] if "--population" in arguments else ["--population", "10000"]
    with pytest.raises(SettingError) as raised:
        calibrate([*arguments.split(), *given])
    assert words in str(raised.value)
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["binary.csv", "cases.csv"]


def test_a_file_as_authorities_publish_it_is_read() -> None:
    Path("cases.csv").write_bytes(
        b"\xef\xbb\xbfDate,Region,New Cases,New Deaths\r\n"
        + b"".join(b"2020-02-%02d,Queens,%d,0\r\n" % (day, day) for day in range(23, 30))
        + b"2020-03-01,Queens,40.5,1\r\n\r\n"
    )
    assert MODEL.calibration is not None
    found = read_observations(Path("cases.csv"), MODEL.calibration.observed, 7)
    assert found["daily_infected"].tolist() == [*range(23, 30), 40.5]
    assert found["daily_deaths"].tolist() == [0] * 7 + [1]


def test_without_a_target_it_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        calibrate([])
    assert end.value.code == 2
    assert "--target" in capsys.readouterr().err
