"""The record that every source returns: what it takes, and what it refuses with which words."""

import sys

import numpy as np
import pytest

from hotloop.errors import PopulationError
from hotloop.populations import PopulationData
from hotloop.populations.data import whole_numbers

AGES = np.array([0, 1, 2, 5])


def test_columns_stay_as_they_are_and_edges_become_small():
    data = PopulationData(
        "four",
        {"wealth": AGES.astype(float), "area": np.array(list("abca"))},
        edges=np.array([[0, 1], [3, 2]]),
        periods=(np.array([[1, 1]], np.int64),),
    )
    assert (data.size, data.num_edges) == (4, 2)
    assert data.columns["wealth"].dtype == np.float64
    assert data.columns["wealth"].tolist() == [0, 1, 2, 5]
    assert data.columns["area"].tolist() == ["a", "b", "c", "a"]
    assert data.edges.dtype == np.int32
    assert data.periods[0].tolist() == [[1, 1]]
    assert repr(data) == "PopulationData('four', 4 agents, 2 edges, columns wealth, area)"


def test_a_network_may_be_missing():
    data = PopulationData("four", {"age": AGES})
    assert (data.edges, data.periods, data.num_edges) == (None, (), 0)


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
        ({"columns": {}}, "expected at least one column, .* got none; add one"),
        ({"columns": {"age": AGES[:0]}}, "'age' is empty; a population needs agents"),
        ({"columns": {"age": np.array(3)}}, "'age' is empty; a population needs agents"),
        ({"columns": {"age": AGES, "area": AGES[:3]}}, "column 'area': .* 4 agents .* got 3 val"),
        ({"columns": {"age": AGES.reshape(2, 2)}}, r"column 'age': .* the shape \(2, 2\)"),
        ({"edges": np.array([[0, 1], [0, 4]])}, r"edges: row 1 \(0,4\): .* no agent 4; .* 0 to 3"),
        ({"edges": np.array([[-1, 1]])}, r"edges: row 0 \(-1,1\): there is no agent -1"),
        ({"edges": np.array([[0, 2**40]])}, "there is no agent 1099511627776"),
        ({"edges": np.zeros((2, 3), int)}, r"edges: expected the shape \(E, 2\).* got \(2, 3\)"),
        ({"edges": np.zeros((2, 2))}, "edges: expected whole numbers .* float64"),
        ({"periods": (np.array([[0, 9]]),)}, r"periods\[0\]: row 0 \(0,9\)"),
    ],
)
def test_invalid_data_are_refused_with_column_and_row(parts, message):
    with pytest.raises(PopulationError, match=message):
        PopulationData("four", **{"columns": {"age": AGES}, **parts})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (AGES - 1, r"here: row 0: expected whole numbers from 0 to 255, got -1 \(1 such of 4"),
        (AGES * 100, "here: row 3: .* got 500 .*; correct or drop"),
        (np.array([0, np.nan, 1]), "here: row 1: .* got nan"),
        (np.array([0, np.inf, 1]), "here: row 1: .* got inf"),
        (np.array([0, 1, 1.5]), "here: row 2: .* got 1.5"),
        (np.array(["U19"]), "here: .* got the type <U3"),
    ],
)
def test_values_that_are_no_small_whole_numbers_are_refused_with_the_row(values, message):
    with pytest.raises(PopulationError, match=message):
        whole_numbers(values, 255, "here")
    assert whole_numbers(AGES * 1.0, 255, "here").dtype == np.uint8


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
    size = 1_000_000
    ages, edges = np.zeros(size, np.uint8), np.zeros((size, 2), np.int32)
    count = instructions_of(lambda: PopulationData("many", {"age": ages}, edges))
    # Not an exact number: the garbage collector may run somebody's finalizer in between.
    assert 100 < count < size / 10
