"""Copies of outputs: equal, independent, and aligned in memory as the original is."""

import dataclasses
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from hotloop.loop.values import LINE_BYTES, PAGE_BYTES, arrays_in, independent_copy

DTYPES = [np.float64, np.float32, np.int8, np.bool_, np.complex128, "M8[D]", "U3"]


def placed_at(offset: int, shape: tuple[int, ...], dtype: object, order: str) -> np.ndarray:
    """An array that begins so many bytes into a page."""
    kind = np.dtype(dtype)  # type: ignore[call-overload]
    size = int(np.prod(shape)) * kind.itemsize
    memory = np.zeros(size + 2 * PAGE_BYTES, np.uint8)
    start = (offset * kind.itemsize - memory.ctypes.data) % PAGE_BYTES
    return np.ndarray(shape, kind, memory, start, order=order)  # type: ignore[call-overload,no-any-return]


@given(
    shape=array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=12),
    dtype=st.sampled_from(DTYPES),
    order=st.sampled_from("CF"),
    offset=st.integers(0, 500),
)
def test_an_array_is_copied_with_its_order_and_its_place_in_a_cache_line(
    shape: tuple[int, ...], dtype: object, order: str, offset: int
) -> None:
    array = placed_at(offset, shape, dtype, order)
    copied = independent_copy(array)
    assert copied.dtype == array.dtype
    assert np.array_equal(copied, array)
    assert not np.shares_memory(copied, array)
    assert copied.flags.writeable
    if array.size:
        assert copied.flags.f_contiguous == array.flags.f_contiguous
        assert copied.flags.c_contiguous == array.flags.c_contiguous
        assert (copied.ctypes.data - array.ctypes.data) % LINE_BYTES == 0


@pytest.mark.parametrize("offset", [0, 2, 4, 6, 100])
def test_a_large_array_and_a_large_tensor_keep_their_place_in_a_page(offset: int) -> None:
    array = placed_at(offset, (64, 512), np.float64, "C")
    tensor = torch.from_numpy(array).t()
    assert (independent_copy(array).ctypes.data - array.ctypes.data) % PAGE_BYTES == 0
    copied = independent_copy(tensor)
    assert (copied.data_ptr() - tensor.data_ptr()) % PAGE_BYTES == 0
    assert copied.stride() == tensor.stride()
    assert torch.equal(copied, tensor)
    copied.add_(1)
    assert not array.any()


def test_a_copied_parameter_still_takes_gradients() -> None:
    copied = independent_copy(torch.from_numpy(np.zeros(9)[1:]).requires_grad_())
    copied.sum().backward()
    assert copied.grad.tolist() == [1.0] * 8


def test_arrays_inside_of_a_dataclass_keep_alignment_and_identity() -> None:
    @dataclasses.dataclass
    class Batch:
        obs: np.ndarray
        parts: list[np.ndarray]

    obs = placed_at(3, (40, 5), np.float32, "C")
    copied = independent_copy(Batch(obs, [obs]))
    assert copied.obs is copied.parts[0]
    assert (copied.obs.ctypes.data - obs.ctypes.data) % LINE_BYTES == 0
    assert not np.shares_memory(copied.obs, obs)


def test_an_array_of_another_type_keeps_its_type() -> None:
    masked = independent_copy(np.ma.array([1, 2], mask=[False, True]))
    assert masked.tolist() == [1, None]
    assert isinstance(independent_copy(np.zeros(3).view(np.recarray)), np.recarray)


def test_arrays_are_found_beside_a_weak_proxy_whose_object_is_gone() -> None:
    class Gone:
        pass

    gone = Gone()
    proxy = weakref.proxy(gone)
    del gone
    array = np.zeros(3)
    assert [each is array for each in arrays_in([proxy, {"a": array}])] == [True]
