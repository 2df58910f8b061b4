"""The sum tree against a plain sum, and the weights against their formula."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import SettingError, ShapeError
from hotloop.ops import draw_by_priority, importance_weights, set_priorities, sum_tree
from support.equivalence import COMMON
from support.often import examples

priorities = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-12, 1e12, allow_subnormal=False)), min_size=1, max_size=70
)


def tree_of(values):
    tree = sum_tree(len(values))
    set_priorities(tree, np.arange(len(values)), np.array(values))
    return tree


def plain_draw(values, u):
    """The first item at which the sum passes u of the total."""
    rest = u * sum(values)
    for index, value in enumerate(values):
        if rest < value:
            return index
        rest -= value
    return max(i for i, value in enumerate(values) if value)


@settings(max_examples=examples(100), **COMMON)
@given(values=priorities, data=st.data())
def test_every_node_is_the_sum_of_its_children_after_any_updates(values, data):
    tree, held = tree_of(values), list(values)
    for _ in range(3):
        index = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=12))
        new = data.draw(st.lists(st.floats(0, 1e6), min_size=len(index), max_size=len(index)))
        set_priorities(tree, np.array(index, np.int64), np.array(new))
        for i, value in zip(index, new, strict=True):
            held[i] = value
    half = len(tree) // 2
    assert tree[half : half + len(held)].tolist() == held
    assert not tree[half + len(held) :].any()
    nodes = np.arange(1, half)
    np.testing.assert_array_equal(tree[nodes], tree[2 * nodes] + tree[2 * nodes + 1])


def test_draws_are_those_of_a_plain_sum():
    """In whole numbers, where no sum rounds."""
    values = [3, 0, 5, 1, 0, 0, 7]
    uniform = (np.arange(16) + 0.5) / 16
    drawn = draw_by_priority(tree_of(values), uniform)
    assert drawn.tolist() == [plain_draw(values, u) for u in uniform]
    assert drawn.tolist() == [0, 0, 0, 2, 2, 2, 2, 2, 3, 6, 6, 6, 6, 6, 6, 6]


@settings(max_examples=examples(100), **COMMON)
@given(values=priorities.filter(any), uniform=st.lists(st.floats(0, 1, exclude_max=True)))
def test_nothing_of_priority_zero_is_drawn(values, uniform):
    # The largest number below 1 is where rounding would step over the end.
    drawn = draw_by_priority(tree_of(values), np.array([*uniform, np.nextafter(1, 0), 0.0]))
    assert all(values[index] > 0 for index in drawn)


def test_shares_are_those_of_the_priorities():
    rng = np.random.default_rng(0)
    values = rng.exponential(size=1000) ** 3
    count = 400_000
    drawn = np.bincount(draw_by_priority(tree_of(values), rng.random(count)), minlength=1000)
    expected = count * values / values.sum()
    # Chi square of 1,000 cells: mean 999, standard deviation 45.
    enough = expected > 5
    chi = ((drawn - expected)[enough] ** 2 / expected[enough]).sum()
    assert abs(chi - enough.sum()) < 5 * np.sqrt(2 * enough.sum())


def test_weights_by_hand():
    # N = 4, P = (.1, .4), β = .5: (.4)^−.5 and (1.6)^−.5, over the first.
    weights = importance_weights(np.array([0.1, 0.4]), 4, beta=0.5)
    np.testing.assert_allclose(weights, [1, 0.5])


@settings(max_examples=examples(50), **COMMON)
@given(
    probability=st.lists(st.floats(1e-9, 1), min_size=1, max_size=20),
    beta=st.floats(0, 1),
    count=st.integers(1, 10**6),
)
def test_weights_are_the_formulas(probability, beta, count):
    plain = (count * np.array(probability)) ** -beta
    weights = importance_weights(np.array(probability), count, beta=beta)
    np.testing.assert_allclose(weights, plain / plain.max(), rtol=1e-9)


def test_full_correction_undoes_the_priorities():
    """With β = 1, the weighted mean over draws is the plain mean, but for a common factor."""
    rng = np.random.default_rng(1)
    values, what = rng.exponential(size=50), rng.normal(size=50)
    drawn = draw_by_priority(tree_of(values), rng.random(300_000))
    weights = importance_weights((values / values.sum())[drawn], 50, beta=1.0)
    mean = (weights * what[drawn]).sum() / weights.sum()
    assert mean == pytest.approx(what.mean(), abs=0.02)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: sum_tree(0), SettingError, "capacity"),
        (lambda: set_priorities(sum_tree(4), np.array([4]), np.ones(1)), ShapeError, "0 to 3"),
        (lambda: set_priorities(sum_tree(4), np.array([-1]), np.ones(1)), ShapeError, "0 to 3"),
        (lambda: set_priorities(sum_tree(4), np.array([1]), -np.ones(1)), ShapeError, "0 or more"),
        (lambda: set_priorities(sum_tree(4), np.array([1]), np.ones(2)), ShapeError, r"\(n,\)"),
        (
            lambda: set_priorities(sum_tree(4), np.array([1]), np.array([np.nan])),
            ShapeError,
            "0 or more",
        ),
        (lambda: set_priorities(np.zeros(3), np.array([1]), np.ones(1)), ShapeError, "sum_tree"),
        (lambda: draw_by_priority(sum_tree(4), np.zeros(1)), SettingError, "above 0"),
        (lambda: draw_by_priority(tree_of([1.0]), np.ones(1)), ShapeError, "uniform"),
        (lambda: importance_weights(np.ones(1), 1, beta=2.0), SettingError, "beta"),
        (lambda: importance_weights(np.ones(1), 0, beta=1.0), SettingError, "count"),
    ],
)
def test_bad_input_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_nothing_is_changed_by_what_is_refused():
    tree = tree_of([1.0, 2.0])
    before = tree.copy()
    with pytest.raises(ShapeError):
        set_priorities(tree, np.array([0, 5]), np.array([9.0, 9.0]))
    np.testing.assert_array_equal(tree, before)


def test_an_empty_update_and_an_empty_draw():
    tree = tree_of([1.0])
    set_priorities(tree, np.array([], np.int64), np.array([]))
    assert draw_by_priority(tree, np.array([])).tolist() == []
    assert importance_weights(np.array([]), 1, beta=0.4).tolist() == []
