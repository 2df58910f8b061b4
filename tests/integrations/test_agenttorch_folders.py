"""Folders in AgentTorch's layout, and every fault of one reported with file and line."""

import json
import pickle
import stat

import numpy as np
import pytest

from hotloop.errors import PopulationError
from hotloop.integrations.agenttorch import is_folder, read_folder
from hotloop.populations import load
from hotloop.populations.ages import AGE_CODES

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

AGES = [0, 1, 2, 5]


@pytest.fixture
def folder(tmp_path):
    """Four agents in the reference's layout."""
    town = tmp_path / "town"
    (town / "mobility_networks").mkdir(parents=True)
    pd.Series(AGES, name="age").to_pickle(town / "age.pickle")
    pd.Series(list("abca"), name="area").to_pickle(town / "area.pickle")
    (town / "mobility_networks" / "0.csv").write_text("0,1\n3,2\n1,1\n")
    (town / "disease_stages.csv").write_text("0.000e+00\n1.000e+00\n0.000e+00\n4.000e+00\n")
    (town / "mapping.json").write_text("{}")
    return town


def test_the_references_layout(folder):
    data = load(folder)
    assert data.name == "town"
    assert list(data.columns) == ["age", "area", "stage"]
    assert data.columns["age"].tolist() == AGES
    assert data.columns["area"].tolist() == list("abca")
    assert data.edges.tolist() == [[0, 1], [3, 2], [1, 1]]
    assert data.columns["stage"].tolist() == [0, 1, 0, 4]
    assert data.periods == ()


def test_more_edge_lists_are_periods_where_that_is_asked_for(folder, caplog):
    for number, row in (("1", "1,0"), ("2", "2,0"), ("10", "3,0")):
        (folder / "mobility_networks" / f"{number}.csv").write_text(row + "\n")
    data = read_folder(folder, periods=True)
    assert len(data.edges) == 3
    assert [edges.tolist() for edges in data.periods] == [[[1, 0]], [[2, 0]], [[3, 0]]]
    assert not caplog.messages
    alone = read_folder(folder)
    assert alone.edges.tolist() == data.edges.tolist()
    assert alone.periods == ()
    (message,) = caplog.messages
    assert "network is 0.csv; 1.csv, 2.csv, 10.csv are left alone: periods=True" in message


def test_columns_in_files_that_end_in_pkl(folder):
    (folder / "age.pickle").rename(folder / "age.pkl")
    assert read_folder(folder).columns["age"].tolist() == AGES


def test_a_column_may_be_there_twice_if_both_are_equal(folder):
    pd.DataFrame({"age": np.array(AGES, np.int8)}).to_parquet(folder / "age.parquet")
    pd.DataFrame({"area": list("abca")}).astype("category").to_parquet(folder / "area.parquet")
    data = read_folder(folder)
    assert data.columns["age"].tolist() == AGES
    assert data.columns["area"].tolist() == list("abca")
    pd.DataFrame({"area": list("abcd")}).to_parquet(folder / "area.parquet")
    with pytest.raises(
        PopulationError, match=r"'area' is also in .*area\.pickle, with other values"
    ):
        read_folder(folder)


def test_nothing_is_written(folder):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode & ~stat.S_IWUSR)
    read_folder(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode | stat.S_IWUSR)


def test_parquet_by_column(folder):
    (folder / "age.pickle").unlink()
    pd.DataFrame({"age": AGES}).to_parquet(folder / "age.parquet")
    (folder / "area.pickle").unlink()
    pd.DataFrame({"whatever": list("abca")}).astype("category").to_parquet(folder / "area.parquet")
    data = read_folder(folder)
    assert data.columns["age"].tolist() == AGES
    assert data.columns["area"].tolist() == list("abca")


def test_a_population_without_network(tmp_path):
    np.array(AGES).dump(tmp_path / "age.pickle")
    assert read_folder(tmp_path).edges is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0,1\n3,2\n", [[0, 1], [3, 2]]),
        ("src,dst\n0,1\n", [[0, 1]]),
        ("dst,src\n0,1\n", [[1, 0]]),
        ("Source, Target\r\n0, 1\r\n", [[0, 1]]),
        ("# src,dst\n0,1\n", [[0, 1]]),
        (",src,dst\n0,3,2\n", [[3, 2]]),
        ("src,note,dst\n0,x y,1\n1,'',2\n", [[0, 1], [1, 2]]),
        ('src,"a,b",dst\n', []),
        ("0\t1\n", [[0, 1]]),
        ("\ufeff0,1\n", [[0, 1]]),
        ("\ufeffsrc,dst\n0,1\n", [[0, 1]]),
        ("0,1\n\n  \n2,3\n\n", [[0, 1], [2, 3]]),
        ("0.0,3.000e+00\n0.2e1,30e-1\n", [[0, 3], [2, 3]]),
        ("+1,-0\n", [[1, 0]]),
        ("src,dst\n", []),
    ],
)
def test_edge_lists_with_and_without_header(folder, text, expected):
    (folder / "mobility_networks" / "0.csv").write_text(text, encoding="utf-8", newline="")
    assert read_folder(folder).edges.tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1\n3,", "line 2: the last row has no line end: the file was cut short; .* got '3,'"),
        ("0,1\n3", "line 2: the last row has no line end"),
        ("0,1\n3,2", "line 2: the last row has no line end: .* fetch or write the file again"),
        ("0,1\n3\n1,1\n", "line 2: there are too few columns; expected 2 columns, got '3'"),
        ("0\n1\n", "line 1: there are too few columns"),
        ("0,1\n1,1,7\n", "line 2: there are too many columns; expected 2 columns, got '1,1,7'"),
        ("0,1\n\n1,x\n", "line 3: expected a whole number; expected 2 columns, got '1,x'"),
        ("src,dst\n0,1\n1,\n", "line 3: expected a whole number"),
        ("0,x\n1,1\n", "line 1: expected a whole number"),
        ("0,1\n1,nan\n", "line 2: expected a whole number"),
        ("0,1\n1,2 3\n", "line 2: expected a whole number"),
        ("0,1\n1,1e\n", "line 2: expected a whole number"),
        ("0,1\n1,1.5\n", "line 2: expected a whole number, with nothing behind the point"),
        ("0,1\n1,1e-3\n", "line 2: .* nothing behind the point"),
        ("0,1\n1,99999999999\n", "line 2: expected a number of at most 2147483647"),
        ("0,1\n1," + "9" * 40 + "\n", "line 2: expected a number of at most"),
        ("0,1\n1,1e400\n", "line 2: expected a number of at most"),
        ("0,1\n1,9\n", r"row 1 \(1,9\): there is no agent 9; expected agents 0 to 3"),
        ("0,1\n-1,2\n", r"row 1 \(-1,2\): there is no agent -1"),
        ("", "the first line is empty"),
        ("a,b,c\n1,2,3\n", "expected one column src and one dst, got 'a', 'b', 'c'; name them"),
        ("worker,firm\n0,1\n", "expected one column src .* got 'worker', 'firm'; .* of agents"),
        ("src,dst,src\n0,1,2\n", "expected one column src .* got 'src', 'dst', 'src'"),
        ("src,source,dst\n0,1,2\n", "expected one column src and one dst"),
    ],
)
def test_a_damaged_network_is_refused_with_its_line(folder, text, message):
    (folder / "mobility_networks" / "0.csv").write_text(text)
    with pytest.raises(PopulationError, match=rf"mobility_networks.0\.csv: {message}"):
        read_folder(folder)


@pytest.mark.parametrize(
    "text",
    [
        "0\n1\n0\n4\n",
        "stage\n0\n1\n0\n4\n",
        ",stage\n0,0\n1,1\n2,0\n3,4\n",
        "0,0.0\n1,1.0\n2,0.0\n3,4.0\n",
        "agent,county,stage\n0,a,0\n1,b,1\n2,c,0\n3,d,4\n",
        "stage,agent\n0,9\n1,9\n0,9\n4,9\n",
    ],
)
def test_stages_with_and_without_header_and_index(folder, text):
    (folder / "disease_stages.csv").write_text(text)
    assert read_folder(folder).columns["stage"].tolist() == [0, 1, 0, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n1\n0\n", "stages: expected one value for each of the 4 agents .* got 3 values"),
        ("0\n1\n0\n7\n", "stages: row 3: expected whole numbers from 0 to 4, got 7"),
        ("0\n1\n-1\n0\n", "stages: row 2: .* got -1"),
        ("0\n1\n0.5\n0\n", "line 3: expected a whole number"),
        ("0\n1\n0\n0", "line 4: the last row has no line end"),
        ("0,0\n2,1\n1,0\n3,4\n", "row 1: expected the agents 0, 1, 2, .* got 2; sort the rows"),
        ("a,b,c\n1,2,3\n", "expected one column of stages, got 3; name one of them 'stage'"),
    ],
)
def test_bad_stages_are_refused(folder, text, message):
    (folder / "disease_stages.csv").write_text(text)
    with pytest.raises(PopulationError, match=rf"disease_stages\.csv: {message}"):
        read_folder(folder)


@pytest.mark.parametrize(
    ("ages", "message"),
    [
        ([0, 1, -2, 3], "'age': row 2: .* got -2"),
        ([0, 1, np.nan, 3], "'age': row 2: .* got nan"),
        ([0, 1, 999, 3], "'age': row 2: .* 0 to 255, got 999"),
        (["U19", "20t29", "teen", "old"], "expected codes 0 to 5 or 20t29, .* got 'old', 'teen'"),
        (["U19", None, "U19", "U19"], "got None"),
        ([f"a{k}" for k in range(20)], r"got 'a0', .*, \.\.\.; replace"),
    ],
)
def test_bad_ages_are_refused(folder, ages, message):
    pd.Series(ages, dtype=object if isinstance(ages[0], str) else None).to_pickle(
        folder / "age.pickle"
    )
    with pytest.raises(PopulationError, match=rf"age\.pickle.*{message}"):
        read_folder(folder)


def test_ages_as_labels_and_categories(folder):
    labels = pd.Series(["20t29", "30t39", "40t49", "U19"], dtype=object)
    for series in (
        labels,
        labels.astype("category"),
        pd.Series(["0", "1", "2", "5"], dtype=object),
    ):
        series.to_pickle(folder / "age.pickle")
        assert read_folder(folder).columns["age"].tolist() == AGES


def test_a_column_of_the_wrong_length_is_left_out_and_named(folder, caplog):
    pd.Series([1, 2, 3]).to_pickle(folder / "region.pickle")
    assert list(read_folder(folder).columns) == ["age", "area", "stage"]
    (message,) = caplog.messages
    assert "region.pickle: column 'region' is left out: it has 3 values, and there" in message


def test_an_empty_population_is_refused(folder):
    pd.Series([], dtype=int).to_pickle(folder / "age.pickle")
    with pytest.raises(PopulationError, match=r"age\.pickle: there is no row"):
        read_folder(folder)


def test_a_folder_without_ages_tells_what_it_found(folder):
    (folder / "age.pickle").unlink()
    with pytest.raises(PopulationError, match=r"expected a column 'age' .* found area"):
        read_folder(folder)


def test_two_places_for_one_thing_are_refused(folder):
    (folder / "edges.csv").write_text("0,1\n")
    with pytest.raises(PopulationError, match=r"several networks: .*mobility_networks.*edges\.csv"):
        read_folder(folder)
    (folder / "edges.csv").unlink()
    pd.Series(AGES).to_pickle(folder / "stage.pickle")
    with pytest.raises(PopulationError, match=r"stages are in .*stage\.pickle and in"):
        read_folder(folder)
    (folder / "stage.pickle").unlink()
    pd.DataFrame({"age": AGES[::-1]}).to_parquet(folder / "age.parquet")
    with pytest.raises(PopulationError, match=r"column 'age' is also in .*age\.pickle"):
        read_folder(folder)


def test_columns_beside_the_ends_of_a_contact_are_named(folder, caplog):
    path = folder / "mobility_networks" / "0.csv"
    path.write_text(",src,dst\n0,3,2\n")
    read_folder(folder)
    assert not caplog.messages, "an index"
    path.write_text("src,weight,dst,day\n3,0.5,2,1\n")
    assert read_folder(folder).edges.tolist() == [[3, 2]]
    (message,) = caplog.messages
    assert "0.csv: 'weight', 'day' are not read: every row is one contact" in message


def test_an_empty_network_folder_is_not_taken_for_no_network(folder):
    (folder / "mobility_networks" / "0.csv").rename(folder / "mobility_networks" / "zero.csv")
    with pytest.raises(PopulationError, match=r"expected edge lists 0\.csv, 1\.csv.* found none"):
        read_folder(folder)


def test_code_in_a_column_is_refused_with_the_file(folder):
    (folder / "area.pickle").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(PopulationError, match=r"area\.pickle: the pickle asks for os\.system"):
        read_folder(folder)


def test_an_edge_table_with_gaps_is_refused(folder):
    (folder / "mobility_networks" / "0.csv").unlink()
    (folder / "mobility_networks").rmdir()
    edges = pd.DataFrame({"src": [0, None], "dst": [1, 2]})
    edges.to_parquet(folder / "edges.parquet")
    with pytest.raises(PopulationError, match=r"edges\.parquet: column 'src': .* whole numbers"):
        read_folder(folder)


def test_a_written_population_is_read_back(tmp_path):
    from hotloop.populations.synthetic import generate

    data = generate(2_000, 4)
    (tmp_path / "networks").mkdir()
    np.savetxt(tmp_path / "networks" / "0.csv", data.edges, delimiter=",")
    np.savetxt(tmp_path / "disease_stages.csv", data.columns["stage"])
    (tmp_path / "age.pickle").write_bytes(pickle.dumps(pd.Series(data.columns["age"])))
    back = read_folder(tmp_path)
    assert np.array_equal(back.edges, data.edges)
    assert np.array_equal(back.columns["stage"], data.columns["stage"])
    assert np.array_equal(back.columns["age"], data.columns["age"])


# --- what other files of a folder say ------------------------------------------------------------


@pytest.mark.parametrize(
    "mapping",
    [
        {"age": ["U19", "20t29", "30t39", "40t49", "50t64", "65A"], "gender": ["f", "m"]},
        {
            "field_sources": {
                "population_fields": {
                    "age": {"categorical": ["u19", "20t29", "30t39", "40t49", "50t64", "65a"]}
                }
            }
        },
    ],
    ids=["older shape", "newer shape"],
)
def test_codes_mean_what_the_folders_mapping_says(folder, mapping):
    (folder / "mapping.json").write_text(json.dumps(mapping))
    given = dict(zip(AGES, ["u19", "20t29", "30t39", "65a"], strict=True))
    expected = [AGE_CODES[given[code]] for code in AGES]
    assert read_folder(folder).columns["age"].tolist() == expected == [5, 0, 1, 4]
    labels = [given[code].upper() for code in AGES]
    pd.Series(labels, dtype=object).to_pickle(folder / "age.pickle")
    assert read_folder(folder).columns["age"].tolist() == expected, "labels need no mapping"


@pytest.mark.parametrize(
    "mapping",
    [
        {"age": ["20t29", "30t39", "40t49", "50t64", "65A", "U19"]},
        {"age": "years"},
        {"field_sources": {"population_fields": {"age": {"source": "age.pickle"}}}},
        ["age"],
    ],
    ids=str,
)
def test_codes_stay_where_the_mapping_is_the_tables_or_silent(folder, mapping, caplog):
    (folder / "mapping.json").write_text(json.dumps(mapping))
    assert read_folder(folder).columns["age"].tolist() == AGES
    assert not caplog.messages


def test_ages_that_the_table_does_not_have_are_named(folder, caplog):
    (folder / "mapping.json").write_text(json.dumps({"age": ["0t4", "5t9", "20t29", 10, "a", "b"]}))
    assert read_folder(folder).columns["age"].tolist() == AGES
    (message,) = caplog.messages
    assert "the ages '0t4', '5t9', '10', 'a', 'b' have no code here, which has 20t29, " in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"age": ["U19", "20t29"]}', r"age\.pickle: column 'age': row 2: code 2 has no label in"),
        ('{"age": []}', r"row 0: code 0 has no label in .*mapping\.json, which has none"),
        ('{"age": ["U19"', r"mapping\.json: expected JSON, .* correct the file or remove it"),
        ("[" * 100_000, r"mapping\.json: expected JSON"),
    ],
    ids=["too short", "empty", "cut", "deep"],
)
def test_an_invalid_mapping_is_refused(folder, text, message):
    (folder / "mapping.json").write_text(text)
    with pytest.raises(PopulationError, match=message):
        read_folder(folder)


def test_tables_of_something_else_are_left_out_and_named(folder, caplog):
    """Households by area, say, whose columns have names that the agents' columns have too."""
    households = pd.DataFrame({"area": ["x", "y"], "people": [10, 20]})
    households.to_pickle(folder / "household.pkl")
    pd.Series([0, 0, 1, 1]).to_pickle(folder / "household.pickle")
    households.to_parquet(folder / "claims.parquet")
    data = read_folder(folder)
    assert list(data.columns) == ["age", "area", "household", "stage"]
    assert data.columns["area"].tolist() == list("abca")
    assert data.columns["household"].tolist() == [0, 0, 1, 1]
    tables = sorted(caplog.messages)
    assert len(tables) == 2
    assert "claims.parquet: left out: a table of 2 rows without a column 'age'" in tables[0]
    assert "household.pkl: left out: it holds a table" in tables[1]


def test_a_table_of_the_agents_under_any_name_is_read(folder):
    pd.DataFrame({"work": [7, 8, 9, 7], "home": [1, 2, 3, 1]}).to_parquet(folder / "extra.parquet")
    assert list(read_folder(folder).columns) == ["age", "area", "work", "home", "stage"]
    (folder / "age.pickle").unlink()
    pd.DataFrame({"age": AGES, "rent": [1.5] * 4}).to_parquet(folder / "population.parquet")
    assert list(read_folder(folder).columns) == ["area", "age", "rent", "work", "home", "stage"]


@pytest.mark.parametrize("name", ["age.pickle", "age.pkl", "age.parquet", "mapping.json"])
def test_a_folder_is_recognised_by_any_of_its_files(tmp_path, name):
    assert not is_folder(tmp_path)
    (tmp_path / "agents.csv").write_text("age\n1\n")
    assert not is_folder(tmp_path), "a plain table"
    (tmp_path / name).touch()
    assert is_folder(tmp_path)
