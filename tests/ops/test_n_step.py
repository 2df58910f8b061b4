"""n-step windows and returns: against plain sums over slices, and against identities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import SettingError
from hotloop.ops import NStepWindows, n_step_returns, n_step_windows
from support.fragments import KERNELS, Steps, by_run, drawn_steps, runs, some_steps
from support.often import examples

lengths = st.integers(1, 9)


def plain_windows(steps: Steps, gamma: float, n: int) -> list[np.ndarray]:
    """Slices of each run's rewards, with the power of their length."""

    def of_run(r_t, *_):
        slices = [r_t[t : t + n] for t in range(len(r_t))]
        rewards = [sum(gamma**k * r for k, r in enumerate(part)) for part in slices]
        return [rewards, [gamma ** len(part) for part in slices], [len(part) for part in slices]]

    reward, discount, count = by_run(steps, of_run, [0.0, 0.0, 0.0])
    for b, start, stop in runs(steps):
        if steps.terminated_t[stop - 1, b]:
            discount[max(start, stop - n) : stop, b] = 0.0
    return [reward, discount, count]


@settings(max_examples=examples(60))
@given(some_steps(), st.floats(0, 1), lengths)
def test_windows_equal_their_definition(steps, gamma, n):
    got = KERNELS["n_step_windows"](steps, gamma, n=n)
    for mine, expected in zip(got, plain_windows(steps, gamma, n), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-8)
    assert got.steps.dtype == np.int64


@settings(max_examples=examples(60))
@given(some_steps(), st.floats(0, 1), lengths)
def test_returns_are_windows_and_the_value_at_their_end(steps, gamma, n):
    [got] = KERNELS["n_step_returns"](steps, gamma, n=n)
    reward, discount, count = plain_windows(steps, gamma, n)
    expected = np.zeros_like(reward)
    for t, b in np.argwhere(count > 0):
        arrived = steps.v_t[t + int(count[t, b]) - 1, b]
        expected[t, b] = reward[t, b] + discount[t, b] * arrived
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-8)


def test_a_window_worked_by_hand():
    # γ = 1/2, n = 2, five steps of which the third terminates. Sums: 1 + 2/2, 2 + 4/2, 4, then
    # 8 + 16/2, 16. Lengths 2, 2, 1, 2, 1: discounts 1/4, 0, 0, 1/4, 1/2. With V(xₜ) = 10, 20, ...
    # the returns are 2 + 20/4, 4, 4, 16 + 50/4, 16 + 50/2.
    r_t = np.array([[1.0], [2.0], [4.0], [8.0], [16.0]])
    v_t = np.array([[10.0], [20.0], [30.0], [40.0], [50.0]])
    terminated_t = np.array([[False], [False], [True], [False], [False]])
    none = np.zeros_like(terminated_t)
    reward, discount, count = n_step_windows(r_t, terminated_t, none, gamma=0.5, n=2)
    assert reward[:, 0].tolist() == [2.0, 4.0, 4.0, 16.0, 16.0]
    assert discount[:, 0].tolist() == [0.25, 0.0, 0.0, 0.25, 0.5]
    assert count[:, 0].tolist() == [2, 2, 1, 2, 1]
    returns = n_step_returns(r_t, v_t, terminated_t, none, gamma=0.5, n=2)
    assert returns[:, 0].tolist() == [7.0, 4.0, 4.0, 28.5, 41.0]


def test_short_windows_at_a_truncation_bootstrap_with_their_own_length():
    # γ = 1/2, n = 3, the second step is truncated at a value of 8: 1 + 1/2 + 8/4, then 1 + 8/2.
    ones, none = np.ones((4, 1)), np.zeros((4, 1), np.bool_)
    truncated_t = np.array([[False], [True], [False], [False]])
    windows = n_step_windows(ones, none, truncated_t, gamma=0.5, n=3)
    assert windows.steps[:, 0].tolist() == [2, 1, 2, 1]
    assert windows.discount[:, 0].tolist() == [0.25, 0.5, 0.25, 0.5]
    returns = n_step_returns(ones, 8 * ones, none, truncated_t, gamma=0.5, n=3)
    assert returns[:, 0].tolist() == [3.5, 5.0, 3.5, 5.0]


def test_a_step_that_is_not_valid_is_in_no_window():
    ones, none = np.ones((4, 1)), np.zeros((4, 1), np.bool_)
    valid_t = np.array([[True], [True], [False], [True]])
    windows = n_step_windows(ones, none, none, gamma=0.5, n=3, valid_t=valid_t)
    assert windows.steps[:, 0].tolist() == [2, 1, 0, 1]
    assert windows.reward[:, 0].tolist() == [1.5, 1.0, 0.0, 1.0]
    assert windows.discount[:, 0].tolist() == [0.25, 0.5, 0.0, 0.5]


def test_one_step_is_the_reward_and_the_next_value():
    s = drawn_steps()
    [got] = KERNELS["n_step_returns"](s, 0.9, n=1)
    np.testing.assert_allclose(got, s.r_t + 0.9 * ~s.terminated_t * s.v_t)


@pytest.mark.parametrize("n", [12, 13, 10**12])
def test_windows_of_the_whole_fragment_are_lambda_returns_with_lambda_one(n):
    s = drawn_steps(invalid=0.1)
    [got] = KERNELS["n_step_returns"](s, 0.9, n=n)
    np.testing.assert_allclose(got, KERNELS["lambda_returns"](s, 0.9, 1.0)[0])


def test_gamma_zero_is_the_reward():
    s = drawn_steps()
    np.testing.assert_array_equal(KERNELS["n_step_returns"](s, 0.0, n=4)[0], s.r_t)
    assert not KERNELS["n_step_windows"](s, 0.0, n=4).discount.any()


def test_gamma_one_sums_and_keeps_the_whole_bootstrap():
    s = drawn_steps(ends=0.0)
    windows = KERNELS["n_step_windows"](s, 1.0, n=4)
    assert (windows.discount == 1).all()
    np.testing.assert_allclose(windows.reward[2], s.r_t[2:6].sum(0))


def test_windows_say_where_the_observation_is_that_they_bootstrap_from():
    """Replay asks for the observation arrived at in step t + steps − 1: its value gives the return.

    Here each value is its own place in the fragment.
    """
    s = drawn_steps(length=10)
    places = np.arange(s.r_t.size, dtype=np.float64).reshape(s.r_t.shape)
    flags = s.terminated_t, s.truncated_t
    returns = n_step_returns(s.r_t, places, *flags, gamma=0.9, n=3)
    windows = n_step_windows(s.r_t, *flags, gamma=0.9, n=3)
    assert isinstance(windows, NStepWindows)
    rows = np.arange(10)[:, None] + windows.steps - 1
    looked_up = np.take_along_axis(places, rows, 0)
    np.testing.assert_allclose(returns, windows.reward + windows.discount * looked_up)


@pytest.mark.parametrize("n", [0, -1, 2.5, True])
def test_impossible_lengths_are_refused(n):
    with pytest.raises(SettingError, match=r"n_step_returns: n: expected a whole number of 1 or"):
        KERNELS["n_step_returns"](drawn_steps(), n=n)
