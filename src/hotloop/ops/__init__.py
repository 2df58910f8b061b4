"""Kernels of the learners: pure functions, arrays in and arrays out, compiled by numba."""

from hotloop.ops.returns import gae

__all__ = ["gae"]
