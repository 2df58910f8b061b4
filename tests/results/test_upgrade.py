"""Runs that an earlier version saved are read, drawn and refused like those of today."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotloop.cli import report
from hotloop.errors import RunError
from hotloop.loop.run import Run
from hotloop.report.calibrate import fitted
from hotloop.report.simulate import simulated
from hotloop.results.saved import open_run

STATS = {"agent_steps_per_s": 2e8, "program": "fused cpu", "precision": "double"}
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


def old_facts(**others: Any) -> dict[str, Any]:
    return {
        "model": "covid",
        "population": "astoria",
        "agents": 1000,
        "contacts": 4000,
        "infected_at_start": 3,
        "device": "cpu",
        "seconds": 0.5,
    } | others


def old_simulation() -> Run:
    """Run r of 40 infects r a day, ten more on day 5; nobody dies but in the last run."""
    infected = np.repeat(np.arange(40)[:, None], 10, axis=1)
    infected[:, 5] += 10
    deaths = np.zeros_like(infected)
    deaths[-1, -1] = 7
    return Run(
        verb="simulate",
        target="covid:astoria",
        settings={"seed": 0, "steps": 10, "replicates": 40},
        facts=old_facts(stats=STATS),
        arrays={"daily_infected": infected, "daily_deaths": deaths},
        host=HOST,
    )


def old_calibration(*, with_deaths: bool = True) -> Run:
    days = np.arange(10.0)
    band = np.stack([days, days - 1, days + 1])
    arrays = {
        "loss": np.array([8.0, 2.0, 1.0]),
        "rate": np.array([3.0, 4.0]),
        "rate_first": np.array([4.75, 4.75]),
        "rate_interval": np.array([[2.5, 3.6], [1e-9, 1e9]]),
        "observed_infected": np.where(days == 4, 9.0, days),
        "infected": band,
        "deaths": band,
    }
    if with_deaths:
        arrays["observed_deaths"] = days
    return Run(
        verb="calibrate",
        target="covid:astoria",
        settings={"seed": 0},
        facts=old_facts(
            replicates=40,
            mortality=0.1,
            mortality_first=0.12,
            mortality_interval=[0.05, 0.2] if with_deaths else None,
            notes=["a note"],
        ),
        arrays=arrays,
        host=HOST,
    )


def reopened(run: Run, folder: Path) -> Run:
    return open_run(run.save(folder / "old.run"))


def printed(run: Run, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert report.run([str(run.save(folder / "old.run"))]) == 0
    return capsys.readouterr().out


def test_an_old_simulation_is_printed_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(old_simulation(), tmp_path, capsys)
    assert out.startswith(
        "covid on astoria  1,000 agents, 4,000 contacts, 3 infected at the start; 10 days, 40 runs "
        "from seed 0 on cpu\n"
        "infected  205 [19.8, 390.2] in 10 days, 20.5% of the agents\n"
        "peak      29.5 [11, 48] infections a day, on day 5\n"
        "died      0 [0, 0.2], 0.0% of the infected so far\n"
    )
    assert "day     infections      deaths    infections in all  deaths in all\n" in out


def test_an_old_fit_is_printed_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(old_calibration(), tmp_path, capsys)
    assert out.splitlines()[1:4] == [
        "R by week  3 [2.5, 3.6], 4",
        "mortality  0.1 [0.05, 0.2] fitted to the deaths",
        "fit        loss 8 to 1 in 3 iterations, 500 ms; 19 of 20 observed counts lie in the band "
        "of 95%",
    ]
    out = printed(old_calibration(with_deaths=False), tmp_path, capsys)
    assert out.splitlines()[2] == "mortality  0.1 kept: no deaths were given to fit it to"


def test_an_old_run_has_every_number_of_its_own(tmp_path: Path) -> None:
    old = old_simulation()
    new = reopened(old, tmp_path)
    assert new.arrays["daily_infected"].tolist() == old.arrays["daily_infected"].tolist()
    assert simulated(new).outputs["daily_deaths"].total.high > 0
    found = fitted(reopened(old_calibration(), tmp_path))
    assert [each.name for each in found.parameters] == ["R, week 1", "R, week 2", "mortality"]
    assert [each.value.value for each in found.parameters] == [3.0, 4.0, 0.1]
    assert [each.first_guess for each in found.parameters] == [4.75, 4.75, 0.12]
    assert found.parameters[2].value.high == 0.2
    assert [curve.observed is None for curve in found.by_step] == [False, False]


def test_an_old_run_has_its_page(tmp_path: Path) -> None:
    path, page = old_simulation().save(tmp_path / "old.run"), tmp_path / "page.html"
    assert report.run([str(path), "--html", str(page)]) == 0
    assert "How covid spreads in astoria" in page.read_text()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("mortality", "high", "facts: mortality: str"),
        ("mortality_interval", [0.1], "mortality_interval: expected two numbers"),
        ("agents", -1, "facts: agents: expected a number above 0, got -1"),
    ],
)
def test_an_old_run_that_was_edited_is_refused(
    name: str, value: object, why: str, tmp_path: Path
) -> None:
    run = old_calibration()
    run.facts[name] = value
    with pytest.raises(RunError, match=f"old.run was edited or damaged: .*{why}"):
        reopened(run, tmp_path)


def test_a_run_of_today_stays_as_it_is(tmp_path: Path) -> None:
    new = reopened(old_simulation(), tmp_path)
    again = reopened(new, tmp_path)
    assert again.facts == new.facts
    assert set(again.arrays) == set(new.arrays)
