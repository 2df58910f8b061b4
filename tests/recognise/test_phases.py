"""The phases of planted courses, and the phases within one iteration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.recognise.period import Call, Iteration, Matcher, find_iteration
from hotloop.recognise.phases import InnerPhase, inner_phases, phases
from support.courses import OPT, STEP, SUPERVISED, UPDATE, dqn, ppo, sac, supervised, timed
from support.often import examples

TRAINING = "act, env step, forward, backward, optimiser step"


def inner(calls: list[Call]) -> list[InnerPhase]:
    iteration = find_iteration(calls)
    assert isinstance(iteration, Iteration), iteration
    return inner_phases(calls, iteration)


def test_one_loop_is_one_phase() -> None:
    calls = timed(supervised(100))
    (only,) = phases(calls)
    assert (only.begin, only.end) == (0, len(calls))
    assert only.description == ", ".join(SUPERVISED)
    assert only.iteration == find_iteration(calls)
    assert only.share_of_time == 1


def test_rollouts_and_updates_are_no_phases_of_the_course() -> None:
    assert len(phases(timed(ppo(8, steps=512, episode=50)))) == 1


def test_a_warm_up_and_the_training() -> None:
    calls = timed(dqn(12_000, warm_up=8_000, episode=None))
    warm_up, training = phases(calls)
    assert warm_up.description == "env step"
    assert warm_up.end == training.begin == pytest.approx(8_000, abs=12)
    assert training.description == TRAINING
    assert training.end == len(calls)
    assert training.start_ns == calls[training.begin].start_ns
    assert warm_up.share_of_time + training.share_of_time == pytest.approx(1, abs=1e-3)


def test_evaluations_lie_between_stretches_of_the_training() -> None:
    calls = timed(dqn(12_000, evaluate_every=5_000, episode=None))
    found = phases(calls)
    assert [p.description for p in found] == [TRAINING, ", ".join(STEP)] * 2 + [TRAINING]
    # A reset, then ten episodes of 200 steps.
    assert found[1].begin == pytest.approx(5_000 * 2 + 1_250 * 4, abs=12)
    assert found[1].end - found[1].begin == pytest.approx(1 + 4_000, abs=12)
    assert found[0].iteration == found[2].iteration == find_iteration(calls)


def test_evaluations_over_a_loader() -> None:
    found = phases(timed(supervised(600, epoch=200, evaluation=100)))
    assert [p.description for p in found] == [", ".join(SUPERVISED), "data, act"] * 3
    assert found[1].share_of_time == pytest.approx(found[3].share_of_time, rel=0.2)


def test_two_trainings() -> None:
    first, second = phases(timed([*supervised(300), *ppo(10)]))
    assert (first.description, first.end) == (", ".join(SUPERVISED), pytest.approx(1_200, abs=4))
    assert second.iteration is not None
    assert second.iteration.calls["env step"] == 128


def test_iterations_that_change_for_good() -> None:
    accumulated = supervised(60, (*("data", "forward", "backward") * 4, OPT))
    found = phases(timed([*supervised(100), *accumulated]))
    assert [p.begin for p in found] == [0, 400]
    assert [p.iteration and p.iteration.calls["data"] for p in found] == [1, 4]


def test_iterations_that_change_slowly_stay_together() -> None:
    rng = np.random.default_rng(0)
    names = []
    for k in range(4_000):
        names += ["act"] * (rng.random() < k / 4_000) + ["env step"]
        names += ["act", *UPDATE] * (k % 4 == 3)
    assert len(phases(timed(names))) == 1


def test_a_random_order_is_one_phase_without_an_iteration() -> None:
    names = np.random.default_rng(0).choice(["data", "act", "forward"], 500)
    (only,) = phases(timed(names))
    assert only.iteration is None
    assert set(only.description.split(", ")) == {"data", "act", "forward"}
    assert phases([]) == []


COURSES = {
    "supervised": lambda k: supervised(100 + k, epoch=30, evaluation=k, log_every=7),
    "ppo": lambda k: ppo(6, minibatches=(2, 16), episode=20 + k, seed=k),
    "dqn": lambda k: dqn(1_000, warm_up=10 * k, random=k / 60, evaluate_every=700, seed=k),
    "sac": lambda k: sac(100, warm_up=k),
    "two": lambda k: [*ppo(k % 7), *supervised(5 * k)],
}


@settings(max_examples=examples(60))
@given(st.sampled_from(sorted(COURSES)), st.integers(0, 50))
def test_phases_hold_every_call_once(kind: str, k: int) -> None:
    calls = timed(COURSES[kind](k), seed=k)
    found = phases(calls)
    ends = [0, *(p.end for p in found)]
    assert [p.begin for p in found] == ends[:-1]
    assert ends[-1] == len(calls)
    assert sum(p.share_of_time for p in found) <= 1 + 1e-9


@pytest.mark.parametrize(("steps", "minibatches"), [(128, 16), (2_048, 640)])
def test_the_rollout_and_the_update_of_a_long_iteration(steps: int, minibatches: int) -> None:
    calls = timed(ppo(5, steps=steps, minibatches=minibatches, update=UPDATE, episode=50))
    rollout, update = inner(calls)
    assert (rollout.description, update.description) == (", ".join(STEP), ", ".join(UPDATE))
    assert rollout.period.calls["env step"] == 1
    assert update.period.calls == dict.fromkeys(UPDATE, 1)
    assert rollout.share_of_time + update.share_of_time == pytest.approx(1, abs=0.01)
    step_s = (100 + 150 + 300 / 50 + 10) * 1e-6
    assert rollout.period.duration_s == pytest.approx(step_s, rel=0.1)


def test_the_periods_of_a_phase_are_matched_while_the_loop_runs() -> None:
    calls = timed(ppo(6, update=UPDATE))
    rollout, update = inner(calls)
    names = [call.name for call in calls]
    steps = [k for k, name in enumerate(names) if Matcher(rollout.period).starts(name)]
    assert steps == []  # a new matcher each time has seen nothing before
    matcher = Matcher(rollout.period)
    steps = [k for k, name in enumerate(names) if matcher.starts(name)]
    assert len(steps) == 6 * 128 - 1
    matcher = Matcher(update.period)
    assert sum(matcher.starts(name) for name in names) == 6 * 16 - 1


def test_generation_and_several_updates() -> None:
    generation, update = inner(timed(("data", *["act"] * 64, *UPDATE * 8) * 8))
    assert (generation.description, update.description) == ("act", ", ".join(UPDATE))


def test_a_rollout_that_takes_less_time_than_one_minibatch_is_a_phase_of_its_own() -> None:
    """A recurrent policy steps once in a rollout, and through whole sequences in its update."""
    update = (*["forward"] * 20, "backward", "clip", "optimiser step")
    calls = timed((*STEP * 32, *update * 16) * 8, durations_us={"forward": 300, "backward": 9_000})
    rollout, learning = inner(calls)
    assert rollout.description == ", ".join(STEP)
    assert learning.period.calls["forward"] == 20
    assert rollout.share_of_time + learning.share_of_time == pytest.approx(1, abs=0.02)


def test_updates_that_stop_early_are_a_phase_if_most_iterations_have_it() -> None:
    _, update = inner(timed(ppo(12, minibatches=(5, 16), update=UPDATE)))
    assert update.description == ", ".join(UPDATE)
    assert 0.1 < update.share_of_time < 0.4


@pytest.mark.parametrize(
    "names", [SUPERVISED * 50, (*STEP, *UPDATE * 2) * 50], ids=["supervised", "sac"]
)
def test_a_short_iteration_has_no_inner_phases(names: tuple[str, ...]) -> None:
    assert inner(timed(names)) == []


def test_an_iteration_that_is_not_in_the_course_has_no_inner_phases() -> None:
    iteration = find_iteration(timed(supervised(50)))
    assert isinstance(iteration, Iteration)
    assert inner_phases(timed(["data"] * 3), iteration) == []
