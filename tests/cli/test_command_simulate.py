"""`hotloop simulate`: curves with their intervals, files, and what is refused before it starts."""

import csv
import importlib.util
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotloop.cli.report import run as report
from hotloop.cli.simulate import run as simulate
from hotloop.errors import CapacityError, HotloopError, SettingError
from hotloop.loop.run import load

torch = pytest.importorskip("torch")
SMALL = ("covid", "--population", "2000", "--steps", "15", "--replicates", "24", "--r", "9,8")
SMALL += ("--device", "cpu")
NAMES = ["replicate", "seed", "day", "daily_infected", "daily_deaths"]
NAMES += ["total_infected", "total_deaths"]


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOTLOOP_CACHE", "")


@pytest.fixture(scope="module")
def simulated(hotloop: Callable, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """What the command printed, and the folder with all that it wrote."""
    folder = tmp_path_factory.mktemp("simulated")
    files = ("--plot", "--out", "new/results.csv", "--save", "s.run")
    done = hotloop("simulate", *files, *SMALL, cwd=folder, HOTLOOP_CACHE="")
    return done, folder


def table(path: Path) -> tuple[list[str], np.ndarray]:
    """Names and values of a CSV file, as (columns, rows)."""
    with path.open() as file:
        head, *rows = csv.reader(file)
    return head, np.array(rows, dtype=np.int64).T


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert simulate([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.long
def test_the_answer_comes_first_then_charts_then_the_days(simulated: tuple[Any, Path]) -> None:
    done, _ = simulated
    assert done.code == 0, done.err
    head, infected, peak, died, *rest = done.out.splitlines()
    assert head.startswith("covid on synthetic-2000  2,000 agents, ")
    assert "15 days, 24 runs from seed 0 on cpu" in head
    for line, word in ((infected, "infected"), (peak, "peak"), (died, "died")):
        assert line.startswith(f"{word} "), line
        assert "[" in line
    text = "\n".join(rest)
    assert text.index("infections a day") < text.index("deaths a day") < text.index("\nday  ")
    assert all(char in text for char in "▄░┤└")
    days = re.findall(r"^ *(\d+)  ", text[text.index("\nday") :], re.M)
    assert days == [str(day) for day in range(15)]
    assert "median of 24 runs, in brackets where 95% of them lie" in text
    assert "agent steps/s" in text


def test_the_results_are_those_of_single_runs_from_seeds_that_follow_each_other(
    simulated: tuple[Any, Path],
) -> None:
    from hotloop.models.epidemic import covid
    from hotloop.sim import Executor

    head, columns = table(simulated[1] / "new" / "results.csv")
    assert head == NAMES
    replicate, seed, day, infected, deaths, all_infected, all_deaths = columns
    assert (replicate * 15 + day).tolist() == list(range(24 * 15))
    assert (seed == replicate).all()
    settings = covid.CovidSettings(num_steps=15, r_by_week=(9.0, 8.0))
    with Executor(covid.model(settings), 2000, seed=7).runner as runner:
        runner.init()
        runner.step(15)
        wanted = runner.state["environment/daily_infected"].tolist()
        wanted_deaths = runner.state["environment/daily_deaths"].tolist()
    assert sum(wanted) > 0
    assert infected[seed == 7].tolist() == wanted
    assert deaths[seed == 7].tolist() == wanted_deaths
    assert all_infected[seed == 7].tolist() == np.cumsum(wanted).tolist()
    assert all_deaths[seed == 7].tolist() == np.cumsum(wanted_deaths).tolist()


def test_the_run_is_drawn_again_byte_for_byte(
    simulated: tuple[Any, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    done, folder = simulated
    saved = load(folder / "s.run")
    assert (saved.verb, saved.target, saved.complete) == ("simulate", "covid:synthetic-2000", True)
    assert saved.arrays["daily_infected"].shape == (24, 15)
    assert report([str(folder / "s.run")]) == 0
    assert capsys.readouterr().out == done.out


def test_the_page_is_alone_and_holds_every_curve(simulated: tuple[Any, Path]) -> None:
    page = (simulated[1] / "covid-synthetic-2000.html").read_text()
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "How covid spreads in synthetic-2000" in page
    for curve in ("infections", "deaths", "infections-in-all", "deaths-in-all"):
        start = page.index(f'aria-labelledby="r0-{curve}-720-title')
        start = page.rindex("<svg", 0, start)
        drawing = ET.fromstring(page[start : page.index("</svg>", start) + 6])
        kinds = [part.get("class", "").split()[0] for part in drawing.iter() if part.get("class")]
        assert kinds.count("dot") == 15
        assert "trace" in kinds


def test_json_holds_the_medians_of_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    found = json_of(capsys, *SMALL, "--out", "r.csv", "--seed", "3", "--stats")
    _, columns = table(Path("r.csv"))
    infected = columns[3].reshape(24, 15)
    assert columns[1].min() == 3
    assert found["setting"]["replicates"] == 24
    assert found["by_step"][0]["middle"] == np.median(infected, axis=0).tolist()
    assert found["totals"][0]["middle"] == np.median(infected.cumsum(1), axis=0).tolist()
    low, middle, high = np.percentile(infected.sum(1), [2.5, 50, 97.5])
    assert found["outputs"]["daily_infected"]["total"] == {
        "value": middle,
        "low": low,
        "high": high,
    }
    assert found["stats"]["steps"] == 15
    assert found["stats"]["agent_steps"] == 15 * 24 * 2000


def test_every_way_to_run_gives_the_same_counts(capsys: pytest.CaptureFixture[str]) -> None:
    plain = json_of(capsys, *SMALL)
    for other in ("--no-active-set", "--threads=1"):
        assert json_of(capsys, *SMALL, other)["by_step"] == plain["by_step"], other
    mixed = json_of(capsys, *SMALL, "--precision", "mixed")
    assert mixed["stats"]["precision"] == "mixed"
    assert (
        0.5
        < mixed["outputs"]["daily_infected"]["total"]["value"]
        / plain["outputs"]["daily_infected"]["total"]["value"]
        < 2
    )


def test_contacts_are_read_in_both_directions_where_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    once, both = json_of(capsys, *SMALL), json_of(capsys, *SMALL, "--both-ways")
    assert both["setting"]["contacts"] > 1.9 * once["setting"]["contacts"]
    assert (
        both["outputs"]["daily_infected"]["total"]["value"]
        > once["outputs"]["daily_infected"]["total"]["value"]
    )


def test_a_folder_without_a_network_gets_one_where_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "agents_only"
    folder.mkdir()
    (folder / "agents.csv").write_text("age\n" + "1\n2\n" * 300)
    at = ("covid", "--population", str(folder), "--steps", "5", "--replicates", "2")
    with pytest.raises(SettingError, match="--draw-network"):
        simulate([*at, "--json"])
    drawn = json_of(capsys, *at, "--draw-network")
    assert drawn["setting"]["contacts"] > 600


def test_the_parameters_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert json_of(capsys, *SMALL, "--r", "0")["outputs"]["daily_infected"]["total"]["high"] == 0
    assert (
        json_of(capsys, *SMALL, "--mortality", "0")["outputs"]["daily_deaths"]["total"]["high"] == 0
    )
    assert (
        json_of(capsys, *SMALL, "--mortality", "1")["outputs"]["daily_deaths"]["total"]["low"] > 0
    )


@pytest.mark.parametrize("batch", ["1", "7", "100"])
def test_batches_change_nothing(batch: str, capsys: pytest.CaptureFixture[str]) -> None:
    json_of(capsys, *SMALL, "--out", "whole.csv")
    json_of(capsys, *SMALL, "--out", "batches.csv", "--batch", batch)
    assert Path("batches.csv").read_text() == Path("whole.csv").read_text()


@pytest.mark.slow
def test_ray_changes_nothing(hotloop: Callable, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    files = {kind: tmp_path / f"{kind}.csv" for kind in ("here", "ray")}
    for kind, more in (("here", ()), ("ray", ("--ray", "--batch", "8"))):
        done = hotloop("simulate", *SMALL, *more, "--out", files[kind], cwd=tmp_path)
        assert done.code == 0, done.err
    assert "Ray, batches of 8" in done.out
    assert files["ray"].read_text() == files["here"].read_text()


@pytest.mark.gpu
def test_a_gpu_gives_the_same_kind_of_curve(capsys: pytest.CaptureFixture[str]) -> None:
    cpu = json_of(capsys, *SMALL, "--replicates", "200")
    gpu = json_of(capsys, *SMALL, "--replicates", "200", "--device", "auto")
    assert gpu["setting"]["device"].startswith("cuda")
    assert (
        gpu["outputs"]["daily_infected"]["total"]["low"]
        <= cpu["outputs"]["daily_infected"]["total"]["value"]
        <= gpu["outputs"]["daily_infected"]["total"]["high"]
    )


def test_parquet_holds_what_csv_holds(capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    json_of(capsys, *SMALL, "--out", "r.csv")
    json_of(capsys, *SMALL, "--out", "r.parquet")
    head, columns = table(Path("r.csv"))
    found = parquet.read_table("r.parquet")
    assert found.column_names == head
    assert [column.to_pylist() for column in found.columns] == columns.tolist()


def test_a_picture_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    json_of(capsys, *SMALL, "--plot", "curve.png")
    assert Path("curve.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in Path.cwd().iterdir()) == [".hotloop", "curve.png"]


def test_stats_and_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(["--population", "300", "--steps", "2", "--replicates", "1", "--stats"]) == 0
    out = capsys.readouterr().out
    assert "2 days, 1 run from seed 0" in out
    assert "[" not in out
    assert "one run: too few for an interval" in out
    for counter in ("agent_steps_per_s", "active_share", "allocations", "transfer_bytes"):
        assert counter in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("covd", "no model 'covd'; did you mean 'covid'?"),
        ("--population astorai", "did you mean 'astoria'"),
        ("--population nowhere/at-all", "expected a folder"),
        ("--population 0", "expected a whole number from 1"),
        ("--steps 0", "--steps: expected 1 or more, got 0"),
        ("--steps 40000", "--steps: expected at most 32,000"),
        ("--replicates 0", "--replicates: expected a number above 0"),
        ("--batch 0", "--batch: expected a number above 0"),
        ("--replicates 99999999", "out of memory: this run needs about"),
        ("--seed=-1", "--seed: expected 0 to"),
        ("--device cuda:99", "device 'cuda:99' is not there; available: 'cpu'"),
        ("--device gpu", "available: 'cpu'"),
        ("--r 4,x", "--r: expected numbers of 0 or more, one a week"),
        ("--r=-1", "--r: expected numbers of 0 or more"),
        ("--r nan", "--r: expected numbers of 0 or more"),
        ("--mortality 1.5", "mortality: expected 0 to 1"),
        ("--threads 0", "threads: expected a whole number of 1 or more"),
        ("--out r.xlsx", "ends in .csv or .parquet, got '.xlsx'"),
        ("--out r", "ends in .csv or .parquet, got no suffix"),
        ("--out there.txt/r.csv", "there.txt is not a folder"),
        ("--out .", "is a folder; name a file in it"),
        ("--plot r.jpg", "ends in .png or .html, got '.jpg'"),
        ("--plot there.txt/r.html", "there.txt is not a folder"),
        ("--save .", "--save: . is a folder"),
    ],
)
def test_bad_input_is_refused_before_it_starts(
    arguments: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotloop.sim.runner.Runner.step", lambda *_: pytest.fail("it started"))
    (tmp_path / "there.txt").touch()
    own = arguments.split()
    given = [] if "--population" in own else ["--population", "300"]
    with pytest.raises(SettingError) as raised:
        simulate([*own, *given])
    assert words in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["there.txt"]


@pytest.mark.parametrize("file", [("--plot", "c.png"), ("--out", "r.parquet")])
def test_a_missing_library_says_how_to_get_it(
    file: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(SettingError, match=r"needs (matplotlib|pyarrow): pip install 'hotloop\["):
        simulate(["--population", "300", *file])


@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (torch.OutOfMemoryError("CUDA"), CapacityError),
        (MemoryError(), CapacityError),
        (ZeroDivisionError("its own"), ZeroDivisionError),
    ],
)
def test_what_was_computed_before_an_end_is_reported(
    raised: BaseException,
    shown: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from hotloop.sim import Runner

    step = Runner.step

    def until_day_6(self: Runner) -> None:
        if self.state.step == 6:
            raise raised
        step(self)

    monkeypatch.setattr(Runner, "step", until_day_6)
    with pytest.raises(shown) as end:
        simulate([*SMALL, "--out", "r.csv", "--save", "part.run"])
    assert shown is not CapacityError or "fewer --replicates" in str(end.value)
    assert "the simulation was interrupted: 6 of 15 days, 24 of 24 runs" in capsys.readouterr().out
    saved = load(Path("part.run"))
    assert not saved.complete
    assert saved.arrays["daily_infected"].shape == (24, 6)
    assert table(Path("r.csv"))[1].shape == (len(NAMES), 24 * 6)


def test_an_end_in_a_later_batch_keeps_whole_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hotloop.sim import Runner

    step, days = Runner.step, iter(range(35))

    def for_35_days(self: Runner) -> None:
        if next(days, None) is None:
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(Runner, "step", for_35_days)
    with pytest.raises(KeyboardInterrupt):
        simulate([*SMALL, "--batch", "8", "--save", "part.run"])
    assert "interrupted: 15 of 15 days, 16 of 24 runs" in capsys.readouterr().out
    assert load(Path("part.run")).arrays["daily_infected"].shape == (16, 15)


def test_an_end_before_the_first_day_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def never(_self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hotloop.sim.runner.Runner.step", never)
    with pytest.raises(KeyboardInterrupt):
        simulate([*SMALL, "--out", "r.csv", "--plot"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_ctrl_c_on_a_terminal_reports_the_days_so_far(on_terminal: Callable, project: Path) -> None:
    endless = ("--population", 5_000, "--steps", 32_000, "--no-active-set")
    terminal = on_terminal("simulate", "covid", *endless, "--out", "r.csv")
    terminal.read_until(
        lambda: (
            b"of 32000 days" in terminal.screen and b" 0 of" not in terminal.screen.splitlines()[-1]
        )
    )
    terminal.type(b"\x03")
    terminal.read_to_the_end()
    assert terminal.process.returncode == 130
    screen = terminal.screen.decode()
    assert "the simulation was interrupted" in screen
    # Numba puts the colours of a terminal back at the end, where colorama is installed.
    shown = screen.rstrip().removesuffix("\x1b[0m").rstrip()
    assert shown.endswith("hotloop: interrupted")
    (path,) = (project / ".hotloop").glob("*.run")
    saved = load(path)
    assert not saved.complete
    days = saved.arrays["daily_infected"].shape[1]
    assert 0 < days < 32_000
    assert table(project / "r.csv")[1].shape[1] == 32 * days


def test_one_message_and_exit_code_2(hotloop: Callable, tmp_path: Path) -> None:
    done = hotloop("simulate", "covid", "--population", "astorai", cwd=tmp_path)
    assert done.code == 2
    assert len(done.messages) == 1
    assert done.out == ""


def test_a_simulation_is_a_target(tmp_path: Path) -> None:
    from hotloop.results.targets import resolve

    loop = resolve("covid:300")
    try:
        assert (loop.name, loop.unit) == ("covid:300", "agent steps")
        assert [loop.body(), loop.body()] == [300 * 21, 300 * 21]
    finally:
        assert loop.close is not None
        loop.close()
    with pytest.raises(HotloopError, match="did you mean 'astoria'"):
        resolve("covid:astorai")
