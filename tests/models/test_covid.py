"""The covid model: what the facts of the disease say, on every path, through the runner."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hotloop.errors import HotloopError
from hotloop.models.epidemic import covid
from hotloop.models.epidemic.covid import disease
from hotloop.populations import PopulationData, load
from hotloop.populations.ages import AGE_GROUPS
from hotloop.sim import DataLoader, Executor, LoadPopulation, Record

R2 = "initializer.transition_function.0.new_transmission.learnable_args.R2"
M = "initializer.transition_function.1.seirm_progression.learnable_args.M"
PATHS = [f"agents/citizens/{c}" for c in ("disease_stage", "infected_time", "next_stage_time")]


def small(size: int = 600, seed: int = 0, exposed: float = 0.05) -> PopulationData:
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 6, size).astype(np.uint8)
    edges = np.unique(rng.integers(0, size, (size * 4, 2)).astype(np.int32), axis=0)
    stage = np.where(rng.random(size) < exposed, rng.integers(1, 3, size), 0).astype(np.uint8)
    return PopulationData(
        name="small",
        columns={"age": age, "stage": stage},
        edges=edges,
    )


def run_of(data, steps=21, settings=None, **kwargs):
    model = covid.model(settings or covid.CovidSettings(num_steps=steps))
    runner = Executor(model=model, pop_loader=LoadPopulation(data), device="cpu", **kwargs).runner
    runner.init()
    return runner


def ended(runner) -> list[torch.Tensor]:
    series = ("environment/daily_infected", "environment/daily_deaths")
    return [runner.state[path].clone() for path in (*PATHS, *series)]


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a, b)


def test_generation_weights_are_those_of_the_gamma_distribution():
    known = [0, 0.0019, 0.0317, 0.1000, 0.1598, 0.1795, 0.1629]
    assert disease.generation_weights(7) == pytest.approx(known, abs=5e-5)
    assert disease.generation_weights(60).sum() == pytest.approx(1, abs=1e-12)
    for shape, x in ((0.3, 0.2), (1.0, 2.0), (5.25, 3.0), (5.25, 40.0)):
        expected = torch.special.gammainc(
            *(torch.tensor(v, dtype=torch.float64) for v in (shape, x))
        )
        assert disease.lower_gamma(shape, x) == pytest.approx(expected.item(), abs=1e-13)


@pytest.mark.slow
def test_a_script_of_the_reference_runs_with_its_imports_changed():
    runner = Executor(model=covid, data_loader=DataLoader(covid, LoadPopulation(small()))).runner
    runner.init()
    learn_params = [(name, params) for (name, params) in runner.named_parameters()]
    assert [(name, tuple(p.shape)) for name, p in learn_params] == [(R2, (3, 1)), (M, (1,))]
    new_tensor = torch.tensor([3.5, 4.2, 5.6], requires_grad=True, device=runner.device)
    runner._set_parameters({learn_params[0][0]: new_tensor})
    runner.step(runner.config["simulation_metadata"]["num_steps_per_episode"])
    traj = runner.state_trajectory[-1][-1]
    loss = traj["environment"]["daily_infected"].sum()
    assert loss > 20
    loss.backward()
    assert new_tensor.grad.shape == (3,)
    assert new_tensor.grad[0] > 0
    assert runner.get_performance_stats()["steps"] == 21
    substep = runner.initializer.transition_function["0"].new_transmission
    assert substep.calibrate_R2 is new_tensor
    assert len(runner.state_trajectory) == 22
    assert len(runner.state_trajectory[0]) == 1


@pytest.mark.parametrize("replicates", [None, 3])
def test_substeps_and_program_give_the_same_bits(replicates):
    data = small()
    ends = [
        ended(run)
        for way in ({"fused": False}, {}, {"active_set": True}, {"active_set": False, "threads": 2})
        for run in [run_of(data, replicates=replicates, seed=5, **way)]
        if run.step(21) is None
    ]
    for other in ends[1:]:
        assert_same(ends[0], other)


@pytest.mark.parametrize("fused", [True, False])
def test_a_replicate_is_the_single_run_of_its_seed(fused):
    data = small()
    ensemble = run_of(data, replicates=3, seed=10, fused=fused)
    ensemble.step(21)
    for run in range(3):
        single = run_of(data, seed=10 + run, fused=fused)
        single.step(21)
        assert_same([value[run] for value in ended(ensemble)], ended(single))


@pytest.mark.parametrize("fused", [True, False])
def test_steps_go_on_where_they_stopped(fused):
    data = small()
    at_once, by_one = run_of(data, fused=fused), run_of(data, fused=fused)
    at_once.step(21)
    for _ in range(21):
        by_one.step(1)
    assert_same(ended(at_once), ended(by_one))
    at_once.reset()
    at_once.step(21)
    assert_same(ended(at_once), ended(by_one))


def test_isolation_lowers_infections_on_both_paths_alike():
    data, willing = small(), covid.CovidSettings(willingness=0.9)
    ends = []
    for fused in (True, False):
        runner = run_of(data, settings=willing, fused=fused)
        runner.state["environment/isolating"].fill_(1.0)
        runner.step(21)
        ends.append(ended(runner))
    assert_same(*ends)
    free = run_of(data)
    free.step(21)
    assert ends[0][3].sum() < 0.5 * ended(free)[3].sum()


def plain_curve(data: PopulationData, seed: int, steps: int) -> np.ndarray:
    """The model with floating-point sums and another generator: nothing is shared."""
    rng = np.random.default_rng(seed)
    age, stage = data.columns["age"].astype(int), data.columns["stage"].astype(int)
    since = np.select([stage == 1, stage == 2], [-1, -3], 500)
    due = np.select([stage == 1, stage == 2], [3, 5], 500)
    g = disease.generation_weights(60)
    curve = []
    for t in range(steps):
        sends = np.array(disease.INFECTIOUSNESS)[stage]
        message = np.where((stage == 1) | (stage == 2), sends * g[np.clip(t - since - 1, 0, 59)], 0)
        pressure = np.bincount(data.edges[:, 1], message[data.edges[:, 0]], data.size)
        rate = 4.75 * np.array(disease.SUSCEPTIBILITY)[age] / np.array(disease.INTERACTIONS)[age]
        newly = (stage == 0) & (rng.random(data.size) < 1 - np.exp(-rate * pressure))
        on, off = (stage == 1) & (due <= t), (stage == 2) & (due <= t)
        stage[newly], since[newly], due[newly] = 1, t, t + 6
        stage[on], due[on] = 2, t + 5
        stage[off] = np.where(rng.random(off.sum()) < 0.12, 4, 3)
        curve.append((newly.sum(), (stage == 4).sum()))
    return np.array(curve, float)


def test_mean_curves_agree_with_a_plain_model_of_other_draws():
    data = small(400, exposed=0.03)
    plain = np.stack([plain_curve(data, seed, 21) for seed in range(200)])
    runner = run_of(data, replicates=200, seed=1000)
    runner.step(21)
    series = [
        runner.state[f"environment/daily_{what}"].double().numpy()
        for what in ("infected", "deaths")
    ]
    ours = np.stack([series[0], series[1].cumsum(1)], -1)
    error = np.sqrt((plain.var(0) + ours.var(0)) / 200)
    apart = np.abs(plain.mean(0) - ours.mean(0))
    # 42 comparisons: 4 standard errors, and a floor where hardly anything happens.
    assert (apart <= 4 * error + 0.02).all()
    total = np.abs(plain[..., 0].sum(1).mean() - ours[..., 0].sum(1).mean())
    assert total < 3 * np.hypot(plain[..., 0].sum(1).std(), ours[..., 0].sum(1).std()) / np.sqrt(
        200
    )


def test_every_agent_is_in_one_compartment_and_never_goes_back():
    data = small()
    runner = run_of(data, record=Record(keep=("agents/citizens/disease_stage",)))
    runner.step(21)
    stages = torch.stack(
        [s[-1]["agents"]["citizens"]["disease_stage"] for s in runner.state_trajectory]
    )
    assert (stages <= 4).all()
    gone = stages[:-1] >= 3
    assert (stages[1:][gone] == stages[:-1][gone]).all()
    assert (stages[1:].int() >= stages[:-1].int()).all()
    deaths = runner.state["environment/daily_deaths"]
    before = (stages[0] == 4).sum()
    assert deaths.sum() == (stages[-1] == 4).sum() - before


def test_r_beyond_the_last_week_keeps_its_last_value():
    data = small()
    short, long = run_of(data), run_of(data)
    short.set_parameters({R2: torch.tensor([3.0])})
    long.set_parameters({R2: torch.tensor([3.0, 3.0, 3.0])})
    for runner in (short, long):
        runner.step(21)
    assert_same(ended(short), ended(long))


def test_mixed_precision_changes_little():
    data = load(5_000)
    totals = []
    for precision in ("double", "mixed"):
        runner = run_of(data, precision=precision, replicates=30)
        runner.step(21)
        totals.append(runner.state["environment/daily_infected"].sum(-1).numpy())
    error = np.hypot(*(x.std() for x in totals)) / np.sqrt(30)
    assert abs(totals[0].mean() - totals[1].mean()) <= 4 * error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"age": np.full(600, 7, np.uint8)},
            "column 'age': row 0: .* from 0 to 5, got 7 .*600 such",
        ),
        (
            {"age": np.arange(600) - 1},
            r"'small': column 'age': row 0: .* got -1 .*; correct or drop",
        ),
        ({"age": np.r_[np.zeros(599), np.nan]}, "column 'age': row 599: .* got nan"),
        ({"age": np.r_[np.zeros(599), 1.5]}, "column 'age': row 599: .* got 1.5"),
        ({"age": np.array(["u19"] * 599 + ["teen"])}, "column 'age': .* got 'teen'; replace them"),
        ({"stage": np.full(600, 5)}, "column 'stage': row 0: .* from 0 to 4, got 5"),
        ({"stage": np.r_[np.zeros(599), -1]}, "column 'stage': row 599: .* got -1"),
        ({"stage": np.zeros(599, np.uint8)}, "column 'stage': .* 600 agents of 'age', got 599"),
        ({"disease_stage": np.zeros(600)}, "columns 'stage' and 'disease_stage': expected one"),
        ({"age": None}, "agents/citizens/age: the population has no column 'age'"),
    ],
)
def test_bad_columns_are_refused_before_the_first_step(change, message):
    good = small()
    columns = {name: c for name, c in {**good.columns, **change}.items() if c is not None}
    with pytest.raises(HotloopError, match=message):
        run_of(replace(good, columns=columns))


def test_ages_as_labels_are_read_as_their_codes():
    data = small()
    labels = np.array([label.upper() for label in AGE_GROUPS])[data.columns["age"]]
    runner = run_of(replace(data, columns={**data.columns, "age": labels}))
    assert np.array_equal(runner.state["agents/citizens/age"], data.columns["age"])


@pytest.mark.parametrize("name", ["stage", "stages", "disease_stage", "disease_stages"])
def test_the_compartments_at_the_start_are_a_column_of_any_of_these_names(name):
    data = small()
    start = data.columns["stage"]
    runner = run_of(replace(data, columns={"age": data.columns["age"], name: start * 1.0}))
    assert np.array_equal(runner.state["agents/citizens/disease_stage"], start)


@pytest.mark.parametrize(
    "kwargs", [{"r_by_week": ()}, {"r_by_week": (-1.0,)}, {"mortality": 1.5}, {"willingness": -0.1}]
)
def test_invalid_settings_are_refused(kwargs):
    with pytest.raises(HotloopError, match=next(iter(kwargs))):
        covid.CovidSettings(**kwargs)


def test_the_faults_of_the_reference_can_be_reproduced():
    data = small(exposed=0.02)

    def quirky(**settings):
        return run_of(data, settings=covid.CovidSettings(reference_quirks=True, **settings))

    runner = quirky()
    rate = torch.tensor([[4.75]] * 3, requires_grad=True)
    runner.set_parameters({R2: rate})
    runner.step(21)
    now = runner.state_trajectory[-1][-1]["environment"]
    summed = run_of(data)
    summed.set_parameters({R2: torch.tensor([14.25])})
    summed.step(21)
    # R is summed over the weeks: about as many as with 14.25, edges both ways aside.
    assert now["daily_infected"].sum() > 0.8 * summed.state["environment/daily_infected"].sum()
    stage = runner.state["agents/citizens/disease_stage"]
    assert (stage < 4).all()  # nobody enters the last stage, and yet there are deaths
    assert now["daily_deaths"].sum() > 0
    assert now["daily_deaths"].sum() % 1 != 0
    now["daily_infected"].sum().backward()
    assert torch.equal(rate.grad[0], rate.grad[2])  # the weeks cannot be told apart
    isolated = quirky(willingness=0.5)
    isolated.state["environment/isolating"].fill_(1.0)
    isolated.step(21)
    stage = isolated.state["agents/citizens/disease_stage"]
    assert ((stage > 0) & (stage < 1)).any()
    assert isolated.state["environment/daily_infected"][14:].sum() == 0


@pytest.mark.gpu
def test_a_gpu_gives_the_same_draws_and_counts():
    data = small()
    ends = []
    for device, capture in (("cpu", False), ("cuda", False), ("cuda", True)):
        model = covid.model()
        runner = Executor(
            model=model,
            pop_loader=LoadPopulation(data),
            device=device,
            capture=capture,
            fused=False,
        ).runner
        runner.init()
        runner.step(21)
        ends.append([value.cpu() for value in ended(runner)])
    assert_same(ends[0], ends[1])
    assert_same(ends[0], ends[2])
