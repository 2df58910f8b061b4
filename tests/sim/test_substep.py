"""A substep is held to what it declares."""

import pytest
import tiny_models as tiny
import torch
from tiny_models import AGE, CASES, MOOD, STAGE, TIES, sir

from hotloop.errors import PathError, RunnerError, SubstepError
from hotloop.sim import Executor, Substep


class Given(Substep):
    """Does what a test says."""

    reads, writes = (STAGE,), (STAGE,)

    def __init__(self, function, reads=(STAGE,), writes=(STAGE,)):
        super().__init__()
        self.reads, self.writes = reads, writes
        self.function = function

    def transition(self, state, action):
        return self.function(state)


def run(function, *, replicates=None, **declared) -> None:
    model = sir(substeps=(Given(function, **declared),))
    Executor(model, replicates=replicates).init().step()


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda s: {STAGE: s[AGE]}, "reads 'agents/people/age' without declaring it.*reads"),
        (lambda s: {STAGE: s["agents"]["people"]["age"]}, "without declaring"),
        (
            lambda s: {STAGE: s[STAGE], MOOD: s[STAGE]},
            "writes 'environment/mood' without declaring",
        ),
        (lambda s: {}, "declares to write 'agents/people/stage' and did not"),
        (lambda s: None, "returned NoneType; expected a dict"),
        (lambda s: {STAGE: 3}, "expected a tensor, got int"),
        (lambda s: {STAGE: s[STAGE][:5]}, r"shape \(60,\), got \(5,\)"),
        (lambda s: {STAGE: s[STAGE] * 0.5}, "expected torch.uint8, got torch.float32"),
        (lambda s: {STAGE: s[STAGE].to("meta")}, "expected a tensor on cpu, got one on meta"),
        (lambda s: {STAGE: s[STAGE].add_(1)}, "changed 'agents/people/stage' in place"),
    ],
)
def test_what_was_not_declared_is_refused(function, words) -> None:
    with pytest.raises(SubstepError, match=f"substep 'given'.*{words}"):
        run(function)


def test_a_path_that_does_not_exist_has_its_own_error() -> None:
    with pytest.raises(PathError, match="did you mean 'agents/people/stage'"):
        run(lambda s: {STAGE: s["agents/people/stages"]})
    with pytest.raises(PathError, match="did you mean 'people'"):
        run(lambda s: {STAGE: s.uniform(0, "peple")})


def test_a_series_takes_one_entry_a_step() -> None:
    both = {"reads": (STAGE,), "writes": (STAGE, CASES)}
    with pytest.raises(SubstepError, match=r"today's value of a series of shape \(2,\), got \(\)"):
        run(lambda s: {STAGE: s[STAGE], CASES: s[STAGE].sum()}, replicates=2, **both)
    run(lambda s: {STAGE: s[STAGE], CASES: s[STAGE].sum(-1)}, replicates=2, **both)


def test_a_prefix_declares_all_below_it() -> None:
    run(lambda s: {STAGE: (s[AGE] * 0).to(torch.uint8)}, reads=("agents/people",))
    run(lambda s: {STAGE: s["agents"]["people"]["stage"]}, reads=("agents", "networks"))


def test_views_of_the_state_may_be_returned() -> None:
    model = sir(
        populations={"people": {"stage": 1, "age": 2}},
        substeps=(Given(lambda s: {STAGE: s[AGE], AGE: s[STAGE]}, (STAGE, AGE), (STAGE, AGE)),),
    )
    state = Executor(model).init().state
    runner = Executor(model).init()
    for step in range(1, 5):  # the two columns change places, whole
        runner.step()
        assert set(runner.state[STAGE].tolist()) == {1 + step % 2}
        assert set(runner.state[AGE].tolist()) == {2 - step % 2}
    assert set(state[STAGE].tolist()) == {1}


def test_a_state_changed_in_place_has_to_be_reset() -> None:
    substep = Given(lambda s: {STAGE: s[STAGE].fill_(2)})
    runner = Executor(sir(substeps=(substep,))).init()
    with pytest.raises(SubstepError):
        runner.step()
    with pytest.raises(RunnerError, match="reset"):
        runner.step()


def test_names_and_parameters() -> None:
    class SlowRecovery(tiny.Recover):
        pass

    assert SlowRecovery().name == "slow_recovery"
    with pytest.raises(SubstepError, match="did you mean 'beta'"):
        tiny.Infect(beta=1.0).parameter("betta")


def test_observations_pass_through_to_the_transition() -> None:
    class Seen(Given):
        def observe(self, state):
            return {"ties": state[TIES].num_edges}

        def transition(self, state, action):
            assert action == {"ties": 120}
            return {STAGE: state[STAGE]}

    Executor(sir(substeps=(Seen(None, reads=(STAGE, TIES)),))).init().step()
