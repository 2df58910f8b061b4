"""The generator: the published figures, the same bits from a seed, any size."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import PopulationError
from hotloop.populations.synthetic import BROOKLYN_AGENTS, BROOKLYN_EDGES, generate
from populations.network_figures import (
    component_sizes,
    degrees,
    percentiles,
    reciprocated_rows,
    repeated_rows,
    transitivity,
)


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
    assert np.bincount(astoria.stages).tolist() == [37_518 - 45, 45]


def test_degrees_of_astoria_are_the_published_ones(astoria):
    out, in_ = degrees(astoria.edges, astoria.size)
    at = [25, 50, 75, 90, 99, 100]
    assert percentiles(out + in_, at) == [2, 6, 10, 18, 34, 74]
    assert percentiles(out, [50, 90, 99, 100]) == [1, 11, 27, 73]
    assert percentiles(in_, [50, 90, 99, 100]) == [3, 8, 15, 36]
    assert (out + in_).mean() == pytest.approx(7.27, abs=0.005)


def test_ages_of_astoria_have_the_published_shares(astoria):
    shares = np.bincount(astoria.columns["age"]) / astoria.size
    assert shares == pytest.approx([0.179, 0.309, 0.153, 0.124, 0.104, 0.132], abs=0.001)


def test_edges_join_ages_at_random(astoria):
    ages = astoria.columns["age"][astoria.edges]
    assert (ages[:, 0] == ages[:, 1]).mean() == pytest.approx(0.194, abs=0.01)


def test_the_network_is_nearly_a_tree_and_seldom_reciprocated(astoria):
    assert 0.0003 < transitivity(astoria.edges) < 0.0011
    assert reciprocated_rows(astoria.edges, astoria.size) < 100


def test_ids_say_nothing_about_contacts(astoria):
    apart = np.abs(astoria.edges[:, 0] - astoria.edges[:, 1]).mean() / astoria.size
    assert apart == pytest.approx(1 / 3, abs=0.01)  # two uniform numbers
    out, _ = degrees(astoria.edges, astoria.size)
    assert abs(np.corrcoef(out, np.arange(astoria.size))[0, 1]) < 0.03


def test_a_seed_gives_the_same_arrays_on_every_machine():
    data = generate(37_518, 3)
    digest = hashlib.sha256()
    for array in (data.columns["age"], data.edges, data.stages):
        digest.update(np.ascontiguousarray(array).tobytes())
    assert digest.hexdigest()[:16] == "2e9e1fb94bcb4056"


def test_seeds_differ_in_everything_but_the_counts():
    one, two = generate(5_000, 1), generate(5_000, 2)
    assert not np.array_equal(one.edges, two.edges)
    assert not np.array_equal(one.columns["age"], two.columns["age"])
    assert not np.array_equal(one.stages, two.stages)
    for here, there in zip(degrees(one.edges, 5_000), degrees(two.edges, 5_000), strict=True):
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
    assert ((out + in_).max(), out.max(), in_.max()) == (74, 73, 36)
    assert (data.edges[:, 0] == data.edges[:, 1]).sum() == round(6 * size / 37_518)
    assert percentiles(out + in_, [25, 50, 75, 90, 99]) == [2, 6, 10, 18, 34]


def test_more_edges_are_more_agents_with_contacts():
    few, many = generate(10_000, num_edges=20_000), generate(10_000, num_edges=40_000)
    assert (len(few.edges), len(many.edges)) == (20_000, 40_000)
    assert len(np.unique(few.edges)) < len(np.unique(many.edges))


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 400), seed=st.integers(0, 2**70))
def test_any_small_size_is_a_population(size, seed):
    data = generate(size, seed)
    assert data.size == size
    assert repeated_rows(data.edges, size) == 0
    assert np.array_equal(data.edges, data.edges[np.lexsort(data.edges.T[::-1])])
    assert 1 <= data.stages.sum() <= size
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
