"""A model of a user's own by the commands: declared in its file, and nowhere else."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotloop.cli.calibrate import run as calibrate
from hotloop.cli.report import run as report
from hotloop.cli.simulate import run as simulate
from hotloop.errors import HotloopError, SettingError, TargetError
from hotloop.loop.run import load
from hotloop.results.targets import resolve, resolve_model

pytest.importorskip("torch")

SHEEP = '''
from dataclasses import dataclass

import numpy as np
import torch

from hotloop.sim import Model, ModelSpec, Output, Series, Substep


@dataclass(frozen=True)
class Settings:
    """Of the meadow."""

    hunger: float = 0.2
    """Chance that a sheep eats in an hour."""


class Graze(Substep):
    reads = ("agents/sheep/fed",)
    writes = ("agents/sheep/fed", "environment/meals", "environment/grass")

    def transition(self, state, _action):
        eats = state.uniform(0, "sheep") < self.parameter("hunger")
        return {
            "agents/sheep/fed": state["agents/sheep/fed"] + eats,
            "environment/meals": eats.sum(-1),
            "environment/grass": 1 / (1 + state["agents/sheep/fed"].double().mean(-1)),
        }


def make(settings=Settings()):
    return Model(
        "sheep",
        substeps=(Graze(hunger=settings.hunger),),
        populations={"sheep": {"fed": np.zeros(50, np.int32)}},
        sizes={"sheep": 50},
        environment={"meals": Series(), "grass": Series()},
        num_steps_per_episode=12,
    )


PLAIN = make()
MODEL = ModelSpec(
    name="sheep",
    make=make,
    settings=Settings,
    outputs=(
        Output("meals", "meals", word="eaten", total_name="all_meals", peak=True),
        Output("grass", "grass", kind="level", colour=2),
    ),
    step="hour",
)
NUMBER = 3
'''
SPREAD = """
import numpy as np
import torch

from hotloop.models.epidemic import (
    Progression, Spread, Transmission, WeeklyRates, differentiator, fused,
)
from hotloop.sim import Model, ModelSpec, Output, Series

N = 2_000
weights = np.zeros((4, 6))
weights[1, 1:5] = 0.4
spread = Spread(weights, durations=(4,), susceptibility=np.array([1.0]),
                compartment_names=("well", "ill", "recovered", "dead"))
starts = np.arange(N) % 100 == 0
rumour = Model(
    "rumour",
    substeps=(
        Transmission(spread, torch.tensor([1.0]), network="ties", population="people"),
        Progression(spread, torch.tensor(0.01), population="people"),
    ),
    populations={"people": {
        "group": np.zeros(N, np.uint8),
        "compartment": starts.astype(np.uint8),
        "infected_time": np.where(starts, -1, 500).astype(np.int16),
        "next_time": np.where(starts, 3, 500).astype(np.int16),
    }},
    sizes={"people": N},
    environment={"daily_infected": Series(), "daily_deaths": Series()},
    networks={"ties": np.random.default_rng(0).integers(0, N, (3 * N, 2))},
    program=fused,
    gradient=differentiator,
)
MODEL = ModelSpec(
    name="rumour",
    make=lambda _settings: rumour,
    outputs=(Output("daily_infected", "told"), Output("daily_deaths", "bored", colour=3)),
    step="day",
    calibration=WeeklyRates(),
)
"""
BRIEFLY = ("--steps", "8", "--replicates", "6")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sheep.py").write_text(SHEEP)
    (tmp_path / "spreads.py").write_text(SPREAD)
    (tmp_path / "farm").mkdir()
    (tmp_path / "farm/__init__.py").touch()
    (tmp_path / "farm/animals.py").write_text(SHEEP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOTLOOP_CACHE", "")
    return tmp_path


def table(path: Path) -> tuple[list[str], np.ndarray]:
    with path.open() as file:
        head, *rows = csv.reader(file)
    return head, np.array(rows, dtype=np.float64).T


@pytest.mark.parametrize("target", ["sheep.py:MODEL", "farm.animals:MODEL"])
def test_it_is_simulated_drawn_and_written(
    target: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [target, *BRIEFLY, "--hunger", "0.5", "--plot", "--out", "r.csv", "--save", "s.run"]
    assert simulate(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("sheep on its own agents  50 agents")
    for words in ("eaten", "meals an hour", "8 hours", "grass"):
        assert words in out, words
    head, columns = table(Path("r.csv"))
    assert head == ["replicate", "seed", "hour", "meals", "grass", "all_meals"]
    assert columns.shape == (6, 6 * 8)
    assert 15 < columns[3].mean() < 35
    page = (folder / "sheep.html").read_text()
    assert "meals" in page
    assert report(["s.run"]) == 0
    assert capsys.readouterr().out == out


def test_no_word_of_another_model_is_said_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(["sheep.py:MODEL", *BRIEFLY, "--plot"]) == 0
    page = Path("sheep.html").read_text().lower()
    for word in ("infect", "death", "died", "contacts", " day", "agents of"):
        assert word not in capsys.readouterr().out.lower(), word
        assert word not in page, word


def test_a_model_without_a_spec_shows_all_its_series(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(["sheep.py:PLAIN", *BRIEFLY, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [curve["name"] for curve in found["by_step"]] == ["meals", "grass"]
    assert simulate(["sheep.py:make", *BRIEFLY, "--json"]) == 0


def test_a_model_of_ours_with_agents_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(["boids", "--birds", "100", *BRIEFLY, "--plot", "b.html"]) == 0
    assert "polarisation" in capsys.readouterr().out
    assert "polarisation" in Path("b.html").read_text()


@pytest.mark.long
def test_it_is_benchmarked_and_simplified(hotloop: Callable, folder: Path) -> None:
    done = hotloop("benchmark", "sheep.py:MODEL", "--seconds", "0.5", "--json", cwd=folder)
    assert done.code == 0, done.err
    assert json.loads(done.out)["unit"] == "agent steps"
    done = hotloop("simplify", "sheep.py:PLAIN", "--budget", "3", "--json", cwd=folder)
    assert "graze" in done.out.lower(), done.err


def test_a_model_of_what_spreads_is_calibrated(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        simulate(["spreads.py:MODEL", "--steps", "14", "--replicates", "1", "--out", "o.csv"]) == 0
    )
    _, columns = table(Path("o.csv"))
    lines = [f"{day},{count:.0f}\n" for day, count in enumerate(columns[3])]
    Path("cases.csv").write_text("day,cases\n" + "".join(lines))
    few = ("--iterations", "3", "--replicates", "8", "--interval-replicates", "20")
    capsys.readouterr()
    made = ["--out", "fit.csv", "--save", "fit.run"]
    assert calibrate(["spreads.py:MODEL", "--target", "cases.csv", *few, *made]) == 0
    out = capsys.readouterr().out
    assert out.startswith("rumour on its own agents")
    for words in ("R by week", "R, week 2", "told observed"):
        assert words in out, words
    assert table(Path("fit.csv"))[0][:3] == ["day", "observed_infected", "infected_mean"]
    assert load(Path("fit.run")).arrays["parameter"].shape == (3,)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sheep.py:NUMBER",), "has no function 'NUMBER'"),
        (("sheep.py:MODLE",), "did you mean 'MODEL'"),
        (("sheeps.py:MODEL",), "did you mean 'sheep.py'"),
        (("nowhere:MODEL",), "no module 'nowhere'"),
        (("shep",), "no model 'shep'"),
        (("ppo:CartPole-v1",), "expected a hotloop.sim.Model"),
        (("sheep.py:MODEL", "--population", "300"), "has agents of its own"),
        (("sheep.py:MODEL", "--draw-network"), "has agents of its own"),
        (("sheep.py:MODEL", "--hunger", "no"), None),
        (("covid:300", "--population", "400"), "the target names '300'"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_starts(
    arguments: tuple[str, ...], words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotloop.sim.runner.Runner.step", lambda *_: pytest.fail("it started"))
    with pytest.raises((SettingError, TargetError, SystemExit)) as raised:
        simulate([*arguments, "--steps", "2"])
    if words is not None:
        assert words in str(raised.value)


def test_a_model_without_a_calibration_says_what_to_declare() -> None:
    Path("cases.csv").write_text("day,cases\n")
    with pytest.raises(SettingError, match=r"declares no calibration: .*WeeklyRates"):
        calibrate(["sheep.py:MODEL", "--target", "cases.csv"])


def test_settings_may_not_be_called_as_an_option(folder: Path) -> None:
    text = SHEEP.replace("hunger: float = 0.2", "seed: float = 0.2").replace(
        "settings.hunger", "settings.seed"
    )
    (folder / "goats.py").write_text(text)
    with pytest.raises(SettingError, match="'seed' of Settings is also an option of the command"):
        simulate(["goats.py:MODEL"])


def test_settings_without_a_default_are_refused(folder: Path) -> None:
    text = SHEEP.replace("hunger: float = 0.2", "hunger: float").replace("PLAIN = make()", "")
    (folder / "goats.py").write_text(text.replace("settings=Settings()", "settings"))
    with pytest.raises(HotloopError, match="expected a default for every field"):
        simulate(["goats.py:MODEL"])


@pytest.mark.parametrize(
    ("target", "population"),
    [("covid", None), ("covid:brooklyn", "brooklyn"), ("sheep.py:MODEL", None)],
)
def test_a_target_may_name_its_population(target: str, population: str | None) -> None:
    assert resolve_model(target).population == population


def test_a_loop_of_a_model_asks_for_the_population_that_it_needs() -> None:
    with pytest.raises(TargetError, match="has agents of its own"):
        resolve("sheep.py:MODEL:300")
    loop: Any = resolve("covid:300")
    assert loop.unit == "agent steps"
    loop.close()
