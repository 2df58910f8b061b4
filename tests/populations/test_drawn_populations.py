"""The generator: the published figures, the same bits from a seed, any size."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import PopulationError
from hotloop.populations.direction import is_acyclic
from hotloop.populations.synthetic import BROOKLYN_AGENTS, BROOKLYN_EDGES, draw_marked, generate
from populations.network_figures import (
    component_sizes,
    degrees,
    longest_chain,
    percentiles,
    reached,
    repeated_rows,
    transitivity,
)
from support.often import examples


@pytest.fixture(scope="module", params=[0, 7])
def astoria(request):
    return generate(37_518, request.param)


def test_counts_of_astoria_are_exact(astoria):
    edges = astoria.edges
    assert astoria.size == 37_518
    assert edges.shape == (136_378, 2)
    assert edges.dtype == np.int32
    assert edges.max() == 37_515
    assert (edges[:, 0] == edges[:, 1]).sum() == 6
    assert repeated_rows(edges, astoria.size) == 0
    out, in_ = degrees(edges, astoria.size)
    assert (out + in_ == 0).sum() == 6_480
    assert component_sizes(edges, astoria.size) == [31_038]
    assert np.bincount(astoria.columns["stage"]).tolist() == [37_518 - 45, 45]


def test_no_row_of_astoria_leads_back(astoria):
    assert is_acyclic(astoria.edges, astoria.size)


def test_degrees_of_astoria_are_the_published_ones(astoria):
    out, in_ = degrees(astoria.edges, astoria.size)
    assert percentiles(out + in_, [25, 50, 75, 90, 99, 100]) == [2, 6, 10, 18, 34, 74]
    assert percentiles(out, [50, 90, 99]) in ([1, 11, 26], [1, 11, 27])
    assert percentiles(in_, [50, 90, 99]) == [3, 8, 15]
    assert 45 <= out.max() <= 74  # 73 in Astoria
    assert 25 <= in_.max() <= 60  # 36 in Astoria
    assert (out + in_).mean() == pytest.approx(7.27, abs=0.005)


def test_outgoing_and_incoming_contacts_go_together_as_in_astoria(astoria):
    out, in_ = degrees(astoria.edges, astoria.size)
    assert np.corrcoef(out, in_)[0, 1] == pytest.approx(0.293, abs=0.015)
    published = {  # degree: mean and deviation of the out-degree
        2: (0.22, 0.41),
        4: (1.00, 1.01),
        6: (2.08, 1.60),
        8: (3.22, 2.09),
        12: (6.03, 2.99),
        16: (9.32, 3.74),
        24: (16.2, 4.61),
        32: (23.2, 6.00),
    }
    for degree, (mean, deviation) in published.items():
        of_degree = out[out + in_ == degree]
        error = deviation / np.sqrt(len(of_degree))
        assert of_degree.mean() == pytest.approx(mean, abs=7 * error)
        assert of_degree.std() == pytest.approx(deviation, rel=0.25)


@pytest.mark.long
def test_the_order_of_astoria_is_kept(astoria):
    out, _ = degrees(astoria.edges, astoria.size)
    source, target = astoria.edges[astoria.edges[:, 0] != astoria.edges[:, 1]].T
    assert out[source].mean() == pytest.approx(12.8, abs=0.3)
    assert out[target].mean() == pytest.approx(5.22, abs=0.2)
    assert 600 < longest_chain(astoria.edges, astoria.size) < 1_100  # 827 in Astoria
    starts = np.random.default_rng(0).choice(np.unique(astoria.edges), 300, replace=False)
    numbers = reached(astoria.edges, astoria.size, starts)
    assert 4_300 < np.mean(numbers) < 7_000  # 5,695 in Astoria
    assert np.percentile(numbers, 50) < 100  # half of the agents infect next to nobody


def test_ages_of_astoria_have_the_published_shares_and_contacts(astoria):
    ages = astoria.columns["age"]
    assert np.bincount(ages) / ages.size == pytest.approx(
        [0.179, 0.309, 0.153, 0.124, 0.104, 0.132], abs=0.001
    )
    contacts = sum(degrees(astoria.edges, astoria.size))
    halves = [contacts[ages == age] / 2 for age in range(6)]
    alone = [int((half == 0).sum()) for half in halves]
    assert alone == [1085, 1824, 876, 710, 757, 1228]
    assert [half.mean() for half in halves] == pytest.approx(
        [4.06, 3.98, 4.02, 3.97, 3.00, 1.97], rel=0.03
    )
    assert [half.std() for half in halves] == pytest.approx(
        [4.04, 3.97, 4.01, 3.92, 3.02, 1.96], rel=0.03
    )


def test_edges_join_ages_by_their_contacts_alone(astoria):
    ages = astoria.columns["age"][astoria.edges]
    assert (ages[:, 0] == ages[:, 1]).mean() == pytest.approx(0.214, abs=0.005)


def test_the_network_is_nearly_a_tree(astoria):
    assert 0.0003 < transitivity(astoria.edges) < 0.0011


def test_the_exposed_have_as_many_outgoing_contacts_as_in_astoria(astoria):
    out, in_ = degrees(astoria.edges, astoria.size)
    exposed = astoria.columns["stage"] == 1
    assert (out + in_ == 0)[exposed].sum() == 11
    counts = np.histogram(out[exposed], [0, 1, 2, 4, 7, 10, 20, 75])[0]
    assert counts.tolist() == [11 + 8, 5, 7, 7, 3, 3, 1]
    assert out[exposed].mean() == pytest.approx(3.44, abs=0.7)


def test_the_exposed_of_any_network_are_drawn_by_group_and_evenly():
    # A star: the groups of 2 to 3 and of 7 to 9 outgoing contacts, of which one each is wanted
    # here, have nobody; anybody takes their place.
    star = np.array([[0, agent] for agent in range(1, 1_000)])
    drawn = np.array([draw_marked(star, 3_000, seed) for seed in range(600)])
    assert (drawn.sum(axis=1) == 4).all()
    assert (drawn[:, 1:1_000].sum(axis=1) >= 1).all()
    assert (drawn[:, 1_000:].sum(axis=1) >= 1).all()
    times = drawn.sum(axis=0)
    assert times[1:1_000].mean() == pytest.approx(600 * (1 + 2 / 3) / 999, rel=0.1)
    assert times.max() < 10
    assert np.array_equal(draw_marked(star, 3_000, 5), drawn[5])


def test_ids_say_nothing_about_contacts(astoria):
    apart = np.abs(astoria.edges[:, 0] - astoria.edges[:, 1]).mean() / astoria.size
    assert apart == pytest.approx(1 / 3, abs=0.01)  # two uniform numbers
    out, _ = degrees(astoria.edges, astoria.size)
    assert abs(np.corrcoef(out, np.arange(astoria.size))[0, 1]) < 0.03


def test_a_seed_gives_the_same_arrays_on_every_machine():
    data = generate(37_518, 3)
    digest = hashlib.sha256()
    for array in (data.columns["age"], data.edges, data.columns["stage"]):
        digest.update(np.ascontiguousarray(array).tobytes())
    assert digest.hexdigest()[:16] == "fcfc409dac8d9b8e"


def test_seeds_differ_in_everything_but_the_counts():
    one, two = generate(5_000, 1), generate(5_000, 2)
    assert not np.array_equal(one.edges, two.edges)
    assert not np.array_equal(one.columns["age"], two.columns["age"])
    assert not np.array_equal(one.columns["stage"], two.columns["stage"])
    here, there = sum(degrees(one.edges, 5_000)), sum(degrees(two.edges, 5_000))
    assert sorted(here) == sorted(there)


@pytest.mark.parametrize("size", [1_000, 1_001, 12_345, 300_000])
def test_other_sizes_keep_the_proportions(size):
    data = generate(size)
    rows = round(size * 136_378 / 37_518)
    assert len(data.edges) == rows
    assert repeated_rows(data.edges, size) == 0
    out, in_ = degrees(data.edges, size)
    connected = int((out + in_ > 0).sum())
    assert connected == pytest.approx(size * 31_038 / 37_518, abs=1)
    assert component_sizes(data.edges, size) == [connected]
    assert (out + in_).max() == 74
    assert is_acyclic(data.edges, size)
    assert (data.edges[:, 0] == data.edges[:, 1]).sum() == round(6 * size / 37_518)
    assert percentiles(out + in_, [25, 50, 75, 90, 99]) == [2, 6, 10, 18, 34]


def test_more_edges_are_more_agents_with_contacts():
    few, many = generate(10_000, num_edges=20_000), generate(10_000, num_edges=40_000)
    assert (len(few.edges), len(many.edges)) == (20_000, 40_000)
    assert len(np.unique(few.edges)) < len(np.unique(many.edges))


@settings(max_examples=examples(60))
@given(size=st.integers(1, 400), seed=st.integers(0, 2**70))
def test_any_small_size_is_a_population(size, seed):
    data = generate(size, seed)
    assert data.size == size
    assert repeated_rows(data.edges, size) == 0
    assert is_acyclic(data.edges, size)
    assert np.array_equal(data.edges, data.edges[np.lexsort(data.edges.T[::-1])])
    assert 1 <= data.columns["stage"].sum() <= size
    if size >= 150:
        assert len(data.edges) == round(size * 136_378 / 37_518)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_agents": 0}, "num_agents: expected a whole number from 1 .* got 0"),
        ({"num_agents": -5}, "num_agents: .* got -5"),
        ({"num_agents": 2.5}, "num_agents: .* got 2.5"),
        ({"num_agents": True}, "num_agents: .* got True"),
        ({"num_agents": 10**9}, "num_agents: .* to 500000000, got 1000000000"),
        ({"num_agents": 100, "seed": -1}, "seed: expected a whole number from 0, got -1"),
        ({"num_agents": 100, "num_edges": 10_000}, "num_edges: expected at most 439 .* fewer"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(PopulationError, match=message):
        generate(**settings)


@pytest.mark.slow
def test_brooklyn_is_exact_too():
    data = generate(BROOKLYN_AGENTS, num_edges=BROOKLYN_EDGES)
    assert (data.size, len(data.edges)) == (2_700_000, 9_900_000)
    assert repeated_rows(data.edges, data.size) == 0
    out, in_ = degrees(data.edges, data.size)
    assert percentiles(out + in_, [25, 50, 75, 90, 99, 100]) == [2, 6, 10, 18, 34, 74]
    connected = int((out + in_ > 0).sum())
    assert component_sizes(data.edges, data.size) == [connected]
    assert is_acyclic(data.edges, data.size)
