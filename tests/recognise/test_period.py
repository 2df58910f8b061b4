"""The iteration is found in planted courses of the common kinds of training loops."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import SettingError
from hotloop.loop.figures import Unknown
from hotloop.recognise.period import ANY, Call, Iteration, Matcher, find_iteration
from support.courses import (
    EXACT,
    ONCE,
    OPT,
    STEP,
    SUPERVISED,
    UPDATE,
    dqn,
    ppo,
    supervised,
    timed,
)
from support.often import examples

SHORT = sorted(kind for kind, row in EXACT.items() if len(row[0]) < 5_000)


def found(names: Iterable[str], **planted: object) -> Iteration:
    iteration = find_iteration(timed(names, **planted))  # type: ignore[arg-type]
    assert isinstance(iteration, Iteration), iteration
    return iteration


def starts(iteration: Iteration, names: Iterable[str]) -> list[int]:
    matcher = Matcher(iteration)
    return [k for k, name in enumerate(names) if matcher.starts(name)]


def usual(iteration: Iteration) -> dict[str, float]:
    return {name: n for name, n in iteration.calls.items() if name not in iteration.rare}


@pytest.mark.parametrize("kind", EXACT)
def test_loops_that_repeat_exactly(kind: str) -> None:
    names, after, start, calls = EXACT[kind]
    iteration = found(names)
    assert (iteration.after, iteration.start) == (after, start)
    assert iteration.calls == calls
    assert iteration.rare == ()


def test_one_stage_alone() -> None:
    iteration = found(["env step"] * 50)
    assert iteration.calls == {"env step": 1}
    assert len(starts(iteration, ["env step"] * 50)) >= 49


NOTHING = {
    "no call": [],
    "one call": ["forward"],
    "a script that predicts": ["act"] * 40,
    "few different calls": ["data", "forward", "log", "checkpoint"],
}


@pytest.mark.parametrize("kind", NOTHING)
def test_what_does_not_repeat_says_why(kind: str) -> None:
    answer = find_iteration(timed(NOTHING[kind]))
    assert isinstance(answer, Unknown)
    assert "choose" in answer.why or "measure for longer" in answer.why


@settings(max_examples=examples(50))
@given(st.integers(0, 10_000), st.integers(3, 8))
def test_random_order_is_no_loop(seed: int, stages: int) -> None:
    rng = np.random.default_rng(seed)
    names = ["data", "act", "forward", "backward", OPT, "wait", "clip", "other"][:stages]
    answer = find_iteration(timed(rng.choice(names, 1_000)))
    assert isinstance(answer, Unknown)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.8, 0.95, 1.0])
def test_a_policy_that_acts_now_and_then(share: float) -> None:
    names = list(dqn(8_000, random=share, warm_up=1_000, target_every=500))
    iteration = found(names)
    assert iteration.after == OPT
    assert iteration.calls["env step"] == pytest.approx(4, rel=0.01)
    assert iteration.calls["act"] == pytest.approx(1 + 4 * (1 - share), rel=0.1)
    assert set(iteration.rare) == {"env reset", "target update"}
    assert len(starts(iteration, names)) == pytest.approx(1_750, abs=2)


def test_each_call_of_a_stage_that_the_user_chose() -> None:
    calls = timed(ppo(6))
    iteration = find_iteration(calls, stage="env step")
    assert isinstance(iteration, Iteration)
    assert (iteration.after, iteration.start) == (ANY, "env step")
    assert len(starts(iteration, [call.name for call in calls])) == 6 * 128


def test_a_stage_that_is_not_called_is_refused() -> None:
    with pytest.raises(SettingError, match="env step"):
        find_iteration(timed(ppo(2)), stage="env stepp")


def test_a_stage_that_is_called_too_seldom_is_unknown() -> None:
    answer = find_iteration(timed(["checkpoint", *SUPERVISED * 9]), stage="checkpoint")
    assert isinstance(answer, Unknown)
    assert "measure for longer" in answer.why


@settings(max_examples=examples(80))
@given(
    st.integers(0, 10_000),
    st.sampled_from(SHORT),
    st.dictionaries(st.sampled_from([*SUPERVISED, *STEP, "clip", "wait"]), st.floats(10, 10_000)),
)
def test_whatever_the_stages_take(seed: int, kind: str, durations_us: Mapping[str, float]) -> None:
    names, after, start, calls = EXACT[kind]
    iteration = found(names, seed=seed, noise=0.8, durations_us=durations_us)
    assert (iteration.after, iteration.start, iteration.calls) == (after, start, calls)


@settings(max_examples=examples(60))
@given(st.integers(0, 10_000), st.sampled_from(SHORT), st.floats(0.01, 0.05))
def test_calls_that_come_between_at_random(seed: int, kind: str, share: float) -> None:
    names, _, _, calls = EXACT[kind]
    rng = np.random.default_rng(seed)
    mixed = [each for name in names for each in [name] + ["copy"] * (rng.random() < share)]
    iteration = found(mixed, seed=seed)
    for name, n in calls.items():
        assert iteration.calls[name] == pytest.approx(n, rel=0.05)


@settings(max_examples=examples(60))
@given(st.integers(0, 10_000), st.sampled_from(SHORT))
def test_a_course_that_is_seen_from_the_middle_of_an_iteration_on(seed: int, kind: str) -> None:
    names, _, start, calls = EXACT[kind]
    first = seed % (len(names) // 8)
    iteration = found(names[first:], seed=seed)
    assert iteration.start == start
    assert iteration.calls == calls


def test_times_are_the_mean_from_start_to_start() -> None:
    calls = [Call(name, 10 * k, 10 * k + 5) for k, name in enumerate(SUPERVISED * 20)]
    iteration = find_iteration(calls)
    assert isinstance(iteration, Iteration)
    assert iteration.duration_s == pytest.approx(40e-9)
    assert iteration.count == 18


def test_one_line_for_a_report() -> None:
    calls = {"act": 128.0, "env step": 128.0, "log": 0.1, **dict.fromkeys(UPDATE, 16.0)}
    iteration = Iteration(OPT, "act", calls, 0.31, 0.9, 10, rare=("log",))
    assert str(iteration) == (
        "128 x (act, env step), 16 x (forward, backward, optimiser step): 0.31 s"
    )
    once = Iteration(OPT, "data", dict.fromkeys(SUPERVISED, 1.0), 0.012, 0.9, 10)
    assert str(once) == "data, forward, backward, optimiser step: 12 ms"


@pytest.mark.parametrize("every", [10, 100])
def test_logging_now_and_then_is_rare(every: int) -> None:
    names = list(supervised(400, log_every=every))
    iteration = found(names)
    assert (iteration.after, iteration.start) == (OPT, "data")
    assert iteration.rare == ("log",)
    assert iteration.calls["log"] == pytest.approx(1 / every, abs=0.003)
    assert len(starts(iteration, names)) == 399


@pytest.mark.parametrize("evaluation", [5, 50, 200])
def test_evaluations_and_checkpoints_after_every_epoch(evaluation: int) -> None:
    names = list(supervised(1_000, epoch=200, evaluation=evaluation, checkpoint=True, log_every=50))
    iteration = found(names)
    assert (iteration.after, iteration.start) == (OPT, "data")
    assert set(iteration.rare) == {"act", "checkpoint", "log"}
    assert usual(iteration) == pytest.approx({"data": 1, **ONCE}, rel=0.05)
    # The last evaluation begins as an iteration would.
    assert len(starts(iteration, names)) == 1_000


def test_an_evaluation_before_the_training() -> None:
    names = ["data", "act"] * 2 + list(supervised(200))
    assert found(names).calls == {"data": 1, **ONCE}


def test_rollouts_with_episodes_that_end_at_random() -> None:
    names = list(ppo(8, episode=40, bootstrap=True))
    iteration = found(names)
    assert (iteration.after, iteration.start) == (OPT, "act")
    assert iteration.calls["env step"] == 128
    assert iteration.calls["clip"] == 16
    assert starts(iteration, names) == [
        k for k, name in enumerate(names) if k and name == "act" and names[k - 1] == OPT
    ]


def test_rollouts_that_begin_with_a_reset_now_and_then() -> None:
    rng = np.random.default_rng(0)
    names = [n for _ in range(20) for n in ["env reset"] * rng.integers(2) + list(ppo(1))]
    iteration = found(names)
    assert iteration.calls["env step"] == 128
    assert len(starts(iteration, names)) == 19


def test_updates_that_stop_early() -> None:
    iteration = found(ppo(40, minibatches=(2, 16), bootstrap=True))
    assert (iteration.after, iteration.start) == (OPT, "act")
    assert iteration.calls["env step"] == 128
    assert iteration.calls["clip"] == pytest.approx(9.5, abs=2)
    assert 0.5 < iteration.confidence < found(ppo(40)).confidence


@pytest.mark.parametrize("rollout_us", [1, 10_000])
def test_a_rollout_belongs_to_the_iteration_however_fast_it_is(rollout_us: float) -> None:
    iteration = found(ppo(6), durations_us=dict.fromkeys(STEP, rollout_us))
    assert iteration.calls["env step"] == 128


def test_waits_while_processes_are_started_are_not_the_source_of_the_loop() -> None:
    iteration = found(("wait",) * 9 + tuple(ppo(12)))
    assert usual(iteration)["env step"] == 128


def test_a_rollout_and_minibatches_from_a_loader() -> None:
    iteration = found((*STEP * 128, *SUPERVISED * 16) * 8)
    assert (iteration.after, iteration.start) == (OPT, "act")
    assert iteration.calls == {"act": 128, "env step": 128, **dict.fromkeys(SUPERVISED, 16)}


def test_a_long_warm_up_is_no_part_of_the_iteration() -> None:
    iteration = found(dqn(14_000, warm_up=10_000))
    assert usual(iteration) == {"act": 5, "env step": 4, **ONCE}
    assert iteration.duration_s == pytest.approx(2.6e-3, rel=0.2)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_several_updates_at_once_with_a_policy_that_acts_now_and_then(share: float) -> None:
    names = list(dqn(6_000, random=share, warm_up=1_000, target_every=500, gradient_steps=4))
    iteration = found(names)
    assert iteration.calls["env step"] == pytest.approx(4, rel=0.01)
    assert iteration.calls[OPT] == pytest.approx(4, rel=0.01)
    assert len(starts(iteration, names)) == pytest.approx(1_250, abs=2)


def test_evaluations_between_updates() -> None:
    iteration = found(dqn(16_000, random=0.1, warm_up=1_000, evaluate_every=5_000))
    assert iteration.calls["env step"] == pytest.approx(4, rel=0.01)
    assert iteration.duration_s == pytest.approx(2.5e-3, rel=0.2)


@pytest.mark.parametrize(("trained", "validated"), [(20, 80), (50, 50), (5, 200)])
def test_validations_that_take_most_of_the_time(trained: int, validated: int) -> None:
    iteration = found((*SUPERVISED * trained, *("data", "act") * validated) * 30)
    assert usual(iteration) == dict.fromkeys(SUPERVISED, 1)
    assert iteration.confidence > 0.7


def test_evaluations_in_an_env_between_updates_on_data_in_memory() -> None:
    iteration = found((*UPDATE * 1_000, *STEP * 300) * 4)
    assert usual(iteration) == ONCE


def test_an_actor_that_is_updated_every_other_time() -> None:
    iteration = found((*STEP, *UPDATE, *STEP, *UPDATE * 2) * 100)
    assert iteration.calls == pytest.approx(
        {**dict.fromkeys(STEP, 1), **dict.fromkeys(UPDATE, 1.5)}, abs=0.01
    )


def test_episodes_of_random_length_and_an_update_after_each() -> None:
    rng = np.random.default_rng(0)
    names = [n for _ in range(80) for n in (*STEP * int(rng.geometric(0.05)), *UPDATE)]
    iteration = found(names)
    assert (iteration.after, iteration.start) == (OPT, "act")
    assert iteration.calls[OPT] == 1
    assert iteration.calls["env step"] == pytest.approx(20, rel=0.3)


def test_stages_of_other_names_by_their_time_alone() -> None:
    half = {"fetch": 50, "infer": 50, "learn": 800}
    iteration = found((*("fetch", "infer") * 128, *["learn"] * 16) * 8, durations_us=half)
    assert iteration.calls == {"fetch": 128, "infer": 128, "learn": 16}
    little = {"fetch": 50, "infer": 50, "note": 100}
    iteration = found((*("fetch", "infer") * 128, "note") * 8, durations_us=little)
    assert usual(iteration) == {"fetch": 1, "infer": 1}
    assert iteration.rare == ("note",)


def test_of_two_trainings_the_last_long_one() -> None:
    first, last = list(supervised(300)), list(ppo(10))
    assert found(first + last).calls["env step"] == 128
    assert found(last + first).calls == {"data": 1, **ONCE}
    # A short one at the end is not what the course is about.
    assert found(list(supervised(3_000)) + list(ppo(4))).calls == {"data": 1, **ONCE}


def test_iterations_that_change_for_good() -> None:
    accumulated = supervised(100, (*("data", "forward", "backward") * 4, OPT))
    iteration = found([*supervised(100), *accumulated])
    assert iteration.calls == {"data": 4, "forward": 4, "backward": 4, OPT: 1}


def test_too_few_iterations_are_unknown() -> None:
    for names in (ppo(2), [*ppo(1), *STEP * 128]):
        answer = find_iteration(timed(names))
        assert isinstance(answer, Unknown)
        assert "measure for longer" in answer.why


def test_more_iterations_that_are_more_alike_are_more_certain() -> None:
    few, many = found(ppo(4)), found(ppo(40))
    assert few.confidence < many.confidence <= 1
    assert found(ppo(40), noise=0).confidence > found(ppo(40, minibatches=(2, 16))).confidence


def test_a_first_call_that_compiles_does_not_make_its_stage_long() -> None:
    calls = timed(ppo(8))
    first = next(k for k, call in enumerate(calls) if call.name == "forward")
    late_ns = [5 * 10**9 * (k >= first) for k in range(len(calls))]
    late = [
        Call(call.name, call.start_ns + (ns if k > first else 0), call.end_ns + ns)
        for k, (call, ns) in enumerate(zip(calls, late_ns, strict=True))
    ]
    iteration = find_iteration(late)
    assert isinstance(iteration, Iteration)
    assert iteration.calls == find_iteration(calls).calls  # type: ignore[union-attr]


@settings(max_examples=examples(60))
@given(st.integers(0, 10_000), st.sampled_from(SHORT))
def test_the_matcher_finds_what_was_counted(seed: int, kind: str) -> None:
    calls = timed(EXACT[kind][0], seed=seed)
    iteration = find_iteration(calls)
    assert isinstance(iteration, Iteration)
    at = [calls[k].start_ns for k in starts(iteration, [call.name for call in calls])]
    assert len(at) - 1 == iteration.count
    assert np.diff(at).mean() * 1e-9 == pytest.approx(iteration.duration_s)


def test_stages_that_were_never_seen_do_not_hide_a_boundary() -> None:
    iteration = found(supervised(50))
    names = [*SUPERVISED, "upload", *SUPERVISED, "log", *SUPERVISED]
    assert starts(iteration, names) == [5, 10]


LARGE: dict[str, Callable[[], Iterable[str]]] = {
    "dqn": lambda: dqn(60_000, random=0.3, warm_up=10_000, evaluate_every=20_000),
    "ppo": lambda: ppo(600, episode=40),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGE)
def test_a_long_course(kind: str) -> None:
    iteration = found(LARGE[kind]())
    assert iteration.after == OPT
    assert iteration.count > 500
