"""Measurements as functions and their results as objects, for Python and for the commands.

A result shows the run that it holds as text, as a page and as JSON.
"""

from hotloop.results.benchmark import BenchmarkResult, run_benchmark
from hotloop.results.simplify import SimplifyResult, run_simplify

__all__ = ["BenchmarkResult", "SimplifyResult", "run_benchmark", "run_simplify"]
