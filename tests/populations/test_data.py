"""The record that every source returns: what it takes, and what it refuses with which words."""

import sys

import numpy as np
import pytest

from hotloop.errors import PopulationError
from hotloop.populations import PopulationData

AGES = np.array([0, 1, 2, 5])


def test_columns_become_small_types_and_keep_their_values():
    data = PopulationData(
        "four",
        {"age": AGES.astype(float), "area": np.array(list("abca"))},
        edges=np.array([[0, 1], [3, 2]]),
        stages=np.array([0.0, 1.0, 0.0, 4.0]),
        periods=(np.array([[1, 1]], np.int64),),
    )
    assert (data.size, data.num_edges) == (4, 2)
    assert data.columns["age"].dtype == np.uint8
    assert data.columns["age"].tolist() == [0, 1, 2, 5]
    assert data.columns["area"].tolist() == ["a", "b", "c", "a"]
    assert data.edges.dtype == np.int32
    assert data.stages.dtype == np.uint8
    assert data.periods[0].tolist() == [[1, 1]]
    assert repr(data) == "PopulationData('four', 4 agents, 2 edges, columns age, area)"


def test_network_and_stages_may_be_missing():
    data = PopulationData("four", {"age": AGES})
    assert (data.edges, data.stages, data.periods, data.num_edges) == (None, None, (), 0)


def test_good_columns_are_not_copied():
    ages, edges = np.zeros(4, np.uint8), np.array([[0, 1]], np.int32)
    data = PopulationData("four", {"age": ages}, edges)
    assert np.shares_memory(data.columns["age"], ages)
    assert np.shares_memory(data.edges, edges)


def test_columns_cannot_be_exchanged_afterwards():
    data = PopulationData("four", {"age": AGES})
    with pytest.raises(TypeError):
        data.columns["age"] = AGES


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"columns": {}}, "expected a column 'age', got no column; add one"),
        ({"columns": {"Age": AGES}}, r"expected a column 'age', got \['Age'\]"),
        ({"columns": {"age": AGES[:0]}}, "'age' is empty; a population needs agents"),
        ({"columns": {"age": AGES - 1}}, r"column 'age': row 0: .* 0 to 255, got -1 \(1 such"),
        ({"columns": {"age": AGES * 100}}, "column 'age': row 3: .* got 500"),
        ({"columns": {"age": np.array([0, np.nan, 1])}}, "column 'age': row 1: .* got nan"),
        ({"columns": {"age": np.array([0, np.inf, 1])}}, "column 'age': row 1: .* got inf"),
        ({"columns": {"age": np.array([0, 1, 1.5])}}, "column 'age': row 2: .* got 1.5"),
        ({"columns": {"age": np.array(["U19"])}}, "column 'age': .* got the type <U3"),
        ({"columns": {"age": AGES, "area": AGES[:3]}}, "column 'area': .* 4 agents .* got 3 val"),
        ({"columns": {"age": AGES.reshape(2, 2)}}, r"column 'age': .* the shape \(2, 2\)"),
        ({"stages": np.array([0, 1, 5, 0])}, "stages: row 2: .* from 0 to 4, got 5"),
        ({"stages": np.array([0, -1, 0, 0])}, "stages: row 1: .* got -1"),
        ({"stages": np.array([0, 1])}, "stages: .* 4 agents .* got 2 values"),
        ({"edges": np.array([[0, 1], [0, 4]])}, r"edges: row 1 \(0,4\): .* no agent 4; .* 0 to 3"),
        ({"edges": np.array([[-1, 1]])}, r"edges: row 0 \(-1,1\): there is no agent -1"),
        ({"edges": np.array([[0, 2**40]])}, "there is no agent 1099511627776"),
        ({"edges": np.zeros((2, 3), int)}, r"edges: expected the shape \(E, 2\).* got \(2, 3\)"),
        ({"edges": np.zeros((2, 2))}, "edges: expected whole numbers .* float64"),
        ({"periods": (np.array([[0, 9]]),)}, r"periods\[0\]: row 0 \(0,9\)"),
    ],
)
def test_a_population_that_cannot_be_is_refused_with_column_and_row(parts, message):
    with pytest.raises(PopulationError, match=message):
        PopulationData("four", **{"columns": {"age": AGES}, **parts})


def instructions_of(act):
    """Instructions that Python executes: the work inside of NumPy is none."""
    count = 0

    def trace(frame, event, _argument):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def test_agents_are_checked_by_the_column_and_not_one_by_one():
    def check(size):
        ages, edges = np.zeros(size, np.uint8), np.zeros((size, 2), np.int32)
        return instructions_of(lambda: PopulationData("many", {"age": ages}, edges, ages))

    assert 100 < check(1_000_000) == check(1_000)
