"""Levers of simulations: each changes how a run is made, and only what says so its result."""

from contextlib import closing
from typing import Any

import pytest
import torch
from tiny_models import MOOD, STEPS, growth, sir

from hotloop.loop.lever import Lever
from hotloop.models.boids.spec import MODEL as BOIDS
from hotloop.models.epidemic.covid import MODEL as COVID
from hotloop.sim import Executor, Record, Runner, create, levers
from hotloop.sim.loop import loop

TOWN = 2_000


def named(runner: Runner) -> dict[str, Lever]:
    return {lever.name: lever for lever in levers.levers_of(runner)}


def covid(**settings: Any) -> Runner:
    return create(COVID, TOWN, device="cpu", **settings)


def infected(runner: Runner) -> torch.Tensor:
    runner.step(5)
    return runner.state["environment/daily_infected"].clone()


def test_fused_active_set_and_threads_change_how_it_runs_and_not_what_it_gives() -> None:
    with covid() as runner:
        found = named(runner)
        assert {"fused", "active_set", "threads", "precision"} <= set(found)
        assert runner.program is not None
        expected = infected(runner)
    with covid(fused=False) as plain:
        assert plain.program is None
        torch.testing.assert_close(infected(plain), expected, rtol=0, atol=0)
    with covid(active_set=False, threads=2) as dense:
        assert dense.program.threads == 2  # type: ignore[union-attr]
        torch.testing.assert_close(infected(dense), expected, rtol=0, atol=0)


def test_what_acts_on_a_program_does_not_act_without_it() -> None:
    with covid() as runner:
        assert named(runner)["active_set"].applies({"fused": True})
        assert not named(runner)["active_set"].applies({"fused": False})


def test_a_rougher_precision_changes_the_result_and_says_so() -> None:
    with covid(precision="mixed") as runner:
        assert named(runner)["precision"].keeps_result is False
        assert runner.get_performance_stats()["precision"] == "mixed"


def test_a_setting_that_the_program_does_not_act_on_is_no_lever() -> None:
    with create(BOIDS, device="cpu") as runner:
        assert not {"active_set", "precision"} & set(named(runner))


def test_a_model_without_a_program_has_none_of_its_levers() -> None:
    with create(sir(), device="cpu") as runner:
        assert {"fused", "active_set", "precision"}.isdisjoint(named(runner))


def test_one_core_has_no_threads_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    with covid() as runner:
        monkeypatch.setattr(levers, "whole_cores", lambda: 1)
        assert named(runner)["threads"].missing == "more than one core"
        monkeypatch.setattr(levers, "whole_cores", lambda: 3)
        lever = named(runner)["threads"]
        assert (lever.options, lever.missing) == ((1, 2, 3), "")


# --- snapshots ---------------------------------------------------------------------------------


def apply(runner: Runner, steps: int) -> None:
    lever = named(runner)["snapshot_steps"]
    assert lever.apply is not None
    lever.apply(steps)


def test_snapshots_are_taken_of_as_many_steps_as_the_option_says() -> None:
    copies, moods = [], []
    for every in (1, 10):
        with create(sir(), device="cpu") as runner:
            apply(runner, every)
            runner.step(STEPS)
            copies.append(runner.get_performance_stats()["snapshots"])
            moods.append(float(runner.state[MOOD]))
    assert copies[0] > 2 * copies[1]
    assert moods[0] == moods[1]


def test_in_an_episode_snapshots_change_with_the_next_one() -> None:
    with create(sir(), device="cpu") as runner:
        runner.step(3)
        before = float(runner.state[MOOD])
        apply(runner, 100)
        assert float(runner.state[MOOD]) == before
        runner.step(3)
        in_this = runner.state_trajectory[5][-1][MOOD]
        assert float(in_this) >= 0  # still kept at every step
        runner.reset()
        runner.step(3)
        assert runner.record.every == 100
        with pytest.raises(Exception, match="every=100"):
            runner.state_trajectory[2][-1][MOOD]


def test_a_program_runs_on_between_two_snapshots() -> None:
    record = Record(keep=("agents/cells/value",))
    with create(growth(), device="cpu", record=record) as runner:
        apply(runner, 10)
        runner.step(10)
        assert runner.program.calls == [(0, 1), (1, 9)]  # type: ignore[union-attr]
    with create(growth(), device="cpu", record=Record(record.keep, every=4)) as runner:
        runner.step(10)
        assert runner.program.calls == [(0, 1), (1, 4), (5, 4), (9, 1)]  # type: ignore[union-attr]
        values = [float(runner.state_trajectory[k][-1]["agents/cells/value"][0]) for k in (1, 5, 9)]
        assert values[1] / values[0] == values[2] / values[1] == 2.0**4


def test_series_need_no_snapshots() -> None:
    with covid() as runner:
        assert "snapshot_steps" not in named(runner)


def test_a_loop_offers_them() -> None:
    made = loop(Executor(sir(), device="cpu"))
    assert made.close is not None
    with closing(made.state[0]):  # type: ignore[type-var]
        assert {lever.name for lever in made.levers} == {"threads", "snapshot_steps"}
