"""`hotloop plan`: forecasts as a table and as JSON, the saved run, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hotloop.cli.plan import run as plan
from hotloop.errors import HotloopError, RefusedError, SettingError
from hotloop.loop.run import load
from hotloop.plan.summary import summarize_plan
from support.clusters import PUBLISHED_CSV

HEADER = "nodes,cores_per_node,step_s,sps\n"
FIT = HEADER + "2,48,1,91.97\n32,48,0.1,4040.86\n2,48,0.01,3130.63\n8,48,0.001,4226.37\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fit.csv").write_text(FIT)
    (tmp_path / "ask.csv").write_text(PUBLISHED_CSV.read_text())
    return tmp_path


def test_json_answers_every_line_in_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(["--points", "fit.csv", "--predict", "ask.csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = np.genfromtxt(folder / "ask.csv", delimiter=",", names=True)
    assert len(found["predictions"]) == len(rows) == 20
    for prediction, row in zip(found["predictions"], rows, strict=True):
        assert (prediction["nodes"], prediction["cores_per_node"]) == (row["nodes"], 48)
        assert prediction["step_s"] == row["step_s"]
        low, high = prediction["interval"]
        assert low < prediction["sps"] < high
        assert prediction["error"] == pytest.approx(prediction["sps"] / row["sps"] - 1)
    assert found["median_error"] <= 0.04
    assert found["worst_error"] <= 0.20


@pytest.mark.long
def test_the_report_is_drawn_again_and_stands_in_a_page(folder: Path, hotloop: Callable) -> None:
    options = ("--points", "fit.csv", "--predict", "ask.csv", "--price-per-hour", "2")
    done = hotloop("plan", *options, "--target-sps", "30000", "--save", "a.run", cwd=folder)
    assert done.code == 0, done.err
    assert "SPS, however many nodes there are" in " ".join(done.out.split())
    assert "16 forecasts of cells that were measured and not fitted" in done.out
    assert "Fewest nodes for 30k SPS" in done.out
    assert load(folder / "a.run").verb == "plan"
    again = hotloop("report", "a.run", cwd=folder)
    assert again.out == done.out
    assert hotloop("report", "a.run", "--html", "page.html", cwd=folder).code == 0
    page = (folder / "page.html").read_text()
    assert "What a cluster would bring, from fit.csv" in page
    assert 'class="chart wide plan"' in page


def test_nodes_and_steps_can_be_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "--points fit.csv --nodes 4,64 --step-s 0.02 --cores-per-node 16 --mode fragments"
    assert plan([*arguments.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["predictions"]
    assert [(p["nodes"], p["step_s"], p["cores_per_node"]) for p in found] == [
        (4, 0.02, 16),
        (64, 0.02, 16),
    ]
    assert {p["mode"] for p in found} == {"fragments"}
    assert found[1]["sps"] > 8 * found[0]["sps"]


def test_the_model_is_drawn_over_all_durations_that_were_measured(folder: Path) -> None:
    words = ["--points", "fit.csv", "--nodes", "8", "--step-s", "0.01", "--save", "one.run"]
    assert plan(words) == 0
    (curve,) = summarize_plan(load(folder / "one.run")).curves
    assert (curve.step_s[0], curve.step_s[-1]) == pytest.approx((0.001, 1.0))


def test_the_points_alone_are_forecast_where_nothing_is_asked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(["--points", "fit.csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["predictions"]
    assert [p["measured_sps"] for p in found] == [91.97, 4040.86, 3130.63, 4226.37]


def test_what_the_points_leave_open_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "long.csv").write_text(HEADER + "2,48,1,91.97\n4,48,1,181.92\n")
    assert plan(["--points", "long.csv", "--predict", "ask.csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (gap,) = found["undetermined"]
    assert gap["measure"]["step_s"] == 0.001
    shortest = found["predictions"][-1]
    assert not shortest["determined"]
    assert shortest["interval"][1] > 2 * shortest["interval"][0]


def test_points_above_the_ideal_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "above.csv").write_text(FIT.replace("91.97", "110"))
    assert plan(["--points", "above.csv", "--json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert warning.startswith("1 of 4 points are above the ideal, cores / step_s")


def test_repeated_and_busy_lines_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = FIT.replace("sps\n", "sps,busy\n").replace("7\n", "7,0.5\n").replace("6\n", "6,0.5\n")
    busy = busy.replace("3\n", "3,0.5\n")
    (folder / "busy.csv").write_text(busy + "2,48,0.001,50,0.97\n2,48,1,91.97,0.5\n")
    assert plan(["--points", "busy.csv", "--json"]) == 0
    left_out, repeated = json.loads(capsys.readouterr().out)["warnings"]
    assert left_out.startswith("1 of 6 points are left out")
    assert repeated == "1 repeated line counts once"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty; expected a header: nodes,cores_per_node,step_s,sps"),
        (HEADER, "expected at least one line below the header, got none"),
        ("nodes,cores_per_node,step_s\n2,48,1\n", "no column 'sps'"),
        ("nodes,cores,step_s,sps\n2,48,1,90\n", "no column 'cores_per_node'"),
        (HEADER + "2,48,1\n", "line 2: expected 4 values, as in the header, got 3"),
        (HEADER + "two,48,1,90\n", "line 2: nodes: expected a number, got 'two'"),
        (HEADER + "2.5,48,1,90\n", "line 2: nodes: expected a whole number, got '2.5'"),
        (HEADER + "2,48,1,-90\n", "line 2: sps: expected a number above 0, got '-90'"),
        (HEADER + "2,48,0,90\n", "line 2: step_s: expected a number above 0, got '0'"),
        (HEADER + "2,48,1,nan\n", "line 2: sps: expected a number above 0, got 'nan'"),
        (HEADER + "2,0,1,90\n", "line 2: cores_per_node: expected a number above 0, got '0'"),
        (HEADER + "2,48,1,91.97\n", "needs at least 2 different points, got 1"),
        (HEADER + "2,48,1,90\n2,48,1,90\n", "needs at least 2 different points, got 1"),
        (HEADER.replace("sps", "sps,mode") + "2,48,1,90,stepp\n", "did you mean 'step'"),
        (HEADER.replace("sps", "sps,busy") + "2,48,1,90,50\n", "busy: expected a number from 0"),
    ],
)
def test_points_that_cannot_be_used_are_refused(content: str, words: str, folder: Path) -> None:
    (folder / "bad.csv").write_text(content)
    with pytest.raises(SettingError) as raised:
        plan(["--points", "bad.csv"])
    assert words in str(raised.value)
    assert not (folder / ".hotloop").exists()


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ("", SettingError, "expected measured points: --points FILE.csv"),
        ("--points none.csv", SettingError, "none.csv: No such file"),
        ("--points fit.csv --predict fit.csv --nodes 3", SettingError, "--nodes: expected without"),
        ("--points fit.csv --step-s 0.1", SettingError, "--step-s: expected --nodes beside it"),
        (
            "--points fit.csv --nodes two",
            SettingError,
            "--nodes: expected whole numbers with commas",
        ),
        ("--points fit.csv --nodes 0", SettingError, "nodes: expected a whole number from 1"),
        ("--points fit.csv --nodes 2 --mode sted", SettingError, "did you mean 'step'"),
        ("--points fit.csv --price-per-hour 0", SettingError, "price_per_hour: expected a number"),
        ("--points fit.csv --step-bytes 100", SettingError, "expected both or neither"),
        ("--points fit.csv --step-spread -1", SettingError, "step_spread: expected a number of 0"),
        ("--points wrong.csv", RefusedError, "no cost model fits these 3 points"),
    ],
)
def test_bad_input_is_refused(
    arguments: str, kind: type[HotloopError], words: str, folder: Path
) -> None:
    (folder / "wrong.csv").write_text(HEADER + "2,48,.01,4000\n2,48,.01,400\n4,48,.01,2000\n")
    with pytest.raises(kind) as raised:
        plan(arguments.split())
    assert words in str(raised.value)
    assert not (folder / ".hotloop").exists()


def test_bad_input_ends_in_one_message(folder: Path, hotloop: Callable) -> None:
    (folder / "wrong.csv").write_text(HEADER + "2,48,.01,4000\n2,48,.01,400\n4,48,.01,2000\n")
    for name, code in (("wrong.csv", 1), ("none.csv", 2)):
        done = hotloop("plan", "--points", name, "--json", cwd=folder)
        assert done.code == code
        assert len(done.messages) == 1
        assert "Traceback" not in done.err
        assert done.out == ""


SPLITS = "act_cores,learn_cores,sps\n2,14,1000\n12,4,6000\n15,1,3000\n"


def test_a_machine_is_split(folder: Path, hotloop: Callable) -> None:
    (folder / "splits.csv").write_text(SPLITS)
    done = hotloop("plan", "--splits", "splits.csv", "--save", "split.run", cwd=folder)
    assert done.code == 0, done.err
    assert done.out.startswith("16 cores, from splits.csv")
    again = hotloop("report", "split.run", "--html", "page.html", cwd=folder)
    assert again.code == 0, again.err
    page = (folder / "page.html").read_text()
    assert "How to share 16 cores between acting and learning" in page
    found = json.loads(hotloop("report", "split.run", "--json", cwd=folder).out)
    assert [p["act_cores"] for p in found["predictions"]] == list(range(1, 16))
    assert found["best"] == max(found["predictions"], key=lambda p: p["sps"])


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        (SPLITS, ["--nodes", "3"], "--nodes: expected without --splits"),
        (SPLITS, ["--cores", "1"], "cores: expected a whole number from 2"),
        (SPLITS.replace("6000", "fast"), [], "line 3: expected whole numbers of cores and a rate"),
        (SPLITS.replace("2,14", "0,16"), [], "line 2: expected whole numbers of cores"),
        ("act_cores,sps\n1,2\n", [], "no column 'learn_cores'"),
        ("act_cores,learn_cores,sps\n", [], "expected at least 2 different splits"),
    ],
)
def test_splits_that_cannot_be_used_are_refused(
    content: str, arguments: list[str], words: str, folder: Path
) -> None:
    (folder / "splits.csv").write_text(content)
    with pytest.raises(SettingError) as raised:
        plan(["--splits", "splits.csv", *arguments])
    assert words in str(raised.value)


def test_the_simulation_stands_beside_the_forecasts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("simpy")
    arguments = ["--points", "fit.csv", "--nodes", "2,2000", "--step-s", "0.01", "--simulate"]
    assert plan([*arguments, "--json"]) == 0
    small, large = json.loads(capsys.readouterr().out)["predictions"]
    assert small["simulated_sps"] == pytest.approx(small["sps"], rel=0.05)
    assert large["simulated_sps"] is None


def test_the_lag_of_a_learner_beside_its_actors_is_forecast(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--points", "fit.csv", "--nodes", "8", "--step-s", "0.1", "--mode", "fragments"]
    slow = ["--learner-sps", "1000", "--batch-fragments", "4"]
    assert plan([*arguments, *slow, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["predictions"]
    assert found["limited_by"] == "learner"
    assert found["staleness"]["lag"] == 4.0  # 16 fragments wait or are made, 4 an update
    with pytest.raises(SettingError, match="batch_fragments: expected learner_sps beside it"):
        plan([*arguments, "--batch-fragments", "4"])


def test_an_interrupted_simulation_keeps_what_it_has(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation = pytest.importorskip("hotloop.plan.simulation")
    rates = iter([94.0])

    def interrupted(_cluster: object) -> float:
        for rate in rates:
            return rate
        raise KeyboardInterrupt

    monkeypatch.setattr(simulation, "simulate_rate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        plan(["--points", "fit.csv", "--simulate", "--json", "--save", "part.run"])
    assert not load(folder / "part.run").complete
    found = json.loads(capsys.readouterr().out)["predictions"]
    assert [p["simulated_sps"] for p in found] == [94.0, None, None, None]
