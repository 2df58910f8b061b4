"""Push, pull, active set, threads and ensembles give the bits of the plain twin."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import SettingError
from hotloop.models.epidemic.covid.disease import spread
from hotloop.models.epidemic.program import Costs, SpreadColumns, SpreadProgram, costs_of
from hotloop.models.epidemic.spread import NEVER, Spread, SpreadInputs
from hotloop.sim.network import Network, PeriodicNetwork, RandomContacts
from support.plain_spread import Plain

COVID = spread()
T = 25


def population(seed: int, size: int, degree: float, active: float = 0.2):
    """Columns of a small population in the middle of an epidemic, and its edges."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, size, (int(size * degree), 2)).astype(np.int32)
    compartment = np.where(rng.random(size) < active, rng.integers(1, 5, size), 0).astype(np.uint8)
    infected_time = np.where(compartment > 0, rng.integers(-12, 1, size), 500).astype(np.int16)
    next_time = np.where((compartment == 1) | (compartment == 2), rng.integers(-1, 9, size), 500)
    group = rng.integers(0, 6, size).astype(np.uint8)
    return edges, group, compartment, infected_time, next_time.astype(np.int16)


def made(people, network, seeds, inputs, **kwargs) -> SpreadProgram:
    _, group, *columns = people
    shape = (T,) if len(seeds) == 1 else (len(seeds), T)
    copies = [
        torch.from_numpy(np.stack([c] * len(seeds)) if len(seeds) > 1 else c.copy())
        for c in columns
    ]
    daily = [torch.zeros(shape) for _ in range(2)]
    held = SpreadColumns(torch.from_numpy(group), *copies, *daily)
    return SpreadProgram(COVID, network, held, seeds, lambda: inputs, **kwargs)


def plain_course(people, edges_at, seed, inputs, network, willing=None):
    edges, group, compartment, infected_time, next_time = (c.tolist() for c in people)
    twin = Plain(
        COVID, edges, group, compartment, infected_time, next_time, seed, inputs.rate.tolist(),
        float(inputs.mortality), 24, inputs.contact.tolist() if inputs.contact.size > 1 else None,
        float(inputs.isolating), None if willing is None else willing.tolist(),
    )  # fmt: skip
    daily = []
    for t in range(T):
        twin.edges = edges_at(t)
        daily.append(twin.step(t))
    return np.array(daily), np.array([twin.compartment, twin.infected_time, twin.next_time])


def columns_of(program: SpreadProgram) -> np.ndarray:
    held = program.columns
    return np.stack(
        [c.numpy().astype(int) for c in (held.compartment, held.infected_time, held.next_time)], -2
    )


INPUTS = SpreadInputs(np.array([4.75, 9.0, 2.0]), np.array(0.3))


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(1, 50),
    degree=st.floats(0, 6),
    cuts=st.lists(st.integers(1, T - 1), max_size=3),
)
def test_every_path_equals_the_plain_twin(seed, size, degree, cuts):
    people = population(seed, size, degree)
    network = Network.from_edges(size, people[0])
    daily, end = plain_course(people, lambda _: people[0].tolist(), seed, INPUTS, network)
    begins = [0, *sorted(set(cuts))]
    for mode in ("push", "pull", "auto"):
        program = made(people, network, [seed], INPUTS, mode=mode, threads=1)
        for first, last in zip(begins, [*begins[1:], T], strict=True):
            program.advance(first, last - first)
        held = program.columns
        np.testing.assert_array_equal(np.stack([held.infected, held.deaths], 1), daily)
        np.testing.assert_array_equal(columns_of(program), end)


@pytest.mark.parametrize("mode", ["push", "pull", "auto"])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("shared_pull_ns", [1.0, 3.0])
def test_threads_and_replicates_change_no_bit(mode, threads, shared_pull_ns):
    people = population(1, 3_000, 4, active=0.05)
    network = Network.from_edges(3_000, people[0])
    # As if measured: pulling shared is the quickest way, or the slowest.
    network.measured[costs_of(threads)] = Costs(1.0, 2.0, shared_pull_ns if threads > 1 else 2.0)
    singles = []
    for seed in (7, 8, 9):
        program = made(people, network, [seed], INPUTS, mode=mode, threads=threads)
        program.advance(0, T)
        program.close()
        singles.append(program)
    reference = made(people, network, [7], INPUTS, mode="push", threads=1)
    reference.advance(0, T)
    np.testing.assert_array_equal(columns_of(singles[0]), columns_of(reference))
    ensemble = made(people, network, [7, 8, 9], INPUTS, mode=mode, threads=threads)
    ensemble.advance(0, 10)
    ensemble.advance(10, T - 10)
    ensemble.close()
    for run, single in enumerate(singles):
        np.testing.assert_array_equal(columns_of(ensemble)[run], columns_of(single))
        np.testing.assert_array_equal(ensemble.columns.infected[run], single.columns.infected)
        np.testing.assert_array_equal(ensemble.columns.deaths[run], single.columns.deaths)


def test_controls_and_isolation_equal_the_plain_twin():
    people = population(3, 60, 5)
    network = Network.from_edges(60, people[0])
    willing = np.random.default_rng(0).random(60).astype(np.float32)
    inputs = SpreadInputs(
        np.array([6.0]), np.array(0.5), np.array([0.0, 1, 1, 0.5, 1, 1]), np.array(0.8)
    )
    daily, end = plain_course(
        people, lambda _: people[0].tolist(), 5, inputs, network, willing.astype(float)
    )
    for mode in ("push", "pull"):
        program = made(people, network, [5], inputs, mode=mode, willing=willing)
        program.advance(0, T)
        np.testing.assert_array_equal(program.columns.infected, daily[:, 0])
        np.testing.assert_array_equal(columns_of(program), end)


@pytest.mark.parametrize("shares", [True, False])
def test_a_pull_is_shared_where_that_was_quicker(monkeypatch, shares):
    people = population(1, 3_000, 4, active=0.5)
    network = Network.from_edges(3_000, people[0])
    network.measured[costs_of(2)] = Costs(1.0, 2.0, 1.0 if shares else 3.0)
    program, calls = made(people, network, [7], INPUTS, mode="pull", threads=2), []
    run = program._threads.run
    monkeypatch.setattr(program._threads, "run", lambda *args: calls.append(1) or run(*args))
    program.advance(0, 4)
    program.close()
    assert bool(calls) is shares


def test_the_ways_are_timed_once_for_a_network_and_a_number_of_threads():
    people = population(1, 3_000, 4)
    network = Network.from_edges(3_000, people[0])
    for threads in (1, 2, 2):
        made(people, network, [7], INPUTS, threads=threads).close()
    assert set(network.measured) == {costs_of(1), costs_of(2)}
    one, two = (network.measured[costs_of(threads)] for threads in (1, 2))
    assert one.shared_pull_ns == one.pull_ns > 0
    assert two.shared_pull_ns > 0


def test_parameters_of_each_replicate():
    people = population(4, 400, 5)
    network = Network.from_edges(400, people[0])
    both = SpreadInputs(np.array([[1.0], [9.0]]), np.array([0.0, 1.0]))
    program = made(people, network, [2, 3], both)
    program.advance(0, T)
    for run, (rate, mortality) in enumerate([(1.0, 0.0), (9.0, 1.0)]):
        alone = SpreadInputs(np.array([rate]), np.array(mortality))
        single = made(people, network, [2 + run], alone)
        single.advance(0, T)
        np.testing.assert_array_equal(columns_of(program)[run], columns_of(single))


def test_periodic_and_redrawn_contacts_equal_the_plain_twin():
    people = population(6, 40, 3)
    rng = np.random.default_rng(1)
    other = rng.integers(0, 40, (90, 2)).astype(np.int32)
    periodic = PeriodicNetwork([Network.from_edges(40, e) for e in (people[0], other)])
    turns = [people[0].tolist(), other.tolist()]
    random = RandomContacts(40, 4, seed=3)

    def drawn(t: int) -> list:
        network = random.at(t)
        return [
            (int(src), i)
            for i in range(40)
            for src in network.in_src[network.in_ptr[i] : network.in_ptr[i + 1]]
        ]

    for network, edges_at in ((periodic, lambda t: turns[t % 2]), (random, drawn)):
        daily, end = plain_course(people, edges_at, 11, INPUTS, network)
        for mode in ("push", "pull", "auto"):
            program = made(people, network, [11], INPUTS, mode=mode)
            program.advance(0, T)
            np.testing.assert_array_equal(program.columns.infected, daily[:, 0])
            np.testing.assert_array_equal(columns_of(program), end)


def test_a_hub_with_very_many_neighbours_does_not_overflow():
    size = 40_000
    edges = np.stack([np.arange(1, size), np.zeros(size - 1, int)], 1).astype(np.int32)
    network = Network.from_edges(size, edges)
    assert int(COVID.fixed_weights.max()) * (size - 1) > 2**31
    compartment = np.full(size, 2, np.uint8)
    compartment[0] = 0
    since = np.full(size, -6, np.int16)
    people = (edges, np.zeros(size, np.uint8), compartment, since, np.full(size, 400, np.int16))
    for mode in ("push", "pull"):
        program = made(people, network, [0], INPUTS, mode=mode)
        program.advance(0, 1)
        assert program.columns.infected[0] == 1


@pytest.mark.parametrize("mode", ["push", "pull"])
def test_a_hub_takes_no_bit_from_anybody(mode):
    people = population(9, 2_500, 3, active=0.3)
    # Agent 0, susceptible and slow to give in, feels everybody: more than 31 bits hold.
    to_hub = np.stack([np.arange(1, 2_500), np.zeros(2_499, int)], 1).astype(np.int32)
    edges = np.concatenate([people[0][people[0][:, 1] > 0], to_hub])
    columns = [column.copy() for column in people[1:]]
    columns[1][0], columns[2][0], columns[3][0] = 0, 500, 500
    people = (edges, *columns)
    network = Network.from_edges(2_500, edges)
    assert COVID.pressure_dtype(network.max_in_degree) is np.int64
    inputs = SpreadInputs(np.array([0.01, 3.0]), np.array(0.1))
    daily, end = plain_course(people, lambda _: edges.tolist(), 5, inputs, network)
    program = made(people, network, [5], inputs, mode=mode)
    program.advance(0, T)
    np.testing.assert_array_equal(program.columns.infected, daily[:, 0])
    np.testing.assert_array_equal(columns_of(program), end)


def test_weights_that_are_large_take_fewer_bits():
    weights = np.zeros((5, 4))
    weights[1] = [0.0, 5_000.0, 300.0, 1.0]
    spread = Spread(weights, (2, 2), np.ones(1))
    error = np.abs(spread.fixed_weights * 2.0**-spread.fraction_bits - weights)
    assert error.max() <= 2.0 ** -(spread.fraction_bits + 1)
    assert error.max() / weights.max() < 2.0**-30


def test_no_infection_without_an_infectious_neighbour_and_no_agent_is_lost():
    people = population(8, 2_000, 3, active=0.02)
    network = Network.from_edges(2_000, people[0])
    program = made(people, network, [0], INPUTS)
    reach = [set() for _ in range(2_000)]
    for src, dst in people[0].tolist():
        reach[dst].add(src)
    before = program.columns.compartment.numpy().copy()
    for t in range(T):
        program.advance(t, 1)
        after = program.columns.compartment.numpy().copy()
        assert len(after) == np.bincount(after, minlength=5).sum() == 2_000
        for agent in np.flatnonzero((before == 0) & (after == 1)):
            assert any(before[other] in (1, 2) for other in reach[agent])
        assert (after[before >= 3] == before[before >= 3]).all()
        assert program.columns.infected[t] == ((before == 0) & (after == 1)).sum()
        assert program.columns.deaths[t] == ((before == 2) & (after == 4)).sum()
        before = after


def test_the_columns_may_be_changed_between_steps():
    people = population(9, 300, 4)
    network = Network.from_edges(300, people[0])
    program = made(people, network, [0], INPUTS)
    program.advance(0, 5)
    program.columns.compartment.fill_(0)
    program.columns_changed()
    program.advance(5, 5)
    assert program.columns.infected[5:10].sum() == 0
    assert program.counters()["active_agent_steps"] > 0


def test_mixed_precision_agrees_by_distribution():
    people = population(10, 20_000, 4, active=0.02)
    network = Network.from_edges(20_000, people[0])
    totals = []
    for single in (False, True):
        program = made(people, network, list(range(24)), INPUTS, single_precision=single)
        program.advance(0, T)
        totals.append(program.columns.infected.sum(1).numpy())
    error = np.hypot(*(x.std() for x in totals)) / np.sqrt(24)
    assert abs(totals[0].mean() - totals[1].mean()) < 4 * error


def test_one_active_stage_and_longer_waits():
    """Other tables: one active compartment, as in SIR, and waits beyond any calendar's turn."""
    weights = np.zeros((4, 200))
    weights[1, 1:] = 0.05
    sir = Spread(weights, (90,), np.array([1.0]), 7, ("s", "i", "r", "d"))
    people = population(12, 80, 4)
    compartment = (people[2] > 0).astype(np.uint8)
    group = np.zeros(80, np.uint8)
    network = Network.from_edges(80, people[0])
    for mode in ("push", "pull"):
        columns = [
            torch.from_numpy(c.copy()) for c in (compartment, people[3], np.full(80, 3, np.int16))
        ]
        daily = [torch.zeros(120) for _ in range(2)]
        held = SpreadColumns(torch.from_numpy(group), *columns, *daily)
        inputs = SpreadInputs(np.array([1.0]), np.array(0.0))
        program = SpreadProgram(sir, network, held, [4], lambda inputs=inputs: inputs, mode=mode)
        program.advance(0, 120)
        twin = Plain(
            sir, people[0].tolist(), group.tolist(), compartment.tolist(), people[3].tolist(),
            [3] * 80, 4, [1.0], 0.0, sir.fraction_bits,
        )  # fmt: skip
        daily_plain = [twin.step(t)[0] for t in range(120)]
        assert held.infected.tolist() == daily_plain
        assert held.compartment.tolist() == twin.compartment
        assert held.next_time[held.compartment == 2].eq(NEVER).all()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"weights": np.ones((5, 8))}, "only active compartments"),
        ({"weights": np.zeros((4, 8))}, "3 compartments|compartments"),
        ({"weights": np.full((5, 8), np.nan)}, "finite"),
        ({"susceptibility": np.array([-1.0])}, "susceptibility"),
        ({"durations": (0, 5)}, "durations"),
    ],
)
def test_invalid_tables_are_refused(kwargs, message):
    good = {"weights": np.zeros((5, 8)), "durations": (5, 5), "susceptibility": np.ones(1)}
    with pytest.raises(SettingError, match=message):
        Spread(**{**good, **kwargs})


def test_invalid_settings_are_refused():
    people = population(1, 5, 1)
    network = Network.from_edges(5, people[0])
    with pytest.raises(SettingError, match="active set 'pul'"):
        made(people, network, [0], INPUTS, mode="pul")
    with pytest.raises(SettingError, match="threads"):
        made(people, network, [0], INPUTS, threads=0)
