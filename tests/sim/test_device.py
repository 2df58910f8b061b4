"""What a card asks of the tensor path, checked without one: on `meta`, and with stand-ins."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models as tiny
import torch
from tiny_models import BETA, CASES, STAGE, sir

from hotloop.errors import SubstepError
from hotloop.loop.capture import WARM_UP_RUNS
from hotloop.models.epidemic import covid
from hotloop.populations import PopulationData
from hotloop.sim import Column, Executor, Model, Record, Runner, Substep
from hotloop.sim import graph as graphs
from hotloop.sim.draws import uniform_by_operations, uniform_numpy
from hotloop.sim.graph import CapturedSteps
from hotloop.sim.memory import SUBSTEPS_WORK, estimate, free_on
from hotloop.sim.network import RandomContacts
from hotloop.sim.settings import Settings, find_device
from hotloop.sim.stats import Stats
from support.device_only import META, DeviceOnly, moved

CARD = torch.device("cuda", 0)


def town(size: int = 400, degree: int = 4) -> PopulationData:
    rng = np.random.default_rng(0)
    age = rng.integers(0, 6, size).astype(np.uint8)
    edges = rng.integers(0, size, (size * degree, 2)).astype(np.int32)
    stage = np.where(rng.random(size) < 0.1, rng.integers(1, 3, size), 0).astype(np.uint8)
    return PopulationData(
        name="town",
        columns={"age": age, "stage": stage},
        edges=edges,
    )


def captured(model=None, *, warm_ups: int = WARM_UP_RUNS, **settings) -> Runner:
    """A runner whose steps are repeated as a graph repeats them, by calling them again."""
    runner = Executor(model or sir(), device="cpu", fused=False, **settings).init()
    state = runner.state

    class Again:
        def __init__(self, body, warm_up) -> None:
            self.body = body
            for _ in range(warm_ups):
                warm_up()
            body()

        def replay(self) -> None:
            state.counts_on_device = True
            self.body()
            state.counts_on_device = False

    runner.program = CapturedSteps(state, runner._substeps_alone, Again)
    runner._advance = runner.program.advance
    return runner


@contextmanager
def cards(monkeypatch, count=2, current=1):
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "device_count", lambda: count)
        patch.setattr(torch.cuda, "current_device", lambda: current)
        yield


# --- where things are ---------------------------------------------------------------------------


def test_a_card_comes_with_its_number(monkeypatch) -> None:
    with cards(monkeypatch):
        assert find_device("auto") == find_device("cuda") == torch.device("cuda", 1)
        assert find_device("cuda:0") == torch.device("cuda", 0)


@pytest.mark.parametrize("replicates", [None, 3])
@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_a_step_of_an_epidemic_asks_the_host_for_nothing(replicates, precision) -> None:
    runner = Executor(
        covid.model(), town(), device="cpu", fused=False, replicates=replicates, gradient=False,
        precision=precision,
    ).init()  # fmt: skip
    stays_on_device(runner)


@pytest.mark.parametrize("replicates", [None, 3])
def test_a_step_with_the_references_faults_asks_the_host_for_nothing(replicates) -> None:
    settings = covid.CovidSettings(reference_quirks=True, willingness=0.5)
    runner = Executor(covid.model(settings), town(), device="cpu", replicates=replicates).init()
    stays_on_device(runner)


def test_contacts_drawn_anew_are_drawn_on_the_device() -> None:
    model = covid.model()
    contacts = RandomContacts(400, 3, seed=2)
    model = Model(**{**vars(model), "networks": {"contact": contacts}})
    plain = Executor(model, town(), device="cpu", fused=False).init()
    again = captured(model, pop_loader=town())
    for runner in (plain, again):
        runner.step(21)
    path = "environment/daily_infected"
    assert torch.equal(plain.state[path], again.state[path])
    assert plain.state[path].sum() > 10
    stays_on_device(Executor(model, town(), device="cpu", fused=False).init())


def stays_on_device(runner: Runner) -> None:
    """One step on `meta`, with everything that is moved once already there."""
    moved(runner)
    with torch.no_grad():
        runner._substeps_alone()
        runner.state.settle()
        with DeviceOnly():
            runner._substeps_alone()
            runner.state.settle()
            runner.state.step_index.add_(1)


def test_what_reads_a_number_on_the_host_is_found() -> None:
    class Peeking(Substep):
        reads = writes = (STAGE,)

        def transition(self, state, _action):
            return {STAGE: state[STAGE] + int(state[STAGE].max())}

    class Bringing(Peeking):
        def transition(self, state, _action):
            return {STAGE: state[STAGE] + torch.ones(tiny.N, dtype=torch.uint8).to(state.device)}

    for substep in (Peeking(), Bringing()):
        runner = Executor(sir(substeps=(substep,)), device="cpu").init()
        with pytest.raises((RuntimeError, AssertionError)):
            stays_on_device(runner)


def test_draws_need_nothing_of_the_host() -> None:
    with DeviceOnly():
        drawn = uniform_by_operations(torch.zeros(3, dtype=torch.int64, device=META), 4, 1, 10)
    assert drawn.shape == (3, 10)
    seeds = torch.tensor([5, 6])
    again = uniform_by_operations(seeds, 4, 1, 10).numpy()
    np.testing.assert_array_equal(again, [uniform_numpy(seed, 4, 1, 10) for seed in (5, 6)])


def test_a_strong_pressure_keeps_all_of_its_bits() -> None:
    """A card's substeps and the program here agree also beyond the 24 bits of a float32."""
    runner = Executor(covid.model(), town(), device="cpu", fused=False).init()
    transmission, view = runner.substeps[0], runner._views[0]
    pressure = torch.full((400,), 2**24 + 1, dtype=torch.int32)
    scale = 2.0**-transmission.spread.fraction_bits
    chance = transmission.act(view, {"pressure": pressure, "scale": scale})["chance"]
    less = transmission.act(view, {"pressure": pressure - 1, "scale": scale})["chance"]
    assert (chance > less).all()


# --- captured steps -----------------------------------------------------------------------------


@pytest.mark.parametrize("left", [1, 2, 3])
def test_a_graph_can_be_captured_at_the_end_of_an_episode(left) -> None:
    """The warm-up runs steps that are not part of the episode, and has no room for them."""
    plain, again = Executor(sir(), device="cpu").init(), captured()
    for runner in (plain, again):
        runner.step(tiny.STEPS - left)
        runner.set_parameters({BETA: torch.tensor(0.9)})  # captured anew
        runner.step(left)
    for path in (STAGE, CASES):
        assert torch.equal(plain.state[path], again.state[path])
    assert captured(num_steps=1).step() is None


def test_other_seeds_need_no_other_graph() -> None:
    again = captured(replicates=2)
    for seeds in ([0, 1], [7, 3]):
        again.reset(seeds=seeds)
        again.step(tiny.STEPS)
        for run, seed in enumerate(seeds):
            single = Executor(sir(), device="cpu", seed=seed).execute()
            assert torch.equal(again.state[CASES][run], single.state[CASES])
    saved = again.get_state()
    again.reset(seeds=[4, 4])
    again.set_state(saved)
    assert again.get_performance_stats()["program_captures"] == 1


def test_a_column_with_another_place_needs_another_graph() -> None:
    def lucky(_data, state):
        return state.uniform(5, "people").round()  # read by substeps, written by none

    class Infect(tiny.Infect):
        reads = (*tiny.Infect.reads, "agents/people/luck")

        def observe(self, state):
            pressure = super().observe(state)["pressure"]
            return {"pressure": pressure * state["agents/people/luck"]}

    people = {"stage": Column((np.arange(tiny.N) % 10 == 0).astype(np.int64), torch.uint8)}
    infect = Infect(beta=0.4, weeks=torch.ones(3, 1))
    model = sir(
        substeps=(infect, tiny.Recover()), populations={"people": {**people, "luck": lucky}}
    )
    again = captured(model)
    for seed in (1, 2):
        again.reset(seeds=seed)
        again.step(tiny.STEPS)
        plain = Executor(model, device="cpu", seed=seed).execute()
        assert torch.equal(again.state[CASES], plain.state[CASES])
    assert again.get_performance_stats()["program_captures"] == 2


def test_nothing_but_substeps_is_captured() -> None:
    """An event, or a wait for a copy, would be part of the graph and fail the capture."""
    again = captured(record=Record(agents=True))
    state = again.state

    class Strict:  # a copier that refuses what a capturing stream may not wait for
        waits = 0

        def copy(self, value, dtype):
            assert not state.counts_on_device
            return value.to(dtype, copy=True), object()

        def computing_waits_for(self, _mark):
            assert not state.counts_on_device
            self.waits += 1

        def host_waits_for(self, _mark):
            pass

    again._recorder._copier = copier = Strict()
    for entries in again._recorder._kept.values():
        for kept in entries:
            kept.mark = object()
    again.step(3)
    assert copier.waits > 0
    times = [name for name in again.get_performance_stats() if name.startswith("seconds_")]
    assert times == ["seconds_step"]
    plain = Executor(sir(), device="cpu", record=Record(agents=True)).init()
    plain.step(3)
    assert torch.equal(again.state_trajectory[2][-1][STAGE], plain.state_trajectory[2][-1][STAGE])


class FakeCuda:
    """Notes in which order a capture asks for what."""

    OutOfMemoryError = torch.cuda.OutOfMemoryError

    def __init__(self) -> None:
        self.said: list[str] = []

    @contextmanager
    def _block(self, name):
        self.said.append(name)
        yield
        self.said.append(f"/{name}")

    def device(self, device):
        return self._block(str(device))

    def stream(self, _stream):
        return self._block("side")

    def graph(self, _graph):
        return self._block("graph")

    def Stream(self):
        return SimpleNamespace(wait_stream=lambda _: self.said.append("side waits"))

    def current_stream(self):
        return SimpleNamespace(wait_stream=lambda _: self.said.append("wait for side"))

    def CUDAGraph(self):
        return "a graph"


def test_a_capture_goes_in_order_on_its_card(monkeypatch) -> None:
    cuda = FakeCuda()
    monkeypatch.setattr(graphs.torch, "cuda", cuda)
    made = graphs.cuda_capture(
        torch.device("cuda:1"), lambda: cuda.said.append("step"), lambda: cuda.said.append("warm")
    )
    assert made == "a graph"
    warm = ["warm"] * WARM_UP_RUNS
    assert cuda.said == [
        "cuda:1", "side waits", "side", *warm, "/side", "wait for side", "graph", "step", "/graph",
        "/cuda:1",
    ]  # fmt: skip


def test_a_step_that_cannot_be_captured_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(graphs.torch, "cuda", FakeCuda())

    def syncing() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(SubstepError, match=r"stream is capturing\n.*no \.item\(\)"):
        graphs.cuda_capture(CARD, syncing, lambda: None)

    def too_large() -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.cuda.OutOfMemoryError):
        graphs.cuda_capture(CARD, too_large, lambda: None)


# --- time and memory ----------------------------------------------------------------------------


def test_a_stage_is_timed_on_the_stream_of_its_card(monkeypatch) -> None:
    recorded = []

    class Event:
        def __init__(self, enable_timing) -> None:
            assert enable_timing

        def record(self, stream) -> None:
            recorded.append(stream)

        def query(self) -> bool:
            return True

        def elapsed_time(self, _end) -> float:
            return 250.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: None)
    stats = Stats(torch.device("cuda", 1))
    with stats.timed("infect"):
        pass
    assert recorded == ["stream of cuda:1"] * 2
    assert stats.read_stage_seconds() == {"infect": 0.25}


def test_memory_that_torch_keeps_unused_is_free(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (100, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: 700)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _device: 300)
    assert free_on(CARD) == 500


@pytest.mark.parametrize("degree", [0, 4, 30])
@pytest.mark.parametrize("replicates", [None, 4])
def test_the_work_of_a_step_on_a_card_fits_its_estimate(degree, replicates) -> None:
    data = town(2000, degree)
    runner = Executor(
        covid.model(), data, device="cpu", fused=False, gradient=False, replicates=replicates
    ).init()
    moved(runner)
    with torch.no_grad():
        runner._substeps_alone()
        runner.state.settle()
        with DeviceOnly() as held:
            runner._substeps_alone()
            runner.state.settle()
    settings = Settings(CARD, replicates=replicates)
    need = estimate(runner.model, data, settings, {"citizens": 2000}, Record(keep=()), 21)
    work = need.device["the work of a step"]
    assert held.peak <= work + 1000
    assert held.peak >= work / 2


def test_on_a_card_substeps_are_counted_and_no_program() -> None:
    data, sizes = town(2000), {"citizens": 2000}
    needs = {
        kind: estimate(covid.model(), data, Settings(torch.device(kind)), sizes, Record(), 21)
        for kind in ("cpu", "cuda")
    }
    assert (
        needs["cuda"].device["the state of all agents"]
        > (needs["cpu"].device["the state of all agents"])
    )
    assert needs["cuda"].device["the work of a step"] >= SUBSTEPS_WORK * 2000
