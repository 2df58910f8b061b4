"""Measurements as functions and their results as objects, for Python and for the commands.

A result shows the run that it holds as text, as a page and as JSON.
"""

from hotloop.results.benchmark import BenchmarkResult, run_benchmark
from hotloop.results.compare import CompareResult, run_compare
from hotloop.results.gate import GateResult, run_gate
from hotloop.results.simplify import SimplifyResult, run_simplify

__all__ = [
    "BenchmarkResult",
    "CompareResult",
    "GateResult",
    "SimplifyResult",
    "run_benchmark",
    "run_compare",
    "run_gate",
    "run_simplify",
]
