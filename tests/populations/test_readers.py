"""Folders of plain tables, and every fault of one reported with file and line."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import PopulationError
from hotloop.populations import load
from hotloop.populations.readers import read_folder
from hotloop.populations.rows import read_numbers
from support.often import examples

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

AGES = [0, 1, 2, 5]


def test_one_parquet_table_with_edges(tmp_path):
    table = pd.DataFrame({"age": AGES, "income": [1.5, 2, 3, 4], "stage": [0, 1, 0, 0]})
    table.index = [4, 3, 2, 1]
    table.to_parquet(tmp_path / "agents.parquet")
    edges = pd.DataFrame({"weight": [1.0, 2], "target": [1, 2], "source": [0, 3]})
    edges.to_parquet(tmp_path / "edges.parquet")
    data = read_folder(tmp_path)
    assert list(data.columns) == ["age", "income", "stage"]
    assert data.columns["stage"].tolist() == [0, 1, 0, 0]
    assert data.edges.tolist() == [[0, 1], [3, 2]]


def test_csv_tables(tmp_path):
    pd.DataFrame({"age": ["20t29", "u19", "65A", "3"], "area": list("abca")}).to_csv(
        tmp_path / "agents.csv", index=False
    )
    pd.DataFrame({"src": [0, 3], "dst": [1, 2]}).to_csv(tmp_path / "edges.csv")  # with its index
    data = read_folder(tmp_path)
    assert data.columns["age"].tolist() == ["20t29", "u19", "65A", "3"]
    assert data.columns["area"].tolist() == list("abca")
    assert data.edges.tolist() == [[0, 1], [3, 2]]


def test_any_columns_are_read_and_none_is_required(tmp_path):
    pd.DataFrame({"wealth": [1.5, 2, 3, 4]}).to_parquet(tmp_path / "wealth.parquet")
    pd.DataFrame({"any": list("abca")}).to_parquet(tmp_path / "area.parquet")
    data = load(tmp_path)
    assert list(data.columns) == ["area", "wealth"]
    assert (data.size, data.edges) == (4, None)
    pd.DataFrame({"any": [1, 2]}).to_parquet(tmp_path / "short.parquet")
    with pytest.raises(PopulationError, match=r"'short': .* 4 agents of 'area', got 2 values"):
        load(tmp_path)


def test_beside_a_table_of_agents_columns_of_others_are_left_out_and_named(tmp_path, caplog):
    pd.DataFrame({"wealth": [1.5, 2, 3, 4]}).to_parquet(tmp_path / "agents.parquet")
    pd.DataFrame({"any": list("abca")}).to_parquet(tmp_path / "area.parquet")
    pd.DataFrame({"firms": [1, 2], "jobs": [3, 4]}).to_parquet(tmp_path / "a_firm.parquet")
    assert list(load(tmp_path).columns) == ["wealth", "area"]
    first, second = sorted(caplog.messages)
    assert "a_firm.parquet: column 'firms' is left out: it has 2 values, and there are 4" in first
    assert "'jobs'" in second


def test_networks_of_a_folder_take_turns(tmp_path):
    (tmp_path / "agents.csv").write_text("wealth\n1\n2\n3\n")
    (tmp_path / "networks").mkdir()
    (tmp_path / "networks" / "0.csv").write_text("0,1\n")
    (tmp_path / "networks" / "1.csv").write_text("src,dst\n2,1\n")
    data = load(tmp_path, periods=True)
    assert data.edges.tolist() == [[0, 1]]
    assert [edges.tolist() for edges in data.periods] == [[[2, 1]]]


def test_a_folder_without_columns_is_refused(tmp_path):
    with pytest.raises(PopulationError, match=r"expected columns \(agents.parquet.* found none"):
        load(tmp_path)


def test_a_table_with_one_column_twice_is_refused(tmp_path):
    (tmp_path / "agents.csv").write_text("age,area,age\n1,a,2\n")
    with pytest.raises(PopulationError, match=r"agents\.csv: column 'age' is there twice"):
        read_folder(tmp_path)


def test_damaged_tables_are_refused(tmp_path):
    (tmp_path / "agents.csv").write_text("age,area\n1,a\n2\n")
    with pytest.raises(PopulationError, match=r"agents\.csv: cannot be read as CSV.*Row #3"):
        read_folder(tmp_path)
    (tmp_path / "agents.csv").write_text("age,area\n1,a\n2,b")
    with pytest.raises(PopulationError, match=r"agents\.csv: the last row has no line end"):
        read_folder(tmp_path)
    (tmp_path / "agents.csv").write_text("")
    with pytest.raises(PopulationError, match=r"agents\.csv"):
        read_folder(tmp_path)
    (tmp_path / "agents.csv").unlink()
    pd.DataFrame({"age": AGES}).to_parquet(tmp_path / "agents.parquet")
    content = (tmp_path / "agents.parquet").read_bytes()
    (tmp_path / "agents.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(PopulationError, match=r"agents\.parquet: cannot be read as parquet"):
        read_folder(tmp_path)


def test_a_missing_extra_is_reported_with_its_install_command(tmp_path, monkeypatch):
    pd.DataFrame({"age": AGES}).to_parquet(tmp_path / "agents.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(PopulationError, match=r"pip install 'hotloop\[populations\]'"):
        read_folder(tmp_path)


@settings(max_examples=examples(50))
@given(rows=st.lists(st.tuples(st.integers(-(2**31) + 1, 2**31 - 1), st.integers(0, 9))))
def test_any_numbers_come_back(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "rows.csv"
    path.write_text("".join(f"{a},{b}.0\n" for a, b in rows))
    values = read_numbers(path, 2, (1, 0), False)
    assert values.tolist() == [[b, a] for a, b in rows]


@settings(max_examples=examples(300))
@given(text=st.text("0123459,.-+eE \n\tx", max_size=30))
def test_any_text_is_read_as_python_reads_it_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "text.csv"
    path.write_text(text)
    try:
        values = read_numbers(path, 2, (0, 1), False).tolist()
    except PopulationError:
        return
    lines = [line for line in text.split("\n") if line.strip(" ")]
    assert values == [[int(float(c)) for c in re.split("[,\t]", line)] for line in lines]
