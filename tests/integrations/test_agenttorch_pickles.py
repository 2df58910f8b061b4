"""Pickles from strangers: plain columns come through, nothing that a pickle names is ever run."""

import collections
import datetime
import functools
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import PopulationError
from hotloop.integrations.agenttorch.safe_pickle import ADMITTED, read_column
from support.often import examples

pd = pytest.importorskip("pandas")


def read(tmp_path, content):
    path = tmp_path / "column.pickle"
    path.write_bytes(content)
    return read_column(path)


SERIES = {
    "int64": lambda: pd.Series([3, 1, 2]),
    "uint8": lambda: pd.Series(np.array([3, 1, 2], np.uint8)),
    "float32": lambda: pd.Series(np.array([0.5, np.nan], np.float32)),
    "bool": lambda: pd.Series([True, False]),
    "named": lambda: pd.Series([3, 1], name="age"),
    "labelled index": lambda: pd.Series([3, 1], index=["b", "a"]),
    "mixed objects": lambda: pd.Series([1, "a", None, 2.5, np.int64(7)], dtype=object),
    "empty": lambda: pd.Series([], dtype=np.int64),
    "slice of a table": lambda: pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]})["b"],
    "text": lambda: pd.Series(["a", "b"], dtype=object),
    "text type": lambda: pd.Series(["a", "b"], dtype="string[python]"),
    "categories": lambda: pd.Series(["U19", "20t29", "U19"], dtype=object).astype("category"),
    "number categories": lambda: pd.Series([30, 20, 30]).astype("category"),
    "nullable, none missing": lambda: pd.Series([1, 2], dtype="Int64"),
    "nullable floats": lambda: pd.Series([1.5, 2.5], dtype="Float64"),
    "nullable flags": lambda: pd.Series([True, False], dtype="boolean"),
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", SERIES)
def test_every_plain_series_comes_through(tmp_path, kind, protocol):
    series = SERIES[kind]()
    values = read(tmp_path, pickle.dumps(series, protocol=protocol))
    expected = series.to_numpy()
    assert type(values) is np.ndarray
    if expected.dtype != object:
        np.testing.assert_array_equal(values, expected)
    assert values.tolist() == expected.tolist() or expected.dtype.kind == "f"


def test_missing_values_stay_missing(tmp_path):
    nullable = read(tmp_path, pickle.dumps(pd.Series([1, None], dtype="Int64")))
    assert nullable[0] == 1
    assert np.isnan(nullable[1])
    labels = read(tmp_path, pickle.dumps(pd.Series(["a", None], dtype=object).astype("category")))
    assert labels.tolist() == ["a", None]
    text = read(tmp_path, pickle.dumps(pd.Series(["a", None], dtype="string[python]")))
    assert text.tolist() == ["a", None]


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("dtype", ["<i4", ">i4", "<f8", "u1", "?", "<U3", "S2"])
def test_numpy_arrays_come_through_in_our_byte_order(tmp_path, dtype, protocol):
    array = np.array([0, 1, 1]).astype(dtype)
    values = read(tmp_path, pickle.dumps(array, protocol=protocol))
    np.testing.assert_array_equal(values, array)
    assert values.dtype.isnative


@settings(max_examples=examples(40))
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1)), protocol=st.integers(2, 5))
def test_any_integers_survive(tmp_path_factory, values, protocol):
    series = pd.Series(values, dtype=np.int64)
    folder = tmp_path_factory.getbasetemp()
    assert read(folder, pickle.dumps(series, protocol=protocol)).tolist() == values


class Calls:
    """Pickles as a call of something."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("function", "args", "name"),
    [
        (os.system, ("touch {}",), "(posix|nt).system"),
        (subprocess.check_output, (["touch", "{}"],), "(subprocess|commands).check_output"),
        (eval, ("open({!r}, 'w')",), "builtin.*eval"),
        (exec, ("open({!r}, 'w')",), "builtin.*exec"),
        (open, ("{}", "w"), "io.open|_io.open"),
        (getattr, (os, "system"), "builtins.getattr|__builtin__.getattr"),
        (pd.read_pickle, ("{}",), "pandas.io.pickle.read_pickle"),
        (pd.eval, ("1",), "pandas.core.computation.eval.eval"),
        (np.load, ("{}",), "numpy.*load"),
        (np.save, ("{}", 1), "numpy.*save"),
        (functools.partial, (len, "x"), "functools.partial"),
        (collections.OrderedDict, (), "collections.OrderedDict"),
    ],
)
def test_code_is_refused_before_it_runs_and_named(tmp_path, function, args, name):
    witness = tmp_path / "witness"
    args = tuple(
        arg.replace("{!r}", repr(str(witness))).replace("{}", str(witness))
        if isinstance(arg, str)
        else [part.replace("{}", str(witness)) for part in arg]
        if isinstance(arg, list)
        else None
        if arg is os
        else arg
        for arg in args
    )
    for protocol in (0, 2, 5):
        content = pickle.dumps([1, Calls(function, *args)], protocol=protocol)
        with pytest.raises(
            PopulationError, match=rf"asks for .*({name}).*pandas and numpy.*Nothing of it was run"
        ):
            read(tmp_path, content)
    assert not witness.exists()


def test_code_within_an_admitted_column_is_refused(tmp_path):
    witness = tmp_path / "witness"
    series = pd.Series([1, Calls(os.system, f"touch {witness}")], dtype=object)
    with pytest.raises(PopulationError, match="system"):
        read(tmp_path, pickle.dumps(series))
    assert not witness.exists()


def test_dotted_names_and_modules_are_refused(tmp_path):
    # STACK_GLOBAL with a dotted name walks attributes: numpy's own modules hold os and sys.
    for module, name in (("numpy", "ndarray.__class__"), ("pandas", "io"), ("numpy", "os.system")):
        content = b"\x80\x04" + b"".join(
            b"\x8c" + struct.pack("<B", len(text)) + text.encode() for text in (module, name)
        )
        with pytest.raises(PopulationError, match=f"asks for {module}.{name}"):
            read(tmp_path, content + b"\x93.")


def test_an_admitted_name_is_never_called_or_changed(tmp_path):
    # BUILD on the class itself would set attributes for the whole process.
    with pytest.raises(PopulationError):
        read(tmp_path, b"cpandas.core.series\nSeries\n(dS'head'\nS'gone'\nsb.")
    with pytest.raises(PopulationError):
        read(tmp_path, b"cpandas.core.series\nSeries\n(N(dS'head'\nS'gone'\nstb.")
    assert callable(pd.Series.head)
    assert all(not name.startswith(("os.", "posix.", "builtins.e")) for name in ADMITTED)


def test_a_forged_dtype_reaches_no_memory(tmp_path):
    class Forged:
        def __reduce__(self):
            return np.dtype, ("V8", False, True), (3, "|", None, ("a",), {"a": 1}, 8, 1, 27)

    class Array:
        def __reduce__(self):
            from numpy._core.multiarray import _reconstruct

            state = 1, (1,), Forged(), False, b"\x00" * 8
            return _reconstruct, (np.ndarray, (0,), b"b"), state

    with pytest.raises(PopulationError, match="values of the type 'V8'"):
        read(tmp_path, pickle.dumps(Array()))


@pytest.mark.parametrize(
    "thing",
    [
        [1, 2],
        {"age": [1]},
        "age",
        None,
        np.zeros((2, 2)),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.zeros(2, [("a", int)]),
    ],
    ids=str,
)
def test_what_is_no_column_is_refused(tmp_path, thing):
    with pytest.raises(PopulationError, match=r"expected a pickled pandas Series .*parquet"):
        read(tmp_path, pickle.dumps(thing))


@pytest.mark.parametrize("thing", [collections.Counter("ab"), datetime.date(2020, 1, 1)], ids=str)
def test_other_classes_are_refused_by_name(tmp_path, thing):
    with pytest.raises(PopulationError, match=f"asks for .*{type(thing).__name__}"):
        read(tmp_path, pickle.dumps(thing))


@pytest.mark.parametrize(
    "table", [{"a": [1]}, {"area": ["x", "y"], "people": [3, 4], "share": [0.5, 1]}], ids=list
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_a_table_is_distinguished_from_a_column(tmp_path, table, protocol):
    assert read(tmp_path, pickle.dumps(pd.DataFrame(table), protocol=protocol)) is None


def test_nothing_in_a_table_is_run_and_code_before_one_is_refused(tmp_path):
    table, code = b"cpandas.core.frame\nDataFrame\n", b"cos\nmkdir\n(S'%s'\ntR"
    made = tmp_path / "made"
    assert read(tmp_path, table + code % str(made).encode() + b".") is None
    with pytest.raises(PopulationError, match=r"asks for os\.mkdir"):
        read(tmp_path, code % str(made).encode() + table + b".")
    assert not made.exists()


@settings(max_examples=examples(300))
@given(data=st.data())
def test_damaged_files_are_reported_as_such(tmp_path_factory, data):
    content = bytearray(pickle.dumps(pd.Series(["a", "b", "a"], dtype="category")))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        read(tmp_path_factory.getbasetemp(), bytes(content))
    except PopulationError:
        pass


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(PopulationError, match=r"none\.pickle: cannot be read"):
        read_column(tmp_path / "none.pickle")


def test_pandas_is_not_needed(tmp_path):
    (tmp_path / "column.pickle").write_bytes(pickle.dumps(pd.Series([4, 2])))
    code = (
        "import sys; from pathlib import Path; sys.modules['pandas'] = None;"
        "from hotloop.integrations.agenttorch.safe_pickle import read_column;"
        "print(read_column(Path('column.pickle')).tolist())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert result.stdout.strip() == "[4, 2]", result.stderr
