"""Measurements as functions, and their results as objects: what Python and the commands share.

A result draws itself as text, as a page and as JSON from the run that it holds.
"""

from hotloop.results.benchmark import BenchmarkResult, run_benchmark
from hotloop.results.simplify import SimplifyResult, run_simplify

__all__ = ["BenchmarkResult", "SimplifyResult", "run_benchmark", "run_simplify"]
