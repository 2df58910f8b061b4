"""Experiments on a fake clock: every number of the verdict is known."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hotloop.errors import LoopError
from hotloop.loop import Loop, SharedControl, Stage, drive
from hotloop.loop.arm import Kind
from hotloop.loop.cost import ProbeCost
from hotloop.loop.figures import Interval
from hotloop.report.statements import remarks
from hotloop.simplify.ceilings import Ladder, PipelineModel
from hotloop.simplify.experiment import Experiment
from hotloop.simplify.judge import judge
from hotloop.simplify.settings import SimplifySettings
from hotloop.simplify.verdict import Verdict
from hotloop.simplify.verdict_rows import StageVerdict
from support.clock import FakeClock

MS = 1_000_000


def experiment_on(
    control: SharedControl, body: Callable[[], object], budget: float = 3.0, **loop: Any
) -> tuple[Verdict, Experiment]:
    settings = SimplifySettings(budget=budget)
    experiment = Experiment(control, settings)
    made = Loop(body=body, **loop)  # type: ignore[arg-type]
    drive(made, experiment.run(made), control)
    return judge(experiment.record, "exact", settings.worth), experiment


def row(verdict: Verdict, name: str) -> StageVerdict:
    return next(row for row in verdict.rows if row.name == name)


def value(of: object) -> float:
    assert isinstance(of, Interval), of
    return of.value


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def control(clock: FakeClock) -> SharedControl:
    return SharedControl(clock)


@pytest.mark.long
def test_the_cost_of_measuring_is_left_out_of_a_gain() -> None:
    """Iterations of 10 µs, and every look at the clock takes 0.2: 1 µs an iteration."""
    clock = FakeClock(look_ns=200)
    control = SharedControl(clock)
    load = Stage("load", effect="pure", control=control)(lambda: clock.burn_ns(4_000))
    train = Stage("train", effect="pure", control=control)(lambda: clock.burn_ns(6_000))

    def body() -> int:
        load()
        train()
        return 1

    verdict, experiment = experiment_on(control, body, budget=1.0)
    assert experiment.record.probe_cost == ProbeCost(400, 400)
    assert value(verdict.baseline_ns) == pytest.approx(11_000), "as a benchmark would measure it"
    gains = [row(verdict, name).gain for name in ("load", "train")]
    # The iteration's own look at the clock stays in.
    assert [value(gain) for gain in gains] == pytest.approx([4 / 10.2, 6 / 10.2])
    # What measuring takes of a loop is not known so well: its gain without that lies inside.
    uncorrected = Interval(4 / 11, 4 / 11, 4 / 11)
    assert value(gains[0]) - uncorrected.value < 2 * gains[0].half_width  # type: ignore[union-attr]


@pytest.mark.long
def test_a_serial_loop_gains_what_each_stage_takes(
    control: SharedControl, clock: FakeClock
) -> None:
    load = Stage("load", effect="pure", kind="io", control=control)(lambda: clock.wait_ns(6 * MS))
    train = Stage("train", effect="pure", control=control)(lambda: clock.burn_ns(3 * MS))
    log = Stage("log", effect="pure", control=control)(lambda: clock.burn_ns(0.1 * MS))

    def body() -> int:
        load()
        train()
        log()
        clock.burn_ns(0.9 * MS)  # what the loop does outside its stages
        return 4

    verdict, experiment = experiment_on(control, body, budget=8.0, unit="samples")
    assert verdict.refused is None
    assert value(verdict.baseline_ns) == pytest.approx(10 * MS)
    assert verdict.units_per_iteration == 4
    load_row, train_row, log_row = (row(verdict, name) for name in ("load", "train", "log"))
    assert value(load_row.gain) == pytest.approx(0.6)
    assert value(train_row.gain) == pytest.approx(0.3)
    assert value(log_row.gain) == pytest.approx(0.01)
    assert value(load_row.ceiling_ns) == pytest.approx(6 * MS)
    assert value(train_row.gain_if_faster) == pytest.approx(0.15)
    assert value(load_row.gain_if_faster) == pytest.approx(0.3)
    # A pad takes as long as the stage: nothing is due to contention, all of it to waiting.
    assert value(train_row.interference_ns) == pytest.approx(0, abs=1)
    assert value(train_row.latency_ns) == pytest.approx(3 * MS)
    assert (load_row.cost, train_row.cost) == ("waiting", "own work")
    assert (load_row.verdict, train_row.verdict, log_row.verdict) == ("fix", "fix", "leave")
    assert verdict.fix is load_row
    assert verdict.leave == ["log"]
    assert experiment.record.block_iterations == 1
    assert not isinstance(load_row.slack, str)
    assert isinstance(verdict.ladder, Ladder)
    now, overlap, stage, _ = verdict.ladder.rungs
    assert value(now.ns) == pytest.approx(10 * MS)
    # The waiting needs no core; on two or more of them the rest fits beside it.
    assert value(overlap.ns) == pytest.approx(6 * MS)
    assert value(stage.ns) == pytest.approx(6 * MS)
    assert stage.set_by == "load"
    assert isinstance(verdict.ladder.model, PipelineModel)
    assert verdict.ladder.model.holds
    assert value(verdict.ladder.model.predicted_ns) == pytest.approx(10 * MS)


@pytest.mark.long
def test_a_real_fix_gains_what_was_predicted(clock: FakeClock) -> None:
    def loop_with(step_ms: float) -> tuple[Verdict, Experiment]:
        control = SharedControl(clock)
        step = Stage("step", effect="pure", control=control)(lambda: clock.burn_ns(step_ms * MS))
        rest = Stage("rest", effect="pure", control=control)(lambda: clock.burn_ns(2 * MS))
        return experiment_on(control, lambda: (step(), rest()) and 1)

    before, _ = loop_with(6.0)
    after, _ = loop_with(3.0)
    achieved = 1 - value(after.baseline_ns) / value(before.baseline_ns)
    assert value(row(before, "step").gain_if_faster) == pytest.approx(achieved)


@pytest.mark.long
def test_an_effectful_stage_is_never_replaced(control: SharedControl, clock: FakeClock) -> None:
    saved: list[int] = []

    def save() -> None:
        clock.burn_ns(5 * MS)
        saved.append(1)

    save_stage = Stage("save", control=control)(save)
    work = Stage("work", effect="pure", control=control)(lambda: clock.burn_ns(5 * MS))
    iterations = 0

    def body() -> int:
        nonlocal iterations
        iterations += 1
        save_stage()
        work()
        return 1

    verdict, _ = experiment_on(control, body)
    assert len(saved) == iterations, "it ran in every iteration of every arm"
    found = row(verdict, "save")
    assert found.verdict == "not replaced"
    assert "effectful" in str(found.not_replaced)
    assert not isinstance(found.gain, Interval)
    assert found.slack.slack_ns.value == pytest.approx(0, abs=0.02 * MS)  # type: ignore[union-attr]


@pytest.mark.long
def test_a_stage_that_claims_state_which_is_not_declared_is_not_replaced(
    control: SharedControl, clock: FakeClock
) -> None:
    step = Stage("step", effect="stateful", control=control)(lambda: clock.burn_ns(MS))
    work = Stage("work", effect="pure", control=control)(lambda: clock.burn_ns(MS))
    verdict, _ = experiment_on(control, lambda: (step(), work()) and 1)
    assert "not declared" in str(row(verdict, "step").not_replaced)
    assert row(verdict, "work").verdict == "fix"


def test_state_that_cannot_be_put_back_is_named_before_anything_is_touched(
    control: SharedControl, clock: FakeClock
) -> None:
    told: list[str] = []
    state = {"loader": (k for k in range(10))}
    step = Stage("step", effect="stateful", control=control)(lambda: clock.burn_ns(MS))
    loop = Loop(body=lambda: step() and 1, state=[state])
    experiment = Experiment(
        control,
        SimplifySettings(budget=2.0),
        announce=told.extend,
        not_put_back=lambda: ["goes on: optimiser (Adam)"],
    )
    measurement = experiment.run(loop)
    next(measurement)
    assert told == [
        "cannot be saved and put back: state[0] (dict)['loader']: a builtins.generator hides "
        "its content",
        "goes on: optimiser (Adam)",
    ]
    measurement.close()


@pytest.mark.long
@pytest.mark.parametrize("may_go_on", [False, True])
def test_what_cannot_be_put_back_holds_back_only_the_stages_that_work_on_it(
    control: SharedControl, clock: FakeClock, may_go_on: bool
) -> None:
    """A simulator whose state is hidden (a generator), and a training whose state is not."""
    simulator, weights = {"hidden": (n for n in range(1_000_000))}, np.zeros(4)

    def simulate() -> int:
        clock.burn_ns(3 * MS)
        return next(simulator["hidden"])

    def learn(_state: int) -> None:
        clock.burn_ns(MS)
        weights[:] += 1

    step = Stage("step", effect="stateful", control=control)(simulate)
    update = Stage("update", effect="stateful", control=control)(learn)
    verdict, experiment = experiment_on(
        control,
        lambda: update(step()) or 1,
        state=[weights, simulator],
        may_go_on=[simulator] if may_go_on else [],
    )
    assert value(row(verdict, "update").gain) == pytest.approx(0.25, abs=0.01)
    (notice,) = experiment.record.notices
    if may_go_on:
        assert notice.startswith("goes on from experimental steps: state[1] (dict)['hidden']: ")
        assert value(row(verdict, "step").gain) == pytest.approx(0.75, abs=0.01)
    else:
        assert notice.startswith("cannot be saved and put back: state[1] (dict)['hidden']: ")
        assert "cannot be put back" in str(row(verdict, "step").not_replaced)
    # What can be put back is: the kept iterations alone have learned.
    assert weights[0] == experiment.record.iterations_kept


def test_only_declared_state_may_go_on() -> None:
    with pytest.raises(LoopError, match=r"may_go_on\[1\], a dict, is not in state"):
        Loop(body=lambda: 1, state=[1], may_go_on=[1, {}])


@pytest.mark.long
def test_nothing_that_experimental_arms_did_survives(
    control: SharedControl, clock: FakeClock
) -> None:
    """After the experiment the state is that of a plain run of the kept iterations, to the bit."""

    def make(on: SharedControl) -> tuple[Loop, dict[str, Any]]:
        state: dict[str, Any] = {
            "rng": np.random.default_rng(3),
            "weights": np.zeros(4),
            "seen": [],
            "global": 0.0,
        }

        def step() -> np.ndarray:
            clock.burn_ns(2 * MS)
            drawn: np.ndarray = state["rng"].normal(size=4)
            return drawn

        def update(batch: np.ndarray) -> None:
            clock.burn_ns(MS)
            state["weights"] += batch
            state["seen"].append(float(batch[0]))
            state["global"] += float(np.random.random())

        step_stage = Stage("step", effect="stateful", control=on)(step)
        update_stage = Stage("update", effect="stateful", control=on)(update)
        return Loop(body=lambda: update_stage(step_stage()) or 1, state=[state]), state

    np.random.seed(11)
    loop, state = make(control)
    experiment = Experiment(control, SimplifySettings(budget=2.0))
    drive(loop, experiment.run(loop), control)
    after_experiment = float(np.random.random())
    assert experiment.record.iterations_kept < control.iteration[0], "arms beyond the kept"

    np.random.seed(11)
    plain_loop, plain = make(SharedControl(clock))
    for _ in range(experiment.record.iterations_kept):
        plain_loop.body()
    assert state["seen"] == plain["seen"]
    assert state["weights"].tobytes() == plain["weights"].tobytes()
    assert state["rng"].bit_generator.state == plain["rng"].bit_generator.state
    assert state["global"] == plain["global"]
    assert after_experiment == float(np.random.random())


@pytest.mark.long
def test_an_interrupted_experiment_puts_the_state_back_too(
    control: SharedControl, clock: FakeClock
) -> None:
    state = {"count": 0}

    def step() -> None:
        clock.burn_ns(MS)
        state["count"] += 1

    step_stage = Stage("step", effect="stateful", control=control)(step)
    other = Stage("other", effect="pure", control=control)(lambda: clock.burn_ns(MS))
    experiment = Experiment(control, SimplifySettings(budget=2.0))

    def body() -> int:
        step_stage()
        other()
        if len(experiment.record.ns) == 40:
            raise KeyboardInterrupt
        return 1

    loop = Loop(body=body, state=[state])
    with pytest.raises(KeyboardInterrupt):
        drive(loop, experiment.run(loop), control)
    assert state["count"] == experiment.record.iterations_kept
    assert len(experiment.record.ns) == 40, "what was measured stays"


def test_replays_that_do_not_fit_are_given_up_and_the_rest_goes_on(
    control: SharedControl, clock: FakeClock
) -> None:
    tickets, last = itertools.count(1), {"ticket": 0}

    def issue() -> int:
        clock.burn_ns(MS)
        return next(tickets)

    def check(ticket: int) -> None:
        clock.burn_ns(2 * MS)
        if ticket <= last["ticket"]:
            raise ValueError(f"ticket {ticket} comes after {last['ticket']}")
        last["ticket"] = ticket

    issue_stage = Stage("issue", effect="pure", control=control)(issue)
    check_stage = Stage("check", effect="pure", control=control)(check)
    verdict, _ = experiment_on(control, lambda: check_stage(issue_stage()) or 1)
    assert "does not fit the loop" in str(row(verdict, "issue").not_replaced)
    assert "ValueError" in str(row(verdict, "issue").not_replaced)
    assert value(row(verdict, "check").gain) == pytest.approx(2 / 3)


def test_an_exception_of_the_loop_itself_is_not_attributed_to_a_replay(
    control: SharedControl, clock: FakeClock
) -> None:
    """It comes in an arm with a replay, and again without one: it is the loop's own."""
    broken = {"now": False}

    def work() -> None:
        clock.burn_ns(MS)

    def body() -> int:
        work_stage()
        if control.modes[work_index] == Kind.FREE:
            broken["now"] = True
        clock.burn_ns(MS)
        if broken["now"]:
            raise ZeroDivisionError("a bug of the loop")
        return 1

    work_stage = Stage("work", effect="pure", control=control)(work)
    work_index = control.index("work")
    with pytest.raises(ZeroDivisionError, match="a bug of the loop"):
        experiment_on(control, body)


def test_an_assertion_without_a_text_says_where_and_what_to_declare(
    control: SharedControl, clock: FakeClock
) -> None:
    def collect(step: int) -> None:
        clock.burn_ns(MS)
        assert step != 7

    def make() -> int:
        clock.burn_ns(MS)
        return 7 if control.modes[make_index] == Kind.RECORD else 1

    make_stage = Stage("make", effect="pure", control=control)(make)
    make_index = control.index("make")

    def body() -> int:
        made = make_stage()
        if control.modes[make_index] != Kind.RECORD:
            collect(made)
        return 1

    verdict, _ = experiment_on(control, body)
    reason = str(row(verdict, "make").not_replaced)
    assert "AssertionError in test_exact.py, line" in reason
    assert "!= 7" in reason, "the line that raised"
    assert "effectful" in reason


def test_violations_are_named_and_such_a_stage_is_not_replaced(
    control: SharedControl, clock: FakeClock
) -> None:
    seen = {"steps": 0}
    own = {"calls": 0}

    def step() -> int:
        clock.burn_ns(2 * MS)
        seen["steps"] += 1
        return 1

    def source() -> float:
        clock.burn_ns(MS)
        own["calls"] += 1  # nobody else looks at it
        return float(np.random.random())

    simulator = {"time": 0}

    def simulate() -> None:
        clock.burn_ns(MS)
        simulator["time"] += 1

    step_stage = Stage("step", effect="pure", control=control)(step)
    source_stage = Stage("source", effect="pure", control=control)(source)
    simulate_stage = Stage("simulate", effect="stateful", control=control)(simulate)

    def body() -> int:
        step_stage()
        source_stage()
        simulate_stage()
        return seen["steps"] and 1

    verdict, _ = experiment_on(control, body, state=[{"other": 1}])
    assert "it changes `variable seen['steps']`" in str(row(verdict, "step").not_replaced)
    assert "simulator" in str(row(verdict, "simulate").not_replaced)
    assert row(verdict, "source").not_replaced is None
    assert any("source draws random numbers" in warning for warning in verdict.warnings)
    assert isinstance(row(verdict, "source").gain, Interval)


@pytest.mark.long
def test_inner_stages_are_measured_and_that_they_do_not_run_is_reported(
    control: SharedControl, clock: FakeClock
) -> None:
    inner = Stage("inner", effect="pure", control=control)(lambda: clock.burn_ns(3 * MS))

    @Stage("outer", effect="pure", control=control)
    def outer() -> None:
        inner()
        clock.burn_ns(MS)

    other = Stage("other", effect="pure", control=control)(lambda: clock.burn_ns(4 * MS))
    verdict, _ = experiment_on(control, lambda: (outer(), other()) and 1)
    assert row(verdict, "inner").inside == "outer"
    assert value(row(verdict, "outer").gain) == pytest.approx(0.5)
    assert value(row(verdict, "inner").gain) == pytest.approx(3 / 8)
    assert any("while outer is replaced" in warning for warning in verdict.warnings)
    assert isinstance(verdict.ladder, Ladder)
    assert set(verdict.ladder.ceilings_ns) == {"outer", "other", "the rest"}


def test_what_is_left_when_all_stages_are_free_is_the_rest(
    control: SharedControl, clock: FakeClock
) -> None:
    a = Stage("a", effect="pure", control=control)(lambda: clock.burn_ns(1 * MS))
    b = Stage("b", effect="pure", control=control)(lambda: clock.burn_ns(2 * MS))

    def body() -> int:
        a()
        b()
        clock.burn_ns(7 * MS)
        return 1

    verdict, _ = experiment_on(control, body)
    assert verdict.rest.share == pytest.approx(0.7, abs=1e-3)
    assert verdict.rest.left.value == pytest.approx(0.7, abs=1e-3)
    assert "70.0%" in remarks(verdict)[-1]
    assert "left when every stage is free" in remarks(verdict)[-1]


def test_stages_of_one_part_are_judged_together_too(
    control: SharedControl, clock: FakeClock
) -> None:
    stages = {
        name: Stage(name, effect="pure", control=control)(lambda ms=ms: clock.burn_ns(ms * MS))
        for name, ms in (
            ("data", 5),
            ("forward + backward", 3),
            ("forward", 1),
            ("backward", 1),
            ("step", 1),
        )
    }
    for name in ("forward + backward", "step"):
        control.stages[name].part_of = "update"

    def body() -> int:
        for stage in stages.values():
            stage()
        return 1

    verdict, _ = experiment_on(control, body)
    (group,) = verdict.groups
    assert (group.name, group.stages) == ("update", ("forward + backward", "step"))
    assert group.gain.value == pytest.approx(4 / 11, abs=1e-3)
    assert verdict.rest.share == pytest.approx(0, abs=1e-3)
    assert verdict.pairs == []  # "forward + backward" is a stage
    assert "update (forward + backward, step) together: 36" in remarks(verdict)[0]


def test_stages_too_small_alone_are_tried_in_pairs(
    control: SharedControl, clock: FakeClock
) -> None:
    """Two sources feed one sink, which waits for the slower of them."""
    a = Stage("a", effect="pure", control=control)(lambda: clock.burn_ns(1000))
    b = Stage("b", effect="pure", control=control)(lambda: clock.burn_ns(1000))

    def body() -> int:
        a()
        b()
        # What waiting for two parallel sources would be, on a clock of one thread.
        free = [control.modes[control.index(name)] == Kind.FREE for name in ("a", "b")]
        clock.wait_ns(2 * MS if all(free) else 10 * MS)
        return 1

    verdict, _ = experiment_on(control, body)
    assert value(row(verdict, "a").gain) == pytest.approx(0, abs=1e-3)
    (pair,) = verdict.pairs
    assert pair.stages == ("a", "b")
    assert pair.gain.value == pytest.approx(0.8, abs=1e-3)
    assert verdict.fix is pair


@pytest.mark.long
def test_two_kinds_of_calls_are_warned_of(control: SharedControl, clock: FakeClock) -> None:
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        clock.burn_ns(MS if calls % 3 else 9 * MS)

    step_stage = Stage("step", effect="pure", control=control)(step)
    verdict, _ = experiment_on(control, lambda: step_stage() or 1, budget=4.0)
    assert any("step takes either 1 or 9 ms" in warning for warning in verdict.warnings)


def test_outputs_that_consumers_write_into_are_warned_of(
    control: SharedControl, clock: FakeClock
) -> None:
    def load() -> np.ndarray:
        clock.burn_ns(MS)
        return np.ones(3)

    def scale(batch: np.ndarray) -> None:
        clock.burn_ns(MS)
        assert batch[0] == 1, "every replay within a block is a fresh copy"
        batch *= 2

    load_stage = Stage("load", effect="pure", control=control)(load)
    scale_stage = Stage("scale", effect="pure", control=control)(scale)
    verdict, _ = experiment_on(control, lambda: scale_stage(load_stage()) or 1)
    assert row(verdict, "load").verdict == "fix"
    assert any("output of load is written into" in warning for warning in verdict.warnings)


@pytest.mark.long
def test_iterations_with_different_units_are_compared_by_the_unit(
    control: SharedControl, clock: FakeClock
) -> None:
    turn = 0

    def body() -> int:
        nonlocal turn
        turn += 1
        units = 1 + turn % 5
        for _ in range(units):
            step()
        return units

    step = Stage("step", effect="pure", control=control)(lambda: clock.burn_ns(MS))
    verdict, _ = experiment_on(control, body)
    per_unit = value(verdict.baseline_ns) / verdict.units_per_iteration
    assert per_unit == pytest.approx(MS, rel=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("worth", [0.03])
def test_a_noisy_machine_gets_no_verdict_but_the_time_it_would_take(
    control: SharedControl, clock: FakeClock, worth: float
) -> None:
    """The A/A arms are slowed down from outside, as a machine might by bad luck."""
    step = Stage("step", effect="pure", control=control)(lambda: clock.burn_ns(MS))
    other = Stage("other", effect="pure", control=control)(lambda: clock.burn_ns(MS))
    experiment = Experiment(control, SimplifySettings(budget=2.0, worth=worth))
    keep = experiment.record.keep

    def biased(round_number: int, block: Any, lane: int) -> None:
        if block.request.arm.name == "A/A 2":
            block.duration_ns = [round(1.1 * d) for d in block.duration_ns]
        keep(round_number, block, lane)

    experiment.record.keep = biased  # type: ignore[method-assign]
    loop = Loop(body=lambda: (step(), other()) and 1)
    drive(loop, experiment.run(loop), control)
    del experiment.record.keep
    verdict = judge(experiment.record, "restless", worth)
    assert experiment.record.extended, "first it tried longer"
    assert experiment.record.seconds <= 2.1, "but within the budget"
    assert verdict.refused is not None
    assert "-10.0%" in verdict.refused
    assert "more minutes" in verdict.refused
    assert verdict.fix is None
    assert verdict.aa.needed_s == pytest.approx(
        experiment.record.seconds * (0.1 / worth) ** 2, rel=0.01
    )


@pytest.mark.long
@pytest.mark.parametrize("held_at_s", [0.05 * k for k in range(1, 14)])
def test_a_budget_that_is_over_before_the_first_round_is_refused(held_at_s: float) -> None:
    """A machine that has no time for the loop for longer than the budget, at whatever place."""
    clock = FakeClock()
    control = SharedControl(clock)
    load = Stage("load", effect="pure", control=control)(lambda: clock.burn_ns(0.02 * MS))
    train = Stage("train", effect="pure", control=control)(lambda: clock.burn_ns(0.01 * MS))
    held = [clock.now_ns() + held_at_s * 1e9]

    def body() -> int:
        load()
        train()
        if held and clock.now_ns() > held[0]:
            held.clear()
            clock.wait_ns((2.1 - held_at_s) * 1e9)
        return 1

    verdict, _ = experiment_on(control, body, budget=2.0)
    assert verdict.refused is not None
    assert "--budget" in verdict.refused
    assert {row.name for row in verdict.rows} == {"load", "train"}


def test_too_small_a_budget_says_what_suffices(control: SharedControl, clock: FakeClock) -> None:
    slow = Stage("slow", effect="pure", control=control)(lambda: clock.burn_ns(300 * MS))
    other = Stage("other", effect="pure", control=control)(lambda: clock.burn_ns(300 * MS))
    verdict, experiment = experiment_on(control, lambda: (slow(), other()) and 1, budget=12.0)
    assert experiment.record.seconds <= 12.0 + 20 * 0.6, "no round is started that cannot end"
    assert verdict.refused is not None
    assert "--budget" in verdict.refused
