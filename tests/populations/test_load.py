"""One call for every source, and a nearest name for every slip."""

import subprocess
import sys
import types

import numpy as np
import pytest

from hotloop.errors import PopulationError
from hotloop.populations import PopulationData, astoria, brooklyn, load
from hotloop.populations.direction import is_acyclic


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HOTLOOP_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "town").mkdir()
    np.array([0, 1, 2]).dump(tmp_path / "town" / "age.pickle")
    return tmp_path / "town"


@pytest.mark.parametrize(
    "source", [astoria, "astoria", " Astoria ", "37518", 37518, "37_518", np.int32(37518)]
)
def test_astoria_by_any_of_its_names(source):
    data = load(source, seed=1)
    assert (data.size, data.num_edges) == (37_518, 136_378)
    assert np.array_equal(data.edges, astoria.load(seed=1).edges)


def test_sources_have_names():
    assert load("astoria").name == "astoria"
    assert load(500).name == "synthetic-500"
    assert brooklyn.NAME == "brooklyn"


def test_the_seed_counts():
    assert not np.array_equal(load(500, seed=1).edges, load(500, seed=2).edges)


def test_drawn_contacts_are_read_one_way_without_a_warning(caplog):
    one_way, both_ways = load(2_000), load(2_000, both_ways=True)
    assert not caplog.records
    assert is_acyclic(one_way.edges, one_way.size)
    assert not is_acyclic(both_ways.edges, both_ways.size)
    loops = int((one_way.edges[:, 0] == one_way.edges[:, 1]).sum())
    assert both_ways.num_edges == 2 * one_way.num_edges - loops


def test_a_population_is_returned_as_it_is():
    data = PopulationData("one", {"age": np.zeros(1, np.uint8)})
    assert load(data) is data


def test_folders_as_path_text_and_package(folder, monkeypatch):
    package = types.ModuleType("town")
    package.__path__ = [str(folder)]
    module = types.ModuleType("mayor")
    module.__file__ = str(folder / "mayor.py")
    monkeypatch.chdir(folder.parent)
    for source in (folder, str(folder), "town", "./town", package, module):
        data = load(source)
        assert (data.name, data.columns["age"].tolist()) == ("town", [0, 1, 2])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("astria", "population 'astria': expected a name, .* did you mean 'astoria'"),
        ("Bruklyn", "did you mean 'brooklyn'"),
        ("zzz", "there is 'astoria', 'brooklyn'"),
        ("", "expected a name"),
        ("-5", "expected a name, a number of agents or a folder"),
        (0, "num_agents: expected a whole number from 1"),
        (-3, "num_agents: .* got -3"),
        (True, "got True of type bool"),
        (2.5, "got 2.5 of type float"),
        (None, "got None of type NoneType"),
        ("/no/such/folder", "'/no/such/folder': expected a folder, got nothing there"),
        (types.ModuleType("bare"), "expected a package whose folder .* got 'bare'"),
    ],
)
def test_an_unknown_source_is_refused_with_the_known_ones(source, message):
    with pytest.raises(PopulationError, match=message):
        load(source)


def with_network(folder, rows):
    (folder / "networks").mkdir(exist_ok=True)
    np.savetxt(folder / "networks" / "0.csv", rows, "%d", ",")
    return folder


def a_town(tmp_path, size=60):
    """Agents of whom each reaches the next five: no cycle, and no contact in both directions."""
    town = tmp_path / "town"
    town.mkdir()
    np.zeros(size, np.int64).dump(town / "age.pickle")
    return town, [(k, k + step) for k in range(size - 5) for step in range(1, 6)]


def test_a_network_that_seems_to_have_each_contact_once_is_warned_of(tmp_path, caplog):
    town, rows = a_town(tmp_path)
    data = load(with_network(town, rows))
    assert data.edges.tolist() == [list(row) for row in rows], "as it is written"
    (message,) = caplog.messages
    assert "'town': 0% of the rows" in message
    assert "has no cycle" in message
    assert "both_ways=True" in message
    caplog.clear()
    load(with_network(town, [*rows, (55, 59)]))
    assert "has cycles" not in caplog.text, "nobody is reached by the last one"
    caplog.clear()
    load(with_network(town, [*rows, (54, 0)]))
    assert "has cycles" in caplog.text
    caplog.clear()
    load(with_network(town, [*rows, *((b, a) for a, b in rows[::10])]))
    load(with_network(town, rows), both_ways=False)
    assert not caplog.messages, "nothing to be told where some are there both ways, or it was said"


def test_both_ways_takes_every_contact_once_in_each_direction(tmp_path, caplog):
    town, rows = a_town(tmp_path)
    every = sorted({*rows, *((b, a) for a, b in rows), (7, 7)})
    for given in ([*rows, (7, 7)], [*rows, rows[3], (rows[5][1], rows[5][0]), (7, 7)]):
        data = load(with_network(town, given), both_ways=True)
        assert sorted(map(tuple, data.edges.tolist())) == every
    assert not caplog.messages
    drawn = load(500, seed=2)
    both = load(drawn, both_ways=True)
    assert both.edges.dtype == np.int32
    assert {*map(tuple, drawn.edges)} <= {*map(tuple, both.edges)}
    assert np.array_equal(load(500, seed=2, both_ways=True).edges, both.edges)
    alone = PopulationData("one", {"age": np.zeros(1, np.uint8)})
    assert load(alone, both_ways=True).edges is None


def test_periods_of_what_has_none_are_refused():
    with pytest.raises(PopulationError, match="periods: expected a folder"):
        load(500, periods=True)


def test_a_file_is_no_folder(folder):
    with pytest.raises(PopulationError, match="expected a folder, got a file; give the folder"):
        load(folder / "age.pickle")


def test_importing_populations_loads_nothing_heavy():
    code = (
        "import sys; from hotloop.populations import astoria, brooklyn, load;"
        "print([name for name in ('torch', 'pandas', 'pyarrow', 'numba') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
