"""How a run goes: it is the same however it is cut, batched, repeated or sped up."""

import pytest
import tiny_models as tiny
import torch
from tiny_models import BETA, CASES, MOOD, STAGE, WEEKS, growth, sir

from hotloop.errors import ParameterError, PathError, RunnerError, SettingError, SubstepError
from hotloop.loop.state import Snapshot
from hotloop.sim import Column, Executor, Model, Record, Runner, Substep
from hotloop.sim.graph import CapturedSteps
from hotloop.sim.loop import loop


def started(model=None, **settings) -> Runner:
    return Executor(model or sir(), **settings).init()


def everything(runner: Runner) -> list[torch.Tensor]:
    return [runner.state[path].clone() for path in (STAGE, CASES, MOOD)]


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_steps_at_once_equal_steps_one_by_one() -> None:
    at_once, one_by_one = started(), started()
    at_once.step(tiny.STEPS)
    for _ in range(tiny.STEPS):
        one_by_one.step()
    assert same(everything(at_once), everything(one_by_one))
    assert at_once.state["environment/cases"].sum() > 5


def test_each_replicate_equals_its_own_single_run() -> None:
    ensemble = started(replicates=3, seed=5)
    ensemble.step(tiny.STEPS)
    for r in range(3):
        single = started(seed=5 + r)
        single.step(tiny.STEPS)
        assert same([value[r] for value in everything(ensemble)], everything(single))
    assert ensemble.state[STAGE].shape == (3, tiny.N)
    assert ensemble.state[CASES].shape == (3, tiny.STEPS)


def test_a_seed_decides_everything() -> None:
    runs = [started(seed=seed) for seed in (1, 1, 2)]
    for run in runs:
        run.step(tiny.STEPS)
    assert same(everything(runs[0]), everything(runs[1]))
    assert not same(everything(runs[0]), everything(runs[2]))


def test_reset_repeats_the_episode_and_keeps_parameters() -> None:
    runner = started()
    runner.set_parameters({BETA: torch.tensor(0.9)})
    runner.step(5)
    before = everything(runner)
    runner.reset()
    assert runner.state.step == 0
    assert runner.state[CASES].sum() == 0
    runner.step(5)
    assert same(before, everything(runner))
    assert dict(runner.named_parameters())[BETA] == pytest.approx(0.9)


def test_a_reset_may_bring_other_seeds() -> None:
    def lucky(data, state):
        return state.uniform(3, "people") < 0.2

    model = sir(populations={"people": {"stage": Column(lucky, torch.uint8), "age": lucky}})
    runner = started(model, replicates=2, seed=8, record=Record(agents=True))
    runner.step(3)
    saved = runner.get_state()
    runner.step(4)
    after = everything(runner)
    runner.reset(seeds=[30, 4])
    runner.step(7)
    for r, seed in enumerate((30, 4)):
        single = started(model, seed=seed)
        single.step(7)
        assert same([value[r] for value in everything(runner)], everything(single))
        assert torch.equal(runner.state["agents/people/age"][r], single.state["agents/people/age"])
    runner.set_state(saved)
    runner.step(4)
    assert same(after, everything(runner))
    assert runner.state.seeds.tolist() == [8, 9]
    with pytest.raises(SettingError, match="expected 2 seeds"):
        runner.reset(seeds=[1])


def test_a_step_beyond_the_episode_is_refused() -> None:
    runner = started(num_steps=3)
    runner.step(2)
    with pytest.raises(RunnerError, match=r"num_steps_per_episode is 3 and 2 are done.*num_steps="):
        runner.step(2)
    runner.step()
    assert runner.config["simulation_metadata"]["num_steps_per_episode"] == 3
    assert runner.state[CASES].shape == (3,)


def test_before_init_there_is_nothing() -> None:
    runner = Executor(sir()).runner
    for use in (runner.step, lambda: runner.state, lambda: runner.state_trajectory, runner.reset):
        with pytest.raises(RunnerError, match="init"):
            use()
    assert [path for path, _ in runner.named_parameters()] == [BETA, WEEKS]


def test_steady_steps_allocate_no_state() -> None:
    runner = started()
    runner.step(2)
    places = {slot.home.data_ptr() for slot in runner.state.slots.values()}
    places |= {s.spare.data_ptr() for s in runner.state.slots.values() if s.spare is not None}
    before = runner.get_performance_stats()
    runner.step(8)
    after = runner.get_performance_stats()
    assert after["allocations"] == before["allocations"]
    assert after["reuses"] == before["reuses"] + 8 * 4
    assert {runner.state[p].data_ptr() for p in (STAGE, CASES, MOOD)} <= places


def test_what_was_given_is_never_written_to() -> None:
    model = sir()
    stage = model.populations["people"]["stage"].values
    before, beta = stage.copy(), torch.tensor(0.7)
    runner = started(model)
    runner.set_parameters({BETA: beta})
    runner.step(tiny.STEPS)
    assert (stage == before).all()
    assert beta == torch.tensor(0.7)
    assert model.substeps[0].learnable["beta"] == torch.tensor(0.4)


# --- parameters ----------------------------------------------------------------------------------


def test_a_parameter_with_a_gradient_stays_itself() -> None:
    runner = started()
    weeks = torch.tensor([1.0, 0.5], requires_grad=True)
    runner._set_parameters({WEEKS: weeks})
    assert dict(runner.named_parameters())[WEEKS] is weeks
    runner.step(runner.config["simulation_metadata"]["num_steps_per_episode"])
    runner.state_trajectory[-1][-1]["environment"]["cases"].sum().backward()
    assert weeks.grad is not None
    assert (weeks.grad > 0).all()


def test_parameters_are_saved_and_written_back_into_the_same_tensors() -> None:
    runner = started()
    saved = runner.state_dict()
    assert list(saved) == [path for path, _ in runner.named_parameters()]
    own = list(runner.parameters())
    runner.step(4)
    before = everything(runner)
    runner.load_state_dict({path: value / 2 for path, value in saved.items()})
    assert all(torch.equal(p, value / 2) for p, value in zip(own, saved.values(), strict=True))
    runner.reset_state()
    runner.step(4)
    assert not same(before, everything(runner))
    runner.load_state_dict(saved)
    assert all(one is other for one, other in zip(runner.parameters(), own, strict=True))
    runner.reset_state()
    runner.step(4)
    assert same(before, everything(runner))


@pytest.mark.parametrize(("own", "saved"), [((3, 1), (3,)), ((3,), (3, 1))])
def test_a_series_is_loaded_whichever_of_its_two_shapes_it_was_set_in(own, saved) -> None:
    runner, other = started(), started()
    runner.set_parameters({WEEKS: torch.tensor([1.0, 2.0, 3.0]).reshape(saved)})
    other.set_parameters({WEEKS: torch.ones(own)})
    held = dict(other.named_parameters())[WEEKS]
    other.load_state_dict(runner.state_dict())
    assert dict(other.named_parameters())[WEEKS] is held
    assert torch.equal(held, torch.tensor([1.0, 2.0, 3.0]).reshape(own))
    with pytest.raises(ParameterError, match="expected the shape that it has"):
        other.load_state_dict(runner.state_dict() | {WEEKS: torch.ones(4, 1)})


def test_a_state_dict_that_does_not_fit_changes_nothing() -> None:
    runner = started()
    saved = runner.state_dict()
    half = {path: value / 2 for path, value in saved.items()}
    some = dict(list(half.items())[:1])
    for wrong, error, words in (
        (half | {"no.such": torch.ones(())}, PathError, "no parameter 'no.such'"),
        (some, PathError, "expected a value for every parameter, got none for"),
        (half | {BETA: torch.ones(3)}, ParameterError, "expected"),
    ):
        with pytest.raises(error, match=words):
            runner.load_state_dict(wrong)
        assert all(torch.equal(saved[path], own) for path, own in runner.named_parameters())


def test_a_gradient_changes_no_number() -> None:
    plain, differentiable = started(), started()
    differentiable.set_parameters({BETA: torch.tensor(0.4, requires_grad=True)})
    for runner in (plain, differentiable):
        runner.step(6)
    assert same(everything(plain), everything(differentiable))
    # And back: what a graph holds is not written over by steps without a gradient.
    cases = differentiable.state_trajectory[-1][-1][CASES]
    held = differentiable.state[MOOD]
    value = held.clone()
    with torch.no_grad():
        differentiable.step(3)
    plain.step(3)
    assert same(everything(plain), everything(differentiable))
    assert held == value
    cases.sum().backward()


@pytest.mark.parametrize(
    ("path", "value", "error", "words"),
    [
        (BETA.replace("beta", "bata"), torch.tensor(1.0), PathError, "did you mean.*beta"),
        (BETA, torch.ones(2), ParameterError, r"shape \(\), got \(2,\)"),
        (WEEKS, torch.ones(3, 2), ParameterError, r"shape \(3, 1\), or of another length"),
        (WEEKS, torch.tensor([1, 2, 3]), ParameterError, "3.0 rather than 3"),
        (WEEKS, torch.tensor([1.0, float("nan")]), ParameterError, "finite"),
        (BETA, 0.5, ParameterError, "expected a tensor, got float"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused(path, value, error, words) -> None:
    runner = started()
    with pytest.raises(error, match=words):
        runner.set_parameters({BETA: torch.tensor(0.1), path: value})
    assert dict(runner.named_parameters())[BETA] == torch.tensor(0.4)  # all or none


def test_parameters_are_found_by_attributes() -> None:
    runner = started()
    infect = runner.initializer.transition_function["0"].infect
    infect.calibrate_beta = torch.tensor(0.25)
    assert infect.calibrate_beta == torch.tensor(0.25)
    assert set(infect.learnable_args) == {"beta", "weeks"}
    assert runner.initializer.transition_function["0"]["infect"].weeks.shape == (3, 1)
    with pytest.raises(AttributeError, match="did you mean 'beta'"):
        infect.calibrate_bets  # noqa: B018


# --- programs ------------------------------------------------------------------------------------


def test_a_program_takes_the_substeps_place() -> None:
    fused, plain = started(growth()), started(growth(), fused=False)
    for runner in (fused, plain):
        runner.step(2)
        runner.step(3)
    assert fused.program.calls == [(0, 2), (2, 3)]
    assert plain.program is None
    assert torch.equal(fused.state["environment/total"], plain.state["environment/total"])
    assert torch.equal(
        fused.state_trajectory[2][1]["environment/total"],
        plain.state_trajectory[2][1]["environment/total"],
    )
    fused.reset()
    fused.step()
    assert fused.state["environment/total"][0] == 8
    assert fused.program.synced == 1
    fused.close()
    assert fused.program.closed


def test_a_captured_step_equals_the_substeps() -> None:
    class Again:  # stands for a CUDA graph: what was captured is repeated by calling it
        def __init__(self, body, state):
            self.body, self.state = body, state
            body()

        def replay(self):
            self.state.counts_on_device = True
            self.body()
            self.state.counts_on_device = False

    plain, captured = started(), started()
    state = captured.state
    steps = CapturedSteps(state, captured._substeps_alone, lambda body, _: Again(body, state))
    captured.program, captured._advance = steps, steps.advance
    homes = {path: slot.home.data_ptr() for path, slot in state.slots.items()}
    for runner in (plain, captured):
        runner.step(1)
        runner.step(9)
    assert same(everything(plain), everything(captured))
    assert state.step == int(state.step_index) == 10
    assert homes == {path: slot.now.data_ptr() for path, slot in state.slots.items()}
    captured.set_parameters({BETA: torch.tensor(0.0)})
    captured.step()
    assert captured.get_performance_stats()["program_captures"] == 2
    assert captured.state[CASES][10] == 0


def test_a_number_that_a_graph_would_freeze_is_refused() -> None:
    runner = started()
    runner.state.counts_on_device = True
    with pytest.raises(SubstepError, match="step_index"):
        runner.state.step  # noqa: B018


# --- interruptions -------------------------------------------------------------------------------


class Interrupted(tiny.Recover):
    at = 3

    def transition(self, state, action):
        if state.step == self.at:
            raise KeyboardInterrupt
        return super().transition(state, action)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"active_set": True}, "active_set=True: model 'sir' runs by its substeps, which do not"),
        ({"precision": "mixed"}, "precision='mixed': model 'sir' runs by its substeps"),
        ({"gradient": "flips"}, "gradient='flips': model 'sir' has no estimators of its own"),
        ({"gradient": 3}, "gradient: expected a name, True, False or 'auto', got 3"),
        ({"replicates": 2.5}, "replicates: expected a whole number of 1 or more, got 2.5"),
        ({"threads": True}, "threads: expected a whole number of 1 or more, got True"),
        ({"seed": 2**70}, "seed: expected a whole number from -9223372036854775807 to"),
        ({"seed": 2**63 - 3, "replicates": 4}, "seed: expected a whole number"),
    ],
)
def test_a_setting_acts_or_is_refused(settings, words) -> None:
    with pytest.raises(SettingError) as caught:
        started(sir(), **settings)
    assert words in str(caught.value)


class Counts(Substep):
    """Notes with how many threads torch computes within a step."""

    reads, writes = ("agents/cells/value",), ("agents/cells/value",)

    def transition(self, state, action):
        seen.append(torch.get_num_threads())
        return {"agents/cells/value": state["agents/cells/value"] + 0}


seen: list[int] = []


def test_threads_limit_torch_within_a_step_and_nowhere_else() -> None:
    model = Model(
        "counts",
        substeps=(Counts(),),
        populations={"cells": {"value": 1.0}},
        sizes={"cells": 4},
    )
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for threads, expected in ((1, 1), (None, 2), (3, 3)):
            seen.clear()
            started(model, threads=threads).step(2)
            assert seen == [expected] * 2
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_program_that_does_not_act_on_a_setting_refuses_it() -> None:
    with pytest.raises(SettingError, match="runs by its program 'doubling', which does not act"):
        started(growth(), precision="mixed")


def test_an_interrupt_within_a_step_is_remembered() -> None:
    substeps = (tiny.Infect(beta=0.4, weeks=torch.ones(3, 1)), Interrupted())
    runner = started(sir(substeps=substeps))
    with pytest.raises(KeyboardInterrupt):
        runner.step(5)
    with pytest.raises(RunnerError, match=r"step 3 was broken off.*reset"):
        runner.step()
    runner.substeps[1].at = -1
    runner.reset()
    runner.step(5)
    whole = started()
    whole.step(5)
    assert same(everything(runner)[:2], everything(whole)[:2])


def test_an_interrupt_at_a_steps_start_changes_nothing() -> None:
    runner = started(sir(substeps=(Interrupted(), tiny.Infect(beta=0.4, weeks=torch.ones(3, 1)))))
    with pytest.raises(KeyboardInterrupt):
        runner.step(5)
    assert runner.state.step == 3
    runner.substeps[0].at = -1
    runner.step(2)
    assert runner.state.step == 5


def test_an_interrupted_program_is_remembered() -> None:
    runner = started(growth())
    runner.program.fails_at = 4
    with pytest.raises(KeyboardInterrupt):
        runner.step(6)
    with pytest.raises(RunnerError, match="broken off"):
        runner.step()


# --- measuring -----------------------------------------------------------------------------------


def test_a_run_is_saved_and_put_back_bit_for_bit() -> None:
    runner = started(record=Record(agents=True))
    runner.step(4)
    saved = Snapshot([runner])
    runner.step(5)
    after = everything(runner)
    for _ in range(2):
        saved.restore()
        assert runner.state.step == 4
        assert len(runner.state_trajectory) == 5
        runner.step(5)
        assert same(after, everything(runner))
    runner.reset()
    saved.restore()
    runner.step(5)
    assert same(after, everything(runner))
    assert torch.equal(runner.state_trajectory[-1][-1][STAGE], after[0])


def test_a_runner_is_a_loop_that_starts_over() -> None:
    made = loop(Executor(growth(), replicates=2), steps=4)
    assert made.unit == "agent steps"
    assert [made.body() for _ in range(3)] == [32, 32, 32]
    runner = made.state[0]
    assert runner.state.step == 4
    assert runner.program.calls == [(0, 4), (4, 4), (0, 4)]


def test_a_value_can_be_set_between_steps() -> None:
    runner = started(record=Record(keep=("environment", STAGE)))
    runner.step(2)
    before = runner.state_trajectory[-1][-1][MOOD]
    runner.set_value(MOOD, 100.0)
    runner.set_value(STAGE, 2)
    runner.step()
    assert torch.equal(runner.state_trajectory[2][-1][MOOD], before)
    assert runner.state_trajectory[3][0][MOOD] == 100
    assert (runner.state_trajectory[3][-1][STAGE] == 2).all()
    with pytest.raises(SubstepError, match="no substep declares to write it"):
        runner.set_value("agents/people/age", 3)
    with pytest.raises(PathError, match=r"did you mean 'environment/mood'"):
        runner.set_value("environment/moods", 3)
