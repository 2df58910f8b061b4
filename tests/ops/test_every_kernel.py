"""What holds for every kernel: ends divide, invalid steps hide, arrays of any kind, refusals."""

import importlib
import math
from dataclasses import fields, replace

import numpy as np
import pytest

from hotloop.errors import SettingError, ShapeError
from hotloop.ops import gae
from support.fragments import KERNELS, Steps, drawn_steps

all_kernels = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
MODULES = ("n_step", "returns", "vtrace")
GAMMA_LAMBDA = {
    "gamma": list(KERNELS),
    "lambda_": ["gae", "lambda_returns", "vtrace"],
}


def concatenated(parts):
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


def assert_same(got, expected):
    for mine, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine, other)


@all_kernels
@pytest.mark.parametrize("end", ["terminated_t", "truncated_t"])
@pytest.mark.parametrize("at", [0, 4, 7])
def test_a_fragment_equals_its_separate_episodes_exactly(kernel, end, at):
    s = drawn_steps(length=9, invalid=0.1)
    getattr(s, end)[at] = True
    s.valid_t[at] = True
    parts = [s.each(lambda a, cut=cut: a[cut]) for cut in (slice(at + 1), slice(at + 1, None))]
    assert_same(kernel(s), concatenated([kernel(part) for part in parts]))


@all_kernels
def test_a_step_that_is_not_valid_divides_as_the_fragments_end_does(kernel):
    s = drawn_steps(length=9, ends=0.1)
    s.valid_t[4] = False
    parts = [s.each(lambda a, cut=cut: a[cut]) for cut in (slice(4), slice(4, 5), slice(5, None))]
    assert_same(kernel(s), concatenated([kernel(part) for part in parts]))


@all_kernels
def test_what_is_not_read_may_be_anything(kernel):
    """Rows that are not valid, and values at terminations, hold NaN: no other step changes."""
    s = drawn_steps(length=20, width=4, ends=0.3, invalid=0.3)
    expected = kernel(s)
    hidden = s.floats(lambda a: np.where(s.valid_t, a, math.nan))
    hidden = replace(hidden, v_t=np.where(s.terminated_t, math.nan, hidden.v_t))
    for got, other in zip(kernel(hidden), expected, strict=True):
        np.testing.assert_array_equal(got[s.valid_t], other[s.valid_t])


@all_kernels
@pytest.mark.parametrize("end", ["terminated_t", "truncated_t"])
def test_what_is_not_a_number_stays_in_its_episode(kernel, end):
    s = drawn_steps(length=9, ends=0.0)
    getattr(s, end)[4] = True
    s.r_t[6] = math.nan
    for got in kernel(s):
        assert np.isfinite(got[:5]).all()
    assert np.isnan(kernel(s)[0][5]).all()


@all_kernels
def test_what_steps_that_are_not_valid_are_given(kernel):
    s = drawn_steps()
    s.valid_t[3] = False
    expected = {"gae": [0, s.v_tm1[3]], "vtrace": [s.v_tm1[3], 0]}
    name = next(name for name, each in KERNELS.items() if each is kernel)
    for k, got in enumerate(kernel(s)):
        np.testing.assert_array_equal(got[3], expected[name][k] if name in expected else 0)


@all_kernels
def test_valid_may_be_left_out(kernel):
    s = drawn_steps()
    assert_same(kernel(replace(s, valid_t=None)), kernel(s))


@all_kernels
def test_envs_do_not_mix(kernel):
    s = drawn_steps(width=40, invalid=0.1)
    alone = [kernel(s.each(lambda a, b=b: a[:, b : b + 1])) for b in range(40)]
    together = [np.concatenate(each, axis=1) for each in zip(*alone, strict=True)]
    assert_same(kernel(s), together)


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def strided(array):
    wide = np.zeros((array.shape[0] * 2, array.shape[1] * 3), array.dtype)
    wide[::2, ::3] = array
    return wide[::2, ::3]


def unaligned(array):
    block = np.zeros(array.nbytes + 1, np.uint8)
    view = block[1:].view(array.dtype).reshape(array.shape)
    view[:] = array
    return view


@all_kernels
@pytest.mark.parametrize("kind", [read_only, strided, unaligned, np.asfortranarray, list])
def test_arrays_of_any_kind(kernel, kind):
    s = drawn_steps(invalid=0.1)
    assert_same(kernel(s.each(kind)), kernel(s))


@all_kernels
def test_inputs_are_not_written(kernel):
    s = drawn_steps(invalid=0.1)
    before = s.each(np.copy)
    kernel(s)
    for f in fields(Steps):
        np.testing.assert_array_equal(getattr(s, f.name), getattr(before, f.name))


@all_kernels
def test_results_are_fresh_arrays(kernel):
    """Also where they equal an input: a learner may write to them."""
    s = drawn_steps()
    for got in kernel(s, gamma=0.0):
        assert type(got) is np.ndarray
        assert got.flags.carray
        assert not any(np.shares_memory(got, getattr(s, f.name)) for f in fields(Steps))


@all_kernels
def test_single_precision_stays_single(kernel):
    s = drawn_steps(length=300)
    for got, expected in zip(kernel(s.floats(np.float32)), kernel(s), strict=True):
        assert got.dtype == (np.float32 if expected.dtype == np.float64 else expected.dtype)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-5)


def test_sums_are_double_whatever_the_inputs_are():
    """A million rewards of 0.1 in single precision; a sum in single precision is off by 1%."""
    length = 1_000_000
    reward = np.full((length, 1), 0.1, np.float32)
    zeros, none = np.zeros_like(reward), np.zeros((length, 1), np.bool_)
    advantage, _ = gae(reward, zeros, zeros, none, none, gamma=1.0, lambda_=1.0)
    np.testing.assert_allclose(advantage[0, 0], length * float(np.float32(0.1)), rtol=1e-7)


@all_kernels
@pytest.mark.parametrize("first", [np.float32, np.float64])
def test_of_two_precisions_the_result_has_the_rewards(kernel, first):
    s = drawn_steps().floats(np.float32)
    exact = kernel(s.floats(np.float64))
    other = np.float64 if first == np.float32 else np.float32
    mixed = replace(s.floats(other), r_t=s.r_t.astype(first))
    for got, expected in zip(kernel(mixed), exact, strict=True):
        np.testing.assert_array_equal(got, expected.astype(got.dtype))
        assert got.dtype in (first, np.int64)


@all_kernels
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 1)])
def test_the_smallest_shapes(kernel, shape):
    s = drawn_steps(*shape)
    for got in kernel(s):
        assert got.shape == shape
        assert np.isfinite(got).all()


@pytest.mark.parametrize(
    ("setting", "name"), [(s, name) for s, names in GAMMA_LAMBDA.items() for name in names]
)
@pytest.mark.parametrize("value", [-0.1, 1.0001, math.nan, math.inf])
def test_impossible_discounts_are_refused(setting, name, value):
    message = rf"{name}: {setting}: expected a number from 0 to 1, got"
    with pytest.raises(SettingError, match=message):
        KERNELS[name](drawn_steps(), **{setting: value})


# What each kernel reads, by name.
READS = {
    "gae": ["v_tm1", "v_t", "terminated_t", "truncated_t", "valid_t"],
    "lambda_returns": ["v_t", "terminated_t", "truncated_t", "valid_t"],
    "n_step_returns": ["v_t", "terminated_t", "truncated_t", "valid_t"],
    "n_step_windows": ["terminated_t", "truncated_t", "valid_t"],
    "vtrace": ["v_tm1", "v_t", "rho_tm1", "terminated_t", "truncated_t", "valid_t"],
}


@pytest.mark.parametrize(("name", "field"), [(k, f) for k, names in READS.items() for f in names])
def test_messages_name_the_argument(name, field):
    s = drawn_steps()
    given = getattr(s, field)
    message = rf"{name}: {field}: expected the shape of r_t, \(12, 3\), got \(11, 3\); give"
    with pytest.raises(ShapeError, match=message):
        KERNELS[name](replace(s, **{field: given[1:]}))
    wanted = "bool flags" if given.dtype == np.bool_ else "float32 or float64"
    with pytest.raises(ShapeError, match=rf"{name}: {field}: expected {wanted}, got int64; "):
        KERNELS[name](replace(s, **{field: given.astype(np.int64)}))


@all_kernels
def test_rewards_of_another_shape_or_type_are_refused(kernel):
    s = drawn_steps()
    with pytest.raises(ShapeError, match=r"r_t: expected shape \(T, B\), got \(12,\)"):
        kernel(replace(s, r_t=s.r_t[:, 0]))
    for other in (np.int64, np.float16, np.complex128):
        with pytest.raises(ShapeError, match=r"r_t: expected float32 or float64, got "):
            kernel(replace(s, r_t=s.r_t.astype(other)))


def test_a_tensor_with_a_gradient_is_refused():
    """Targets are constants: a gradient can neither come in nor get lost unseen."""
    torch = pytest.importorskip("torch")
    s = drawn_steps()
    value = torch.from_numpy(s.v_tm1).requires_grad_()
    with pytest.raises(RuntimeError, match="requires grad"):
        KERNELS["gae"](replace(s, v_tm1=value))
    assert_same(KERNELS["gae"](replace(s, v_tm1=value.detach())), KERNELS["gae"](s))


def most_compiled_forms():
    """In how many forms the kernel with the most of them was compiled, in this process."""
    modules = (importlib.import_module(f"hotloop.ops.{name}") for name in MODULES)
    kernels = (each for module in modules for each in vars(module).values())
    return max(len(each.overloads) for each in kernels if hasattr(each, "overloads"))


@all_kernels
@pytest.mark.parametrize("kind", [read_only, strided, unaligned, np.asfortranarray])
def test_kernels_have_two_forms_whatever_they_are_given(kernel, kind):
    """A learner that has called a kernel with its number type waits for no compiler again."""
    s = drawn_steps()
    for steps in (s, s.floats(np.float32)):
        kernel(steps)
        kernel(steps.each(kind), gamma=1)
        kernel(replace(steps, valid_t=None), lambda_=0, clip_rho=1, clip_pg_rho=2)
    kernel(replace(s, r_t=s.r_t.astype(np.float32)))
    assert most_compiled_forms() == 2
