"""Spaces as arrays: rows go in and come out as they were, and what does not fit is refused."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.data.layout import Layout, leaves, stack_into, tree_map
from hotloop.data.shared import SharedBlock
from support.equivalence import COMMON, NESTED, any_space
from support.often import examples
from support.trees import assert_same


@settings(max_examples=examples(60), **COMMON)
@given(space=any_space, count=st.integers(1, 5), seed=st.integers(0, 99))
def test_stacking_is_gymnasiums(space, count, seed):
    space.seed(seed)
    values = [space.sample() for _ in range(count)]
    layout = Layout.of(space)
    expected = concatenate(space, values, create_empty_array(space, count))
    tree = layout.stack(values)
    assert_same(layout.public(tree), expected)
    into = layout.empty(count)
    for leaf, column, out in zip(layout.leaves, layout.columns(values), leaves(into), strict=True):
        stack_into(leaf, column, out)
    assert_same(into, tree)
    assert_same(list(leaves(tree)), layout.arrays(layout.public(tree)))
    restacked = layout.stack([layout.row(tree, k) for k in range(count)])
    assert_same(restacked, tree)


@settings(max_examples=examples(30), **COMMON)
@given(space=any_space, count=st.integers(1, 5))
def test_leaves_in_a_buffer_do_not_touch(space, count):
    layout = Layout.of(space)
    block = SharedBlock(64 + layout.nbytes(count))
    fixed = [
        leaf
        for leaf in leaves(layout.in_buffer(block.buffer, 64, count))
        if not leaf.dtype.hasobject
    ]
    for number, leaf in enumerate(fixed):
        leaf.view(np.uint8).reshape(-1)[:] = number + 1
        assert leaf.ctypes.data % 64 == 0
    for number, leaf in enumerate(fixed):
        assert (leaf.view(np.uint8) == number + 1).all()
    assert not any(block.buffer[:64])
    block.close()
    block.close()


BOX = Layout.of(spaces.Box(-1, 1, (2, 3), np.float32))


@pytest.mark.parametrize(
    ("layout", "values", "error"),
    [
        (BOX, [np.zeros((1, 3), np.float32), np.zeros((3, 3), np.float32)], ValueError),
        (BOX, [np.zeros((2, 3, 1), np.float32)] * 2, ValueError),
        (BOX, [np.zeros((2, 2), np.float32), np.zeros((2, 4), np.float32)], ValueError),
        (BOX, [np.zeros((2, 3), np.complex64)] * 2, TypeError),
        (Layout.of(spaces.Discrete(3)), [np.zeros(1, np.int64)] * 2, ValueError),
        (Layout.of(spaces.Discrete(3)), [0.5, 1], TypeError),
    ],
)
def test_what_does_not_fit_is_refused(layout, values, error):
    with pytest.raises(error):
        layout.stack(values)
    with pytest.raises(error):
        stack_into(layout, values, layout.empty(2))


def test_trees():
    layout = Layout.of(NESTED)
    assert layout.has_objects
    assert not layout.is_leaf
    assert [leaf.dtype.kind for leaf in layout.leaves] == ["u", "O", "f"]
    tree = layout.empty(2, 3)
    assert [leaf.shape for leaf in leaves(tree)] == [(2, 3, 2, 3), (2, 3), (2, 3)]
    shapes = tree_map(lambda one, other: one.shape + other.shape, tree, tree)
    assert shapes["pair"][1] == (2, 3, 2, 3)


def test_a_row_is_a_copy():
    layout = Layout.of(spaces.Dict(a=spaces.Box(0, 1, (2,), np.float32)))
    tree = layout.empty(2)
    layout.row(tree, 0)["a"][:] = 7
    assert not tree["a"].any()
