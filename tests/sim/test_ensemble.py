"""Ensembles in batches: what comes out follows from the seeds alone."""

import numpy as np
import pytest
import torch

from hotloop.errors import CapacityError, PathError, SettingError
from hotloop.models.epidemic import covid
from hotloop.models.epidemic.covid import CovidSettings
from hotloop.populations import load
from hotloop.sim import Column, Executor, LoadPopulation, Model, Series, Substep
from hotloop.sim import ensemble as ensemble_module
from hotloop.sim.ensemble import run_ensemble
from hotloop.sim.ensemble_batches import (
    MEMORY_SHARE,
    BatchedRuns,
    BatchSpec,
    batch_rows,
    even_batch,
    fitting_batch,
    needed_bytes,
)
from hotloop.sim.ray_placement import RayPlacement
from hotloop.sim.runner import Runner
from support.populations import without_start

MODEL = covid.model(CovidSettings(num_steps=30, exposed_share=0.05))
SICK = "agents/people/sick"
R2 = "initializer.transition_function.0.new_transmission.learnable_args.R2"


class Catch(Substep):
    """Without a program, and with first values that are drawn."""

    reads, writes = (SICK,), (SICK, "environment/cases")

    def transition(self, state, action):
        newly = (state[SICK] == 0) & (state.uniform(0, "people") < 0.3)
        return {SICK: state[SICK] | newly.to(torch.uint8), "environment/cases": newly.sum(-1)}


def first_sick(_data, state):
    return state.uniform(9, "people") < 0.2


CATCH = Model(
    "catch",
    substeps=(Catch(),),
    populations={"people": {"sick": Column(first_sick, torch.uint8)}},
    sizes={"people": 40},
    environment={"cases": Series(), "mood": 0.5},
    num_steps_per_episode=6,
)


@pytest.fixture(scope="module")
def population():
    return LoadPopulation(without_start(load(800)))


@pytest.fixture(scope="module")
def batched(population):
    """All 23 replicates in one batch."""
    return run_ensemble(MODEL, population, replicates=23, seed=4, batch=23)


def equal(runs, expected):
    assert runs.series.keys() == expected.series.keys()
    for name in expected.series:
        assert runs[name].tobytes() == expected[name].tobytes()
    assert runs.seeds.tolist() == expected.seeds.tolist()


# --- equality -----------------------------------------------------------------------------------


def test_a_batched_run_is_all_single_runs(batched, population):
    assert batched.seeds.tolist() == list(range(4, 27))
    assert batched["daily_infected"].shape == (23, 30)
    for name in ("daily_infected", "daily_deaths"):
        for row, seed in enumerate(batched.seeds.tolist()):
            state = Executor(MODEL, population, seed=seed).execute().state
            assert np.array_equal(state[f"environment/{name}"], batched[name][row])
    assert len({tuple(row) for row in batched["daily_infected"]}) == 23


@pytest.mark.parametrize("batch", [1, 5, 8, 100, "auto"])
def test_batches_change_no_bit(batched, population, batch):
    equal(run_ensemble(MODEL, population, replicates=23, seed=4, batch=batch), batched)


@pytest.mark.parametrize("settings", [{"threads": 1}, {"fused": False}, {"active_set": False}])
def test_settings_of_speed_change_no_bit(batched, population, settings):
    runs = run_ensemble(MODEL, population, replicates=23, seed=4, batch=7, **settings)
    equal(runs, batched)


def test_a_model_without_a_program_or_a_population():
    expected = run_ensemble(CATCH, replicates=9, batch=9)
    equal(run_ensemble(CATCH, replicates=9, batch=2), expected)
    assert list(expected.series) == ["cases"]
    state = Executor(CATCH, seed=8).execute().state
    assert np.array_equal(state["environment/cases"], expected["cases"][8])


def test_parameters_are_those_of_every_replicate(population):
    given = {R2: torch.tensor([[6.0], [1.0], [0.5]])}
    runs = run_ensemble(MODEL, population, replicates=5, batch=2, parameters=given)
    runner = Executor(MODEL, population, seed=3).runner
    runner.init()
    runner.set_parameters(given)
    runner.step(30)
    assert np.array_equal(runner.state["environment/daily_infected"], runs["daily_infected"][3])
    with pytest.raises(PathError):
        run_ensemble(MODEL, population, replicates=2, parameters={"R3": torch.ones(1)})


# --- batches ------------------------------------------------------------------------------------


def test_batches_cover_all_replicates_evenly():
    for replicates, size in ((23, 23), (23, 7), (23, 1), (8, 8), (1000, 63)):
        rows = list(batch_rows(replicates, size))
        assert [i for part in rows for i in range(part.start, part.stop)] == list(range(replicates))
        sizes = [part.stop - part.start for part in rows]
        assert max(sizes) <= size
        assert max(sizes) - min(sizes) <= 1


def test_a_batch_is_what_fits():
    assert even_batch(1000, fitting=10, at_once=1) == 10
    assert even_batch(1000, fitting=10_000, at_once=1) == 125
    assert even_batch(1000, fitting=10_000, at_once=50) == 3
    assert even_batch(1000, fitting=0, at_once=1) == 1
    assert even_batch(3, fitting=10_000, at_once=1, least=8) == 3


def test_memory_decides_the_batch(batched, population, monkeypatch):
    """Free memory for about three replicates, then for none."""
    spec = BatchSpec(MODEL, 0, 30, ("daily_infected",), {}, {"device": "cpu"})
    need = [needed_bytes(spec, population, n) for n in (1, 3, 10)]
    assert need[2] - need[1] == 7 * (need[1] - need[0]) / 2
    free = need[1] / MEMORY_SHARE
    assert fitting_batch(spec, population, free) == 3
    monkeypatch.setattr(ensemble_module, "_free_bytes", lambda _spec: free)
    runs = run_ensemble(MODEL, population, replicates=23, seed=4, threads=8)
    assert runs.batch <= 3
    equal(runs, batched)
    assert fitting_batch(spec, population, 1000) == 1


def test_a_batch_that_cannot_fit_is_refused(population):
    with pytest.raises(CapacityError, match="out of memory"):
        run_ensemble(MODEL, population, replicates=10**7, batch=10**7, series=())


def test_progress_is_reported_after_each_batch():
    reported = []
    run_ensemble(CATCH, replicates=10, batch=4, on_progress=lambda *done: reported.append(done))
    assert reported == [(3, 10), (6, 10), (10, 10)]


def test_an_interrupted_ensemble_leaves_no_thread(population, monkeypatch):
    closed = []

    def interrupt(_done, _all):
        raise KeyboardInterrupt

    close = Runner.close
    monkeypatch.setattr(Runner, "close", lambda self: [closed.append(self), close(self)])
    with pytest.raises(KeyboardInterrupt):
        run_ensemble(MODEL, population, replicates=8, batch=4, on_progress=interrupt)
    assert len(set(map(id, closed))) == 1
    assert closed[-1].program._threads._pool is None


# --- batches of a runner of one's own -----------------------------------------------------------


def batches_of_catch(replicates, size):
    runner = Executor(CATCH, replicates=size, seed=2, gradient=False).init()
    seeds = range(2, 2 + replicates)
    return BatchedRuns(runner, seeds, series=("cases",), num_steps=6)


def test_batches_of_a_runner_are_those_of_an_ensemble():
    steps, batches = [], batches_of_catch(7, 3)
    batches.run(on_step=lambda: steps.append(1))
    expected = run_ensemble(CATCH, replicates=7, seed=2)
    assert np.array_equal(batches.completed()["cases"], expected["cases"])
    assert len(steps) == 3 * 6


@pytest.mark.parametrize(("interrupted_at", "shape"), [(3, (3, 3)), (6, (3, 6)), (10, (3, 6))])
def test_interrupted_batches_keep_what_was_done(interrupted_at, shape):
    """Of the first batch the steps done, later all whole batches."""
    steps, batches = [], batches_of_catch(9, 3)

    def interrupt():
        steps.append(1)
        if len(steps) == interrupted_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batches.run(on_step=interrupt)
    rows, columns = shape
    expected = run_ensemble(CATCH, replicates=9, seed=2)["cases"][:rows, :columns]
    assert np.array_equal(batches.completed()["cases"], expected)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replicates": 0}, "replicates"),
        ({"batch": 0}, "batch: expected 1 or more, or 'auto'"),
        ({"backend": "slurm"}, "backend"),
        ({"series": ("case",)}, "did you mean 'cases'"),
        ({"thread": 2}, "did you mean 'threads'"),
        ({"ray": RayPlacement()}, "backend='ray'"),
    ],
)
def test_refuses_settings(settings, message):
    with pytest.raises(SettingError, match=message):
        run_ensemble(CATCH, **{"replicates": 2, **settings})
    with pytest.raises(SettingError, match="num_cpus"):
        RayPlacement(num_cpus=0)
    with pytest.raises(SettingError, match="did you mean 'cases'"):
        run_ensemble(CATCH, replicates=2)["case"]
