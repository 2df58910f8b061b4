"""Searches on loops of this process: what is set, what is refused, what stays."""

import importlib.util
import time

import numpy as np
import pytest

import hotloop
from hotloop import Lever, Loop
from hotloop.errors import HotloopError, SettingError, TargetError


class Work:
    """A loop whose time falls with the chunk, and which adds one to its result."""

    def __init__(self) -> None:
        self.chunk = 1
        self.broken = False
        self.step = 1.0
        self.held = np.zeros(0)
        self.x = np.zeros(4)

    def set_chunk(self, chunk: int) -> None:
        self.chunk = chunk

    def set_broken(self, broken: bool) -> None:
        self.broken = broken

    def set_step(self, step: float) -> None:
        self.step = step

    def set_held(self, gigabytes: int) -> None:
        self.held = np.ones(gigabytes * 125_000_000)

    def iterate(self) -> int:
        if self.broken:
            raise ValueError("it is broken")
        time.sleep(0.004 / self.chunk)
        self.x += self.step
        return 8

    def loop(self, *levers: Lever) -> Loop:
        return Loop(
            self.iterate,
            unit="samples",
            name="work",
            state=[self],
            result=lambda: self.x,
            levers=levers,
        )


@pytest.mark.long
def test_the_loop_is_set_to_the_best_and_the_rest_is_noted():
    work = Work()
    levers = (
        Lever("chunk", (1, 2, 4), now=1, apply=work.set_chunk),
        Lever("broken", (False, True), now=False, apply=work.set_broken),
        Lever("step", (1.0, 2.0), now=1.0, apply=work.set_step),
        Lever("held_gb", (0, 10_000), now=0, apply=work.set_held, area="memory"),
    )
    result = hotloop.run_optimize(work.loop(*levers), budget=15.0, advice=False)
    outcome = result.outcome
    assert outcome.best == {"chunk": 4}
    assert work.chunk == 4
    assert not work.broken
    assert outcome.gain.low > 1.5  # type: ignore[union-attr]
    assert not outcome.unchecked
    problems = " ".join(str(each.problem) for each in outcome.trials if each.problem)
    assert "it is broken" in problems
    assert "memory" in problems
    assert result.chosen.levers == {"chunk": 4}
    assert "times" in repr(result)


def test_what_changes_the_result_is_not_taken_however_fast():
    work = Work()

    def shortcut(on: bool) -> None:
        work.step, work.chunk = (2.0, 8) if on else (1.0, 1)

    lever = Lever("shortcut", (False, True), now=False, apply=shortcut)
    outcome = hotloop.run_optimize(work.loop(lever), budget=5.0, advice=False).outcome
    assert outcome.best == {}
    assert "changes what the loop computes" in str(outcome.trials[0].problem)
    assert work.step == 1.0


@pytest.mark.long
@pytest.mark.parametrize(
    ("state", "why"),
    [([], "declares no state"), ([(n for n in range(3))], "state cannot be put back")],
)
def test_without_state_to_put_back_levers_are_tried_but_not_checked(state, why):
    work = Work()
    lever = Lever("chunk", (1, 4), now=1, apply=work.set_chunk)
    loop = Loop(work.iterate, unit="samples", levers=[lever], state=state)
    outcome = hotloop.run_optimize(loop, budget=5.0, advice=False).outcome
    assert outcome.best == {"chunk": 4}
    assert why in outcome.unchecked


def test_without_levers_there_is_nothing_to_try():
    with pytest.raises(TargetError, match="it has no levers"):
        hotloop.run_optimize(Work().loop(), budget=5.0, advice=False)


def test_what_changes_learning_needs_to_be_allowed():
    work = Work()
    lever = Lever("step", (1.0, 2.0), now=1.0, apply=work.set_step, keeps_result=False)
    with pytest.raises(TargetError, match="allow-learning-changes"):
        hotloop.run_optimize(work.loop(lever), budget=5.0, advice=False)
    with pytest.raises(TargetError, match="no target whose time"):
        hotloop.run_optimize(
            work.loop(lever), budget=5.0, advice=False, allow_learning_changes=True
        )


def test_that_optuna_is_missing_is_said_before_the_loop_runs(monkeypatch):
    work = Work()
    lever = Lever("chunk", (1, 2), now=1, apply=work.set_chunk)
    monkeypatch.setattr(importlib.util, "find_spec", {}.get)
    with pytest.raises(HotloopError, match=r"needs optuna: pip install 'hotloop\[optimize\]'"):
        hotloop.run_optimize(work.loop(lever), budget=10.0)
    assert not work.x.any()


def test_settings_out_of_range_are_refused():
    with pytest.raises(SettingError, match="budget: expected 5 seconds or more"):
        hotloop.run_optimize(Work().loop(), budget=1.0)
    with pytest.raises(SettingError, match="did you mean 'budget'"):
        hotloop.run_optimize(Work().loop(), buget=10.0)
