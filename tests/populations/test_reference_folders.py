"""The reference's own population folders, where they are at hand, and a made one of their layout.

Nothing of the reference's is part of this repository, only counts of its rows.
"""

import numpy as np
import pytest

from hotloop.errors import ConfigError, PopulationError
from hotloop.models.epidemic import covid
from hotloop.models.epidemic.covid.env import ClosureSettings, covid_vector_env
from hotloop.populations import load
from hotloop.populations.ages import AGE_CODES
from hotloop.populations.direction import is_acyclic, reciprocity
from hotloop.sim import Executor, LoadPopulation, create
from support.reference import named

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
town_folder = pytest.importorskip("support.town_folder")

SIZE, PEOPLE = 630, town_folder.PEOPLE
AGENTS = {
    "NYC": 2_712_360,
    "NZ": 1_646,
    "all_county_mix": 541_516,
    "astoria": 37_518,
    "mock_test_18": 18,
    "sample": 1_000,
    "sample2": 1_000,
}
NETWORKS = {"astoria": 136_378, "mock_test_18": 31, "sample": 2_865, "sample2": 2_939}
EXPOSED = {"astoria": 45, "mock_test_18": 0, "sample": 40, "sample2": 40}
YOUNG = {"NYC": 674_671, "NZ": 425, "all_county_mix": 112_017, "astoria": 4_941}


@pytest.fixture
def town(tmp_path):
    return town_folder.write_town(tmp_path / "town")


# --- the reference's own -------------------------------------------------------------------------


@pytest.mark.parametrize("name", AGENTS)
def test_each_folder_of_the_reference_loads(name, caplog):
    for folder in named(name):
        caplog.clear()
        loader = LoadPopulation(str(folder))
        assert loader.population_size == AGENTS[name]
        data = loader.data
        assert data.num_edges == NETWORKS.get(name, 0)
        assert ("stage" in data.columns) == (name in EXPOSED)
        if "stage" in data.columns:
            assert np.bincount(data.columns["stage"], minlength=5)[1:].tolist() == [
                EXPOSED[name],
                0,
                0,
                0,
            ]
        if name in YOUNG:
            assert (data.columns["age"] == AGE_CODES["u19"]).sum() == YOUNG[name]
        assert data.columns["age"].max() < len(AGE_CODES)
        alone = [text for text in caplog.messages if "the network is 0.csv; 1.csv" in text]
        assert len(alone) == (name in NETWORKS)
        once = [text for text in caplog.messages if "may have each contact once" in text]
        assert len(once) == (data.num_edges > 100)
        left_out = " ".join(text for text in caplog.messages if "left out" in text)
        for path in (*folder.glob("*.pickle"), *folder.glob("*.pkl")):
            told = f"{path}: " in left_out
            assert told != (path.stem in data.columns), "a column, or told that it is none"


def test_columns_of_new_york_that_are_of_other_people_are_named(caplog):
    for folder in named("NYC"):
        caplog.clear()
        assert not {"county", "household"} & set(load(folder).columns)
        assert "column 'county' is left out: it has 541516 values, and there are" in caplog.text


def test_the_reference_by_its_package():
    package = pytest.importorskip("agent_torch.populations.astoria", exc_type=ImportError)
    assert LoadPopulation(package).population_size == AGENTS["astoria"]


def test_the_references_astoria_has_each_contact_once_and_one_network_only():
    for folder in named("astoria"):
        data = load(folder)
        assert data.periods == ()
        assert reciprocity(data.edges, data.size) == 0
        assert is_acyclic(data.edges, data.size)
        taking_turns = load(folder, periods=True)
        assert [len(edges) for edges in taking_turns.periods] == [272_654]
        assert np.array_equal(taking_turns.edges, data.edges)


@pytest.mark.parametrize(
    ("both_ways", "days", "published", "spread"),
    [(False, 21, 477, 60), (False, 100, 4263, 900), (True, 21, 6677, 500), (True, 100, 28103, 150)],
)
def test_the_references_astoria_gives_the_published_infections(both_ways, days, published, spread):
    """Means of 64 runs; a run's own deviation is 87, 1600, 540 and 40."""
    for folder in named("astoria"):
        loader = LoadPopulation(folder, both_ways=both_ways)
        runner = create(covid, loader, num_steps=days, replicates=64, device="cpu")
        runner.step(days)
        infected = runner.state["environment/daily_infected"].sum(-1)
        assert infected.mean().item() == pytest.approx(published, abs=spread)


def test_the_references_new_york_runs_on_a_drawn_network():
    for folder in named("NYC"):
        runner = create(covid, LoadPopulation(folder, draw_network=True), device="cpu")
        runner.step(3)
        assert runner.state.size("citizens") == AGENTS["NYC"]
        assert runner.state["environment/daily_infected"][:3].sum() > 0


# --- a made folder of the same layout ------------------------------------------------------------


def test_a_folder_of_that_layout_holds_what_was_planted(town, caplog):
    data = load(town, both_ways=False)
    assert list(data.columns) == ["age", "gender", "hobby", "stage"]
    assert data.columns["age"].tolist() == [PEOPLE[k % 21] for k in range(SIZE)]
    assert data.columns["hobby"].tolist() == [f"H{k % 3}" for k in range(SIZE)]
    assert data.edges.tolist() == town_folder.contacts(SIZE).tolist()
    assert np.flatnonzero(data.columns["stage"]).tolist() == list(town_folder.EXPOSED)
    told = sorted(text.removeprefix(str(town)) for text in caplog.messages)
    assert [text.partition(" ")[0] for text in told] == [
        "/county.pickle:",
        "/household.pkl:",
        "/mobility_networks:",
        "/monthly_claims.pkl:",
    ]


@pytest.mark.parametrize("labels", [town_folder.LABELS, town_folder.CHILDREN_FIRST])
def test_the_same_people_under_other_codes_are_the_same(tmp_path, labels):
    data = load(town_folder.write_town(tmp_path / "town", labels=labels), both_ways=False)
    for k, person in enumerate(PEOPLE):
        code = AGE_CODES[town_folder.LABELS[person].casefold()]
        assert (data.columns["age"][k::21] == code).all()
    runner = create(covid, data, device="cpu", seed=4)
    runner.step(21)
    plain = load(town_folder.write_town(tmp_path / "plain"), both_ways=False)
    other = create(covid, plain, device="cpu", seed=4)
    other.step(21)
    path = "environment/daily_infected"
    assert runner.state[path].tolist() == other.state[path].tolist()
    assert runner.state[path].sum() > 10


@pytest.mark.parametrize("labels", [town_folder.LABELS, town_folder.CHILDREN_FIRST])
def test_closing_schools_closes_those_that_the_folder_calls_u19(tmp_path, labels):
    """At an R that catches everybody, all those whose contacts are closed are spared: so many."""
    data = load(town_folder.write_town(tmp_path / "town", labels=labels), both_ways=True)
    envs = covid_vector_env(
        data,
        8,
        task=ClosureSettings(school_contacts_left=0.0, days_per_action=60),
        covid=covid.CovidSettings(num_steps=60, r_by_week=(90.0,)),
        autoreset_mode="disabled",
    )
    spared = []
    for closed in (0, 1):
        envs.reset(seed=3)
        observation, *_ = envs.step(np.tile([closed, 0], (8, 1)))
        spared.append(observation[:, 0])
    envs.close()
    young = town_folder.PEOPLE.count(5) / len(town_folder.PEOPLE)
    assert spared[0].max() < 0.02
    assert spared[1] == pytest.approx(young, abs=0.02)


def test_a_network_is_drawn_where_there_is_none_and_only_there(town):
    with pytest.raises(PopulationError, match=r"'town': draw_network: it has a network of 3705"):
        load(town, draw_network=True)
    for file in (town / "mobility_networks").iterdir():
        file.unlink()
    (town / "mobility_networks").rmdir()
    alone = load(town)
    assert alone.edges is None
    with pytest.raises(ConfigError, match=r"'town' has no edges; .*draw_network=True"):
        Executor(covid, alone).init()
    data = load(town, draw_network=True, seed=3)
    assert np.array_equal(data.edges, load(SIZE, seed=3).edges)
    assert not np.array_equal(data.edges, load(town, draw_network=True, seed=4).edges)
    assert np.array_equal(data.columns["age"], alone.columns["age"])
    both = LoadPopulation(town, draw_network=True, both_ways=True, seed=3).data
    assert reciprocity(both.edges, both.size) == 1
    runner = create(covid, data, device="cpu")
    runner.step(21)
    assert runner.state["environment/daily_infected"].shape == (21,)
