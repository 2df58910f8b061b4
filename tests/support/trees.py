"""Exact equality of what envs return: types, keys, dtypes, bits."""

import numpy as np


def assert_same(got, expected, where="it"):
    """The same to the last bit, with the same types."""
    assert type(got) is type(expected), f"{where}: {type(got)}, expected {type(expected)}"
    if isinstance(got, dict):
        assert list(got) == list(expected), f"{where}: {list(got)}, expected {list(expected)}"
        for key in got:
            assert_same(got[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(got, tuple | list):
        assert len(got) == len(expected), f"{where}: {len(got)} parts, expected {len(expected)}"
        for k, (one, other) in enumerate(zip(got, expected, strict=True)):
            assert_same(one, other, f"{where}[{k}]")
    elif isinstance(got, np.ndarray):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), where
        if got.dtype == object:
            for k, (one, other) in enumerate(zip(got.flat, expected.flat, strict=True)):
                assert_same(one, other, f"{where}[{k}]")
        else:
            assert got.tobytes() == expected.tobytes(), f"{where}: {got}, expected {expected}"
    else:
        assert got == expected, f"{where}: {got}, expected {expected}"
