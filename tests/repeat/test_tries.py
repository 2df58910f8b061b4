"""What tries add up to: the staircase, predictions beside what came of them, the cost so far."""

from dataclasses import replace

import pytest

from hotloop.errors import JournalError, SettingError
from hotloop.repeat.entries import (
    GAIN,
    KEPT,
    RATE,
    RATE_A,
    RATE_B,
    RATIO,
    REVERTED,
    Metric,
    RunEntry,
    TryEntry,
)
from hotloop.repeat.journal import Contents
from hotloop.repeat.overview import Overview, overview
from hotloop.repeat.stop import Limits
from hotloop.repeat.tries import calibration, newest_rate, runs_of, spent, staircase

UNIT = "steps/s"


def compared(number: int, before: float, after: float, unit: str = UNIT) -> RunEntry:
    """The run of a try whose sides have these rates."""
    metrics = {
        RATIO: Metric(before / after),
        RATE_A: Metric(before, unit=unit),
        RATE_B: Metric(after, unit=unit),
    }
    return RunEntry("2026-11-23", "compare", "T at HEAD / T as it is", metrics, number=number)


def tried(
    number: int,
    decision: str = KEPT,
    predicted: float | None = None,
    achieved: tuple[float, float, float] | None = None,
    hours: float | None = None,
) -> TryEntry:
    return TryEntry(
        *("2026-11-23", f"try {number}", "T", "T at HEAD", "T as it is", "faster", decision),
        predicted=None if predicted is None else Metric(predicted),
        achieved=None if achieved is None else Metric(*achieved),
        effort_hours=hours,
        run=number,
        number=number,
    )


def measured(number: int, rate: float, verb: str = "benchmark", **changes: object) -> RunEntry:
    metrics = {RATE: Metric(rate, rate - 1, rate + 1, UNIT)}
    entry = RunEntry("2026-11-23", verb, "T", metrics, number=number, host={"cores": 2})
    return replace(entry, **changes)  # type: ignore[arg-type]


# --- the staircase ------------------------------------------------------------------------------


def test_kept_tries_multiply_and_reverted_ones_do_not_count() -> None:
    runs = [compared(1, 100, 200), compared(2, 180, 600), compared(3, 190, 380)]
    found = staircase([tried(1), tried(2, REVERTED), tried(3)], runs, None)
    assert [step.time for step in found.steps] == pytest.approx([0.5, 0.5, 0.25])
    assert found.time == pytest.approx(0.25)
    assert [step.rate and step.rate.value for step in found.steps] == [200, 600, 380]
    assert found.rate == Metric(100, unit=UNIT)
    assert [step.cost for step in found.steps] == [None, None, None]


def test_a_million_units_cost_less_where_the_rate_is_higher() -> None:
    found = staircase([tried(1), tried(2, REVERTED)], [compared(1, 100, 200)] * 2, 3.6)
    assert found.cost_of == "a million steps"
    assert found.cost == pytest.approx(1e6 / 100 * 3.6 / 3600)
    assert found.steps[0].cost == pytest.approx(found.cost / 2)
    assert found.steps[1].cost is None  # reverted: nobody pays that


def test_of_commands_the_cost_is_that_of_an_hours_work() -> None:
    runs = [compared(1, 0.5, 1.0, "runs/s"), compared(2, 1.0, 1.25, "runs/s")]
    found = staircase([tried(1), tried(2)], runs, 2.0)
    assert found.cost_of == "what took an hour"
    assert found.cost == 2.0
    assert [step.cost for step in found.steps] == pytest.approx([1.0, 0.8])


def test_a_kept_try_of_which_nothing_was_measured_changes_nothing() -> None:
    found = staircase([tried(1)], [RunEntry("now", "compare", "T", {}, number=1)], 2.0)
    assert found.time == 1.0
    assert found.rate is None
    assert found.steps[0].rate is None


def test_without_tries_there_is_no_staircase() -> None:
    found = staircase([], [], 2.0)
    assert found.steps == []
    assert found.time == 1.0


# --- predictions --------------------------------------------------------------------------------


def test_predictions_are_held_against_the_interval_of_what_was_achieved() -> None:
    tries = [
        tried(1, predicted=0.10, achieved=(0.12, 0.10, 0.14)),  # at its end: held
        tried(2, predicted=0.20, achieved=(0.10, 0.05, 0.15)),
        tried(3, predicted=0.20),
        tried(4, achieved=(0.1, 0.0, 0.2)),
    ]
    found = calibration(tries)
    assert [each.number for each in found.predictions] == [1, 2]
    assert [each.held for each in found.predictions] == [True, False]
    assert found.held == 0.5
    assert found.ratio == pytest.approx((1.2 + 0.5) / 2)


def test_a_prediction_of_nothing_has_no_ratio() -> None:
    found = calibration([tried(1, predicted=0.0, achieved=(0.0, -0.1, 0.1))])
    assert found.predictions[0].ratio is None
    assert found.ratio is None
    assert found.held == 1.0


def test_what_has_no_interval_neither_holds_nor_fails() -> None:
    entry = replace(tried(1, predicted=0.1), achieved=Metric(0.1))
    found = calibration([entry])
    assert found.predictions[0].held is None
    assert found.held is None


def test_without_predictions_nothing_is_said_of_them() -> None:
    found = calibration([tried(1)])
    assert (found.predictions, found.held, found.ratio) == ([], None, None)


# --- cost and rate ------------------------------------------------------------------------------


def test_the_cost_so_far_is_of_runs_and_of_work() -> None:
    runs = [
        measured(1, 10, cost=0.5, seconds=900.0),
        measured(2, 10, seconds=1800.0),
        measured(3, 10),
    ]
    found = spent(runs, [tried(1, hours=1.5), tried(2)], 4.0, 60.0)
    assert found.runs == pytest.approx(0.5 + 2.0)
    assert found.runs_without_price == 1
    assert (found.effort_hours, found.effort) == (1.5, 90.0)
    assert found.total == pytest.approx(92.5)


def test_without_a_price_runs_are_counted_and_not_priced() -> None:
    found = spent([measured(1, 10, seconds=9.0)], [], None, 60.0)
    assert (found.total, found.runs_without_price) == (0.0, 1)


def test_the_newest_rate_is_the_last_of_benchmarks_experiments_and_kept_tries() -> None:
    runs = [measured(1, 10), compared(2, 10, 20), measured(3, 21, "simplify"), compared(4, 21, 42)]
    tries = [tried(2), tried(4, REVERTED)]
    assert newest_rate("T", runs[:1], tries) == runs[0].metrics[RATE]
    assert newest_rate("T", runs[:2], tries) == Metric(20, unit=UNIT)
    assert newest_rate("T", runs, tries) == runs[2].metrics[RATE]
    assert newest_rate("T", runs, [tried(4)]) == Metric(42, unit=UNIT)
    assert newest_rate("T", [measured(1, 10, complete=False)], []) is None
    assert newest_rate("another", runs[:1], []) is None


def test_the_runs_of_a_target_are_also_those_of_its_parts_versions_and_tries() -> None:
    names = ["T", "T update", "T at HEAD / T as it is", "Tx", "U", "a / b"]
    runs = [measured(k, 10, target=name) for k, name in enumerate(names, 1)]
    assert [run.number for run in runs_of("T", runs, [tried(6)])] == [1, 2, 3, 6]


# --- all of it ----------------------------------------------------------------------------------


def of(runs: list[RunEntry], tries: list[TryEntry], target: str | None = None) -> Overview:
    return overview(Contents(runs, tries), target, Limits(), lambda run: run.metrics)


def experiment(number: int, gain: float, **changes: object) -> RunEntry:
    metrics = {
        RATE: Metric(10.0, 9.0, 11.0, UNIT),
        GAIN + "update": Metric(gain, gain - 0.1, gain + 0.1),
        GAIN + "act": Metric(0.01, 0.0, 0.02),
    }
    return measured(number, 10, "simplify", metrics=metrics, **changes)


def test_an_empty_journal_says_how_to_begin() -> None:
    with pytest.raises(JournalError, match="hotloop repeat try"):
        of([], [])


def test_without_a_target_it_is_that_of_the_newest_try_and_the_others_are_named() -> None:
    runs = [measured(1, 10, target="U"), compared(2, 1, 2), measured(3, 10, target="V")]
    found = of(runs, [tried(2)])
    assert found.target == "T"
    assert found.other_targets == ["V", "U"]
    assert of(runs[:1], []).target == "U"


def test_a_part_of_a_stage_is_no_target_of_its_own() -> None:
    runs = [measured(1, 10, "simplify"), measured(2, 10, "simplify", target="T update")]
    assert of(runs, []).other_targets == []
    assert of(runs, []).target == "T"


def test_an_unknown_target_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingError, match=r"nothing is noted of 'loops'.*did you mean 'loop'"):
        of([measured(1, 10, target="loop")], [], "loops")


def test_the_next_try_is_the_largest_gain_of_the_newest_experiment_with_gains() -> None:
    refused = measured(3, 10, "simplify")
    found = of([experiment(1, 0.2), experiment(2, 0.5), refused], [])
    assert found.next_try is not None
    assert (found.next_try.name, found.next_try.gain.value) == ("update", 0.5)
    assert found.experiment is not None
    assert not found.experiment.before_change


def test_gains_from_before_the_last_kept_change_are_said_to_be_old() -> None:
    runs = [experiment(1, 0.5), compared(2, 10, 20)]
    kept = of(runs, [tried(2)]).experiment
    reverted = of(runs, [tried(2, REVERTED)]).experiment
    assert kept is not None
    assert kept.before_change
    assert reverted is not None
    assert not reverted.before_change


def test_what_counts_and_the_price_are_those_of_the_runs() -> None:
    settings = {"worth": 0.1, "price_per_hour": 3.0}
    found = of([experiment(1, 0.5, settings=settings)], [])
    assert (found.limits.worth, found.limits.price_per_hour) == (0.1, 3.0)
    assert found.price_noted
    given = overview(
        Contents([experiment(1, 0.5, settings=settings)], []),
        None,
        Limits(price_per_hour=5.0),
        lambda run: run.metrics,
    )
    assert given.limits.price_per_hour == 5.0
    assert not given.price_noted


def test_gains_are_read_as_this_version_finds_them() -> None:
    found = overview(
        Contents([experiment(1, 0.5)], []), None, Limits(), lambda run: {GAIN + "act": Metric(0.9)}
    )
    assert found.next_try is not None
    assert found.next_try.name == "act"
