"""Ensembles on Ray: the same bits as here, workers that die, and nothing left behind."""

import gc
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

import cloudpickle
import numpy as np
import psutil
import pytest
import torch

from hotloop.errors import SettingError, WorkerError
from hotloop.models.epidemic import covid
from hotloop.models.epidemic.covid import CovidSettings
from hotloop.populations import load
from hotloop.sim import Column, LoadPopulation, Model, Series, Substep
from hotloop.sim.ensemble import run_ensemble
from hotloop.sim.ray_placement import RayPlacement
from support.populations import without_start
from support.ray_warnings import RAY_WARNINGS
from support.wait import wait_until

ray = pytest.importorskip("ray")

from hotloop.sim.ensemble_ray import _Shipped  # noqa: E402

pytestmark = RAY_WARNINGS
# The workers know this module by value: they do not have it.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

MODEL = covid.model(CovidSettings(num_steps=25, exposed_share=0.05))
SMALL = RayPlacement(num_cpus=1)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
    with warnings.catch_warnings():  # the processes and files that Ray leaves, here and not later
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture(scope="module")
def population():
    return LoadPopulation(without_start(load(800)))


@pytest.fixture(scope="module")
def here(population):
    return run_ensemble(MODEL, population, replicates=20, seed=2, batch=20)


class Slow(Substep):
    """Takes its time; fails at a given seed, or ends its process once."""

    reads, writes = (), ("environment/draws",)

    def __init__(self, seconds=0.0, fails=None, marker=None):
        super().__init__()
        self.seconds, self.fails, self.marker = seconds, fails, marker

    def transition(self, state, action):
        time.sleep(self.seconds)
        if self.fails is not None and self.fails in state.seeds.tolist():
            raise ValueError("planted")
        if self.marker is not None and 7 in state.seeds.tolist() and not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"environment/draws": state.uniform(0, "people").sum(-1).float()}


def slow(**given):
    return Model(
        "slow",
        substeps=(Slow(**given),),
        populations={"people": {"id": Column(0)}},
        sizes={"people": 5},
        environment={"draws": Series()},
        num_steps_per_episode=2,
    )


def workers():
    """Processes of actors that are not idle workers of Ray's pool."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "_Actor" in " ".join(process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def await_no_workers():
    wait_until(lambda: not workers(), "no actor is left")


def equal(runs, expected):
    assert runs.series.keys() == expected.series.keys()
    for name in expected.series:
        assert runs[name].tobytes() == expected[name].tobytes()
    assert runs.seeds.tolist() == expected.seeds.tolist()


def test_equals_a_run_here_bit_for_bit(here, population):
    told = []
    runs = run_ensemble(
        MODEL,
        population,
        replicates=20,
        seed=2,
        backend="ray",
        on_progress=lambda done, total: told.append((done, total)),
    )
    equal(runs, here)
    assert told[-1] == (20, 20)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert runs.batch == 2  # eight batches for each of two workers
    await_no_workers()


@pytest.mark.slow
def test_batches_change_no_bit(here, population):
    equal(run_ensemble(MODEL, population, replicates=20, seed=2, batch=9, backend="ray"), here)


@pytest.mark.slow
def test_a_worker_that_dies_changes_nothing(tmp_path, caplog):
    expected = run_ensemble(slow(), replicates=12, batch=12)
    marker = tmp_path / "died"
    runs = run_ensemble(slow(marker=str(marker)), replicates=12, batch=2, backend="ray", ray=SMALL)
    assert marker.exists()
    equal(runs, expected)
    assert "restart 1 of 3" in caplog.text
    marker.unlink()
    with pytest.raises(WorkerError, match=r"replicates 6 to 7 died.*after 0 restarts"):
        run_ensemble(
            slow(marker=str(marker)),
            replicates=12,
            batch=2,
            backend="ray",
            ray=RayPlacement(restarts=0),
        )
    await_no_workers()


@pytest.mark.slow
def test_an_error_of_the_model_is_raised_here():
    with pytest.raises(ValueError, match="planted") as caught:
        run_ensemble(slow(fails=5), replicates=8, batch=2, backend="ray", ray=SMALL)
    notes = "".join(caught.value.__notes__)
    assert "replicates 4 to 5" in notes
    assert "in transition" in notes
    await_no_workers()


@pytest.mark.slow
def test_an_interrupt_leaves_no_worker():
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))

    def interrupt(_done, _total):
        if not timer.is_alive():
            timer.start()

    with pytest.raises(KeyboardInterrupt):
        run_ensemble(
            slow(seconds=0.3), replicates=50, batch=1, backend="ray", on_progress=interrupt
        )
    await_no_workers()


def test_refuses_what_the_cluster_does_not_have():
    with pytest.raises(SettingError, match="no node has room"):
        run_ensemble(slow(), replicates=2, backend="ray", ray=RayPlacement(num_cpus=64))
    with pytest.raises(SettingError, match="num_gpus"):
        run_ensemble(slow(), replicates=2, backend="ray", device="cuda")


@pytest.mark.slow
def test_says_that_there_is_no_place():
    wait_until(lambda: ray.available_resources().get("CPU") == 2, "nobody has a place")
    taken = ray.remote(num_cpus=2)(lambda: time.sleep(1000)).remote()
    wait_until(lambda: not ray.available_resources().get("CPU"), "all places are taken")
    with pytest.raises(WorkerError, match="none of 2 workers has a place after 1 s"):
        run_ensemble(
            slow(), replicates=2, batch=1, backend="ray", ray=RayPlacement(start_timeout_s=1)
        )
    ray.cancel(taken, force=True)


def test_the_population_is_shared_without_a_copy(population):
    data = _Shipped.of(population.data)
    got = ray.get(ray.put(data)).unpacked()
    for name, column in population.data.columns.items():
        assert np.array_equal(got.columns[name], column)
        assert not got.columns[name].flags.owndata
        assert not got.columns[name].flags.writeable
    assert not got.edges.flags.writeable
    assert np.array_equal(got.edges, population.data.edges)
    assert torch.equal(torch.tensor(got.edges), torch.tensor(population.data.edges))
