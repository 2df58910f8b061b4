"""Every way to add up spatial messages gives the bits of a plain sum over all pairs."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import SettingError, ShapeError
from hotloop.sim.grid import Message, UniformGrid, space_of
from hotloop.sim.grid_kernels import BLOCK, LIMIT_BITS
from hotloop.sim.grid_tensor import neighbour_sums
from support.often import examples

# A power of two above each bound, shared out into 2**22 quanta.
BOUNDS = {"offset_x": 3.0, "offset_y": 3.0, "difference": 1.0, "nearness": 4.0}


def hear(dx, dy, d2, agents, i, others, k, params):
    """Arithmetic only, so that it serves compiled pairs and tensors."""
    return dx, dy, others[2, k] - agents[2, i], params[0] / (d2 + params[1])


PARAMS = (0.5, 0.25)


@cache
def message() -> Message:
    return Message(hear, BOUNDS)


def plain_sums(columns, width, height, radius, periodic) -> np.ndarray:
    """All pairs, float32, as a reader would write it."""
    f = np.float32
    x, y, value = columns
    quanta = [2.0 ** np.ceil(np.log2(bound)) * 2.0**-LIMIT_BITS for bound in BOUNDS.values()]

    def offsets(place, side):
        difference = place[None, :] - place[:, None]
        if periodic:
            shift = np.where(
                difference > side / 2, -side, np.where(difference < -side / 2, side, 0)
            )
            difference = difference + shift.astype(f)
        return difference

    dx, dy = offsets(x, f(width)), offsets(y, f(height))
    d2 = dx * dx + dy * dy
    near = (d2 <= f(radius) * f(radius)) & ~np.eye(len(x), dtype=bool)
    heard = [dx, dy, value[None, :] - value[:, None], f(PARAMS[0]) / (d2 + f(PARAMS[1]))]
    sums = [near.sum(1)]
    for values, quantum in zip(heard, quanta, strict=True):
        whole = np.trunc(np.clip(values / f(quantum), -(2.0**LIMIT_BITS), 2.0**LIMIT_BITS))
        sums.append(np.where(near, whole, 0).astype(np.int64).sum(1))
    return np.stack(sums)


def scattered(seed: int, size: int, width: float, height: float, clumped: bool) -> np.ndarray:
    """x, y and a value; some on each other, on the sides and on the sides of cells."""
    rng = np.random.default_rng(seed)
    columns = rng.random((3, size))
    if clumped:
        columns[:2] = 0.5 + rng.normal(0, 0.05, (2, size))
    columns[:2, rng.random(size) < 0.1] = 0.25
    columns[0, rng.random(size) < 0.1] = 0
    columns[0] *= width
    columns[1] *= height
    columns = columns.astype(np.float32)
    columns[0, rng.random(size) < 0.1] = np.nextafter(np.float32(width), np.float32(0))
    on_sides = rng.random(size) < 0.1
    columns[1, on_sides] = np.floor(columns[1, on_sides])
    return columns


def grid_sums(columns, width, height, radius, periodic, threads) -> np.ndarray:
    grid = UniformGrid(
        width, height, radius, columns.shape[1], periodic=periodic, lines=3, threads=threads
    )
    grid.load(columns)
    sums = grid.sums(message(), PARAMS)
    grid.close()
    return sums


def tensor_sums(columns, width, height, radius, periodic, pairs=1 << 22) -> np.ndarray:
    space = space_of(width, height, radius, periodic, columns.shape[1])
    tensors = tuple(torch.from_numpy(column) for column in columns)
    return neighbour_sums(space, tensors, message(), PARAMS, pairs=pairs).numpy()


@pytest.mark.long
@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(1, 120),
    width=st.floats(3.1, 40),
    height=st.floats(3.1, 40),
    radius=st.floats(0.2, 1.0),
    periodic=st.booleans(),
    clumped=st.booleans(),
)
def test_every_path_equals_the_plain_twin(seed, size, width, height, radius, periodic, clumped):
    columns = scattered(seed, size, width, height, clumped)
    box = (width, height, radius, periodic)
    expected = plain_sums(columns, *box)
    for threads in (1, 2, 3):
        np.testing.assert_array_equal(grid_sums(columns, *box, threads), expected)
    for pairs in (1 << 22, 64, 1):
        np.testing.assert_array_equal(tensor_sums(columns, *box, pairs), expected)


@pytest.mark.parametrize("periodic", [True, False])
def test_a_crowd_of_more_than_a_block_is_heard_whole(periodic):
    columns = scattered(0, 3 * BLOCK + 7, 5.0, 5.0, clumped=True)
    box = (5.0, 5.0, 1.0, periodic)
    expected = plain_sums(columns, *box)
    assert expected[0].max() > 2 * BLOCK
    np.testing.assert_array_equal(grid_sums(columns, *box, 2), expected)
    np.testing.assert_array_equal(tensor_sums(columns, *box), expected)


def test_a_walled_box_may_be_smaller_than_the_radius():
    columns = scattered(1, 40, 2.0, 0.5, clumped=False)
    box = (2.0, 0.5, 3.0, False)
    np.testing.assert_array_equal(grid_sums(columns, *box, 1)[0], 39)
    np.testing.assert_array_equal(tensor_sums(columns, *box), plain_sums(columns, *box))


def test_what_two_agents_hear_of_each_other_is_opposite():
    columns = scattered(2, 2000, 30.0, 20.0, clumped=False)
    sums = grid_sums(columns, 30.0, 20.0, 1.0, True, 2)
    assert sums[0].sum() % 2 == 0
    assert sums[0].sum() > 2000
    np.testing.assert_array_equal(sums[1:4].sum(1), 0)  # exactly: these channels are odd


def test_a_periodic_box_has_no_place_of_its_own():
    rng = np.random.default_rng(3)
    # Multiples of 1/8 are exact after a shift, so that the sums must be the same.
    columns = np.stack([*(rng.integers(0, 128, (2, 500)) / 8), rng.random(500)]).astype(np.float32)
    shifted = columns.copy()
    shifted[0], shifted[1] = (columns[0] + 5.125) % 16, (columns[1] + 11.5) % 16
    box = (16.0, 16.0, 1.0, True, 1)
    np.testing.assert_array_equal(grid_sums(columns, *box), grid_sums(shifted, *box))


def test_a_value_beyond_its_bound_is_cut_to_it():
    columns = np.array([[1, 1.5], [1, 1], [0, 100]], np.float32)
    sums = grid_sums(columns, 4.0, 4.0, 1.0, True, 1)
    quanta = message().quanta
    assert (sums[3] * quanta[2]).tolist() == [1, -1]
    assert (sums[1] * quanta[0]).tolist() == [0.5, -0.5]
    np.testing.assert_array_equal(tensor_sums(columns, 4.0, 4.0, 1.0, True), sums)


def test_agents_lie_in_the_order_of_their_cells_with_their_ids():
    columns = scattered(4, 300, 20.0, 10.0, clumped=False)
    one, three = (UniformGrid(20.0, 10.0, 1.0, 300, lines=3, threads=t) for t in (1, 3))
    for grid in (one, three):
        grid.load(columns)
    assert sorted(one.ids) == list(range(300))
    np.testing.assert_array_equal(one.ids, three.ids)  # stable, whatever the threads
    np.testing.assert_array_equal(one.agents[:, :300], columns[:, one.ids])
    space = one.space
    row = np.minimum((one.agents[1, :300] * space.per_y).astype(int), space.rows - 1)
    column = np.minimum((one.agents[0, :300] * space.per_x).astype(int), space.columns - 1)
    cell = row * space.columns + column
    assert (np.diff(cell) >= 0).all()
    np.testing.assert_array_equal(
        np.bincount(cell, minlength=len(one.starts) - 1), np.diff(one.starts)
    )
    three.close()


def test_boxes_are_batched():
    columns = [scattered(seed, 90, 12.0, 8.0, clumped=False) for seed in range(3)]
    space = space_of(12.0, 8.0, 1.0, True, 90)
    batch = tuple(torch.from_numpy(np.stack(line)) for line in zip(*columns, strict=True))
    together = neighbour_sums(space, batch, message(), PARAMS)
    assert together.shape == (5, 3, 90)
    for run, own in enumerate(columns):
        np.testing.assert_array_equal(together[:, run], tensor_sums(own, 12.0, 8.0, 1.0, True))


def test_an_empty_plain_costs_no_more_cells_than_agents_need():
    grid = UniformGrid(1e6, 1e6, 0.1, 1000)
    assert len(grid.starts) < 4 * 1000 + 128
    assert grid.nbytes < 200 * 1000


@pytest.mark.gpu
def test_the_gpu_hears_the_same():
    columns = scattered(5, 5000, 40.0, 40.0, clumped=False)
    space = space_of(40.0, 40.0, 1.0, True, 5000)
    tensors = tuple(torch.from_numpy(column).cuda() for column in columns)
    sums = neighbour_sums(space, tensors, message(), PARAMS).cpu().numpy()
    np.testing.assert_array_equal(sums, grid_sums(columns, 40.0, 40.0, 1.0, True, 1))


def test_invalid_arguments_are_refused():
    with pytest.raises(SettingError, match="more than three radii across, got 5 with radius 2"):
        UniformGrid(5.0, 50.0, 2.0, 10)
    with pytest.raises(SettingError, match="radius: expected a number above 0, got -1"):
        UniformGrid(5.0, 50.0, -1.0, 10)
    with pytest.raises(SettingError, match="1 to 8 channels, got 9"):
        Message(hear, {f"c{n}": 1.0 for n in range(9)})
    with pytest.raises(SettingError, match="bound of channel 'a': expected a number above 0"):
        Message(hear, {"a": 0.0})
    grid = UniformGrid(5.0, 5.0, 1.0, 3)
    with pytest.raises(ShapeError, match=r"column 1: expected shape \(3,\), got \(2,\)"):
        grid.load([np.zeros(3), np.zeros(2)])
    with pytest.raises(ShapeError, match="expected 2 columns, got 1"):
        grid.load([np.zeros(3)])
    for bad in (5.5, -0.1, np.nan):
        with pytest.raises(SettingError, match=r"agent 1: y = .* outside of the box, 0 to 5"):
            grid.load([np.zeros(3), np.array([0, bad, 0])])
    space = space_of(5.0, 5.0, 1.0, True, 3)
    with pytest.raises(ShapeError, match="column 1: expected the shape of the first"):
        neighbour_sums(space, (torch.zeros(3), torch.zeros(2)), message(), PARAMS)
