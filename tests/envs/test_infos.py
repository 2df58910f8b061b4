"""Infos merged by columns against Gymnasium's own rule, and taken apart again."""

import pickle
from collections import defaultdict
from itertools import chain

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.data.layout import Layout
from hotloop.envs import infos as infos_module
from hotloop.envs.infos import Columns, concat_infos, merge_infos, split_infos, take_infos
from hotloop.envs.vector import Table
from hotloop.errors import ShapeError
from support.often import examples


@pytest.fixture(autouse=True, scope="module")
def _few_infos_are_merged_by_columns_too():
    few, infos_module._FEW = infos_module._FEW, 0
    yield
    infos_module._FEW = few


DTYPES = (np.int8, np.int32, np.int64, np.uint16, np.float16, np.float32, np.float64, np.bool_)


def plain(num_envs, pairs):
    """Gymnasium's rule, pair by pair."""
    env = VectorEnv()
    env.num_envs = num_envs
    infos = {}
    for i, info in pairs:
        infos = env._add_info(infos, info, i)
    return infos


def assert_same(got, expected):
    assert type(got) is type(expected)
    if isinstance(got, dict):
        assert list(got) == list(expected)
        assert list(map(type, got)) == list(map(type, expected))
        for key in got:
            assert_same(got[key], expected[key])
    elif isinstance(got, np.ndarray):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        if got.dtype == object:
            for one, other in zip(got.flat, expected.flat, strict=True):
                assert_same(one, other)
        else:
            np.testing.assert_array_equal(got, expected)
    elif isinstance(got, list | tuple):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    else:
        assert got == expected or (got != got and expected != expected)


def outcome(function, *arguments):
    try:
        return function(*arguments), None
    except Exception as error:
        return None, (type(error), str(error))


def assert_same_outcome(num_envs, pairs):
    got, error = outcome(merge_infos, num_envs, pairs)
    expected, expected_error = outcome(plain, num_envs, pairs)
    assert error == expected_error
    assert_same(got, expected)


scalars = st.one_of(
    st.integers(-5, 5),
    st.sampled_from([2**31, 2**63, -(2**63), 2**64]),
    st.floats(width=32),
    st.booleans(),
    st.builds(lambda kind, x: kind(x), st.sampled_from(DTYPES), st.integers(0, 3)),
    st.sampled_from([1 + 2j, np.complex64(1j), np.datetime64(3, "D"), np.timedelta64(3, "s")]),
)
arrays = st.builds(
    lambda kind, shape, x: np.full(shape, x).astype(kind),
    st.sampled_from((*DTYPES, object, ">i4")),
    st.sampled_from([(), (1,), (2,), (3,), (2, 3)]),
    st.integers(0, 3),
)
others = st.one_of(
    st.text("ab", max_size=2), st.none(), st.lists(st.integers(0, 3), max_size=3), st.just((1, 2))
)
keys = st.sampled_from(["a", "b", "c", "_a", "__a", "final_obs", "final_info"])
odd_keys = st.sampled_from(["a", 1, True, 1.0, None, "_1", np.str_("a")])
values = st.recursive(
    scalars | arrays | others, lambda inner: st.dictionaries(keys, inner, max_size=3), max_leaves=6
)
loose = settings(max_examples=examples(300))


@loose
@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(-1, 4), st.dictionaries(keys, values, max_size=4)), max_size=6),
)
def test_equals_gymnasium_whatever_the_infos_hold(num_envs, pairs):
    assert_same_outcome(num_envs, pairs)


@loose
@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.integers(0, 3), st.dictionaries(odd_keys, scalars, max_size=4)), max_size=6
    ),
)
def test_equals_gymnasium_with_keys_that_are_not_plain_strings(num_envs, pairs):
    assert_same_outcome(num_envs, pairs)


KINDS = {
    "int": st.integers(-5, 5),
    "wide": st.sampled_from([0, 2**62, 2**63]),
    "float": st.floats(),
    "bool": st.booleans(),
    "float32": st.builds(np.float32, st.integers(0, 9)),
    "int64": st.builds(np.int64, st.integers(0, 9)),
    "array": st.builds(lambda x: np.array([x, x]), st.integers(0, 9)),
    "text": st.text("ab", max_size=2),
    "list": st.lists(st.integers(0, 9), max_size=2),
    "none": st.none(),
    "final_obs": st.builds(lambda x: np.array([x, x]), st.integers(0, 9)),
}
same_keys = st.lists(st.sampled_from(list(KINDS)), unique=True, max_size=5).flatmap(
    lambda names: st.lists(
        st.fixed_dictionaries({name: KINDS[name] for name in names}), min_size=1, max_size=5
    )
)


@loose
@given(same_keys, st.booleans())
def test_equals_gymnasium_where_all_infos_are_alike(infos, nest):
    pairs = [(i, {"deep": info, "top": 1} if nest else info) for i, info in enumerate(infos)]
    assert_same_outcome(len(infos), pairs)


@settings(max_examples=examples(200))
@given(same_keys, st.data())
def test_equals_gymnasium_in_same_step(infos, data):
    ended = data.draw(st.lists(st.booleans(), min_size=len(infos), max_size=len(infos)))
    pairs = []
    for i, info in enumerate(infos):
        if ended[i]:
            pairs.append((i, {"final_obs": np.arange(3.0), "final_info": info}))
        pairs.append((i, {"left": 3} if ended[i] else info))
    assert_same_outcome(len(infos), pairs)


@pytest.mark.parametrize(
    "infos",
    [
        [{"x": 1, "_x": True}, {"x": 2, "_x": False}],
        [{"_x": 1.5, "x": 2}, {"_x": 2.5, "x": 3}],
        [{1: 5}, {True: 6}],
        [{"x": {}}, {"x": 0}],
        [{"x": 0}, {"x": {}}],
        [{"x": {"y": 1}}, {"x": None}],
        [{"x": np.array([1, 2])}, {"x": {"y": 1}}],
        [{"x": 1}, {"x": 2.7}],
        [{"x": True}, {"x": 3}],
        [{"x": np.zeros((2, 1))}, {"x": np.ones(1)}],
        [{"final_obs": {"y": 1}}, {"final_obs": 2}],
        [{"x": 1, "y": "a"}, {"x": "b", "y": 2**70}],
    ],
)
def test_equals_gymnasium_in_awkward_cases(infos):
    assert_same_outcome(len(infos), list(enumerate(infos)))
    assert_same_outcome(len(infos), [(i, {"deep": info}) for i, info in enumerate(infos)])


def test_alike_infos_are_taken_as_rows(monkeypatch):
    for other_way in ("_from_keys", "_Gymnasium"):
        monkeypatch.setattr(infos_module, other_way, None)
    assert_same_outcome(2, [(0, {"a": 1, "b": "x"}), (1, {"b": "y", "a": 2})])
    assert_same_outcome(2, [(0, {"a": np.zeros(2)}), (1, {"a": np.ones(2)})])


def test_alike_infos_are_never_added_one_by_one(monkeypatch):
    monkeypatch.setattr(infos_module, "_Gymnasium", None)
    merged = merge_infos(3, [(i, {"lives": i, "nest": {"x": 0.5 * i}}) for i in range(3)])
    assert_same(merged["nest"]["x"], np.array([0.0, 0.5, 1.0]))
    some = merge_infos(3, [(2, {"lives": 4}), (0, {"name": "a"})])
    assert some["_lives"].tolist() == [False, False, True]


def test_few_infos_are_added_one_by_one(monkeypatch):
    monkeypatch.setattr(infos_module, "_FEW", 3)
    monkeypatch.setattr(infos_module, "_from_rows", None)
    monkeypatch.setattr(infos_module, "_from_keys", None)
    assert_same_outcome(4, [(1, {"a": 1}), (3, {"b": {"c": "d"}})])
    assert merge_infos(4, []) == {}


def test_infos_of_envs_are_left_as_they_are():
    infos = [defaultdict(int, a=1), defaultdict(int, b=2)]
    merged = merge_infos(2, list(enumerate(infos)))
    assert infos == [{"a": 1}, {"b": 2}]
    assert list(merged) == ["a", "_a", "b", "_b"]


def test_messages():
    ragged = [(0, {"x": np.zeros(2)}), (1, {"x": np.zeros(3)})]
    with pytest.raises(ValueError, match="could not broadcast"):
        merge_infos(2, ragged)
    with pytest.raises(ShapeError, match=r"infos\['x'\]: expected an array with 3 rows.*\(2,\)"):
        split_infos({"x": np.zeros(2)}, 3)
    with pytest.raises(ShapeError, match=r"infos\['_x'\]: .* got shape \(1,\)"):
        concat_infos([(2, {"x": np.zeros(2), "_x": np.ones(1, bool)})])
    with pytest.raises(ShapeError, match=r"infos\['x'\]: .* one row per env, got int"):
        take_infos({"x": 1}, np.array([0]))
    with pytest.raises(ShapeError, match=r"np\.flatnonzero"):
        take_infos({"x": np.zeros(2)}, np.array([True, False]))
    with pytest.raises(IndexError):
        take_infos({"x": np.zeros(2)}, np.array([2]))


# Values whose type a column keeps: these come back from vector infos exactly.
KEPT = {
    name: KINDS[name] for name in ("int", "float", "bool", "float32", "array", "text", "final_obs")
}
KEPT["deep"] = st.dictionaries(
    st.sampled_from(["u", "v"]), st.integers(0, 3), min_size=0, max_size=2
)


def in_order(info):
    if not isinstance(info, dict):
        return info
    return {key: in_order(info[key]) for key in sorted(info)}


some_infos = st.lists(st.fixed_dictionaries({}, optional=KEPT), min_size=1, max_size=6)


@loose
@given(some_infos)
def test_split_is_the_inverse_of_merge(infos):
    split = split_infos(merge_infos(len(infos), list(enumerate(infos))), len(infos))
    for got, expected in zip(split, infos, strict=True):
        assert_same(in_order(got), in_order(expected))


@loose
@given(some_infos, st.data())
def test_take_gives_the_infos_of_those_envs(infos, data):
    rows = data.draw(st.lists(st.integers(0, len(infos) - 1), max_size=7))
    taken = take_infos(merge_infos(len(infos), list(enumerate(infos))), np.array(rows, np.int64))
    expected = merge_infos(len(rows), [(k, infos[row]) for k, row in enumerate(rows)])
    assert taken.keys() == expected.keys()
    for got, wanted in zip(split_infos(taken, len(rows)), rows, strict=True):
        assert_same(in_order(got), in_order(infos[wanted]))


@loose
@given(st.lists(some_infos, min_size=1, max_size=4))
def test_concat_equals_merging_all(parts):
    joined = concat_infos(
        [(len(part), merge_infos(len(part), list(enumerate(part)))) for part in parts]
    )
    whole = [info for part in parts for info in part]
    assert_same(joined, merge_infos(len(whole), list(enumerate(whole))))


def test_concat_of_parts_that_differ_in_type_keeps_the_first_type():
    parts = [[{"x": 1}, {}], [{}, {"x": 2.5}], [{"x": True}]]
    joined = concat_infos([(len(p), merge_infos(len(p), list(enumerate(p)))) for p in parts])
    assert_same(joined, plain(5, list(enumerate(chain(*parts)))))
    mixed = [[{"x": {"y": 1}}], [{"x": {}}], [{"x": {"y": "a"}}]]
    with pytest.raises(ValueError, match="invalid literal"):
        concat_infos([(1, merge_infos(1, list(enumerate(p)))) for p in mixed])


def test_last_observations_side_by_side_stay_one_object_an_env():
    batched = {"final_obs": np.ones((2, 3)), "_final_obs": np.array([False, True])}
    merged = merge_infos(1, [(0, {"final_obs": np.zeros(3)})])
    joined = concat_infos([(2, batched), (1, merged)])
    assert joined["final_obs"][0] is None
    assert [obs.tolist() for obs in joined["final_obs"][1:]] == [[1.0] * 3, [0.0] * 3]
    alone = concat_infos([(2, batched)])
    assert alone["final_obs"].dtype == object


def test_a_column_without_a_mask_belongs_to_every_env():
    infos = {"env_id": np.array([4, 2]), "_private": np.array([1, 2])}
    assert split_infos(infos, 2) == [{"env_id": 4, "_private": 1}, {"env_id": 2, "_private": 2}]
    assert take_infos(infos, np.array([1]))["env_id"].tolist() == [2]
    joined = concat_infos([(2, infos), (1, {"env_id": np.array([7])})])
    assert joined["env_id"].tolist() == [4, 2, 7]
    assert joined["__private"].tolist() == [True, True, False]


def test_taken_and_joined_arrays_are_copies():
    infos = merge_infos(2, [(i, {"x": np.zeros(2)}) for i in range(2)])
    for other in (take_infos(infos, np.array([0, 1])), concat_infos([(2, infos)])):
        assert not np.shares_memory(other["x"], infos["x"])
        assert not np.shares_memory(other["_x"], infos["_x"])


# --- columns on their way from a vector env ------------------------------------------------------


@loose
@given(some_infos)
def test_columns_are_pickled_as_they_are(infos):
    columns = Columns.of(merge_infos(len(infos), list(enumerate(infos))), len(infos))
    back = pickle.loads(pickle.dumps(columns))
    assert back.num_envs == len(infos)
    assert_same(back.infos, columns.infos)
    for column in back.infos.values():
        if isinstance(column, np.ndarray):
            assert column.flags.writeable
            assert column.flags.aligned


def told(sizes, tell):
    """A table with a row for each env, whose vector envs told something."""
    table = Table.empty(Layout.of(spaces.Discrete(2)), sum(sizes), ())
    for number, size in enumerate(sizes):
        table.add_infos(sum(sizes[:number]), tell(number, size))
    return table


@loose
@given(st.lists(some_infos, min_size=1, max_size=4), st.data())
def test_columns_are_taken_as_if_each_env_had_told_its_own(parts, data):
    sizes = [len(part) for part in parts]
    merged = [merge_infos(len(part), list(enumerate(part))) for part in parts]
    of_rows = data.draw(st.sets(st.sampled_from(range(len(parts)))))  # told as rows all the same

    def as_columns(number, size):
        if number in of_rows:
            return list(enumerate(parts[number]))
        return [(0, Columns.of(merged[number], size))] if merged[number] else []

    table = told(sizes, as_columns)
    plain = told(
        sizes, lambda number, _: list(enumerate(split_infos(merged[number], sizes[number])))
    )
    firsts = [sum(sizes[:number]) for number in range(len(parts))]
    slabs = [list(range(first, first + size)) for first, size in zip(firsts, sizes, strict=True)]
    whole = list(chain(*data.draw(st.permutations(slabs))))
    batches = data.draw(
        st.sampled_from([whole, data.draw(st.permutations(whole))]).flatmap(
            lambda rows: st.integers(0, len(rows)).map(lambda at: (rows[:at], rows[at:]))
        )
    )
    for rows in map(np.array, (batch for batch in batches if batch)):
        if data.draw(st.booleans()):
            got, expected = table.take_infos(rows), plain.take_infos(rows)
            assert set(got) == set(expected)
            assert_same(in_order(got), in_order(expected))
        else:
            for (row, got), (other, expected) in zip(
                [pair for pair in table.take_env_infos(rows) if pair[1]],
                [pair for pair in plain.take_env_infos(rows) if pair[1]],
                strict=True,
            ):
                assert row == other
                assert_same(in_order(got), in_order(expected))
    everyone = np.arange(sum(sizes))
    assert table.take_infos(everyone) == {}, "what was taken is gone"


def test_a_column_that_has_not_one_row_an_env_is_refused_where_it_was_told():
    for infos in ({"x": np.zeros(2)}, {"deep": {"x": np.zeros(2)}}):
        with pytest.raises(ShapeError, match=r"infos\['x'\]: expected an array with 3 rows"):
            Columns.of(infos, 3)


def test_a_key_that_no_env_has_is_left_out():
    nobody = {"x": np.zeros(2), "_x": np.zeros(2, np.bool_)}
    assert concat_infos([(2, nobody)]) == {}
    assert concat_infos([(2, nobody), (1, {})]) == {}
