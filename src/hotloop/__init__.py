"""hotloop: how fast a training loop is, how fast it could be, and what holds it back."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotloop.envs import make_vec
    from hotloop.loop import Lever, Loop, Stage, iterations, stage, state
    from hotloop.results.benchmark import BenchmarkResult, run_benchmark
    from hotloop.results.compare import CompareResult, run_compare
    from hotloop.results.gate import GateResult, run_gate
    from hotloop.results.optimize import OptimizeResult, run_optimize
    from hotloop.results.profile import ProfileResult, run_profile
    from hotloop.results.simplify import SimplifyResult, run_simplify
    from hotloop.watch import watch

__all__ = [
    "BenchmarkResult",
    "CompareResult",
    "GateResult",
    "Lever",
    "Loop",
    "OptimizeResult",
    "ProfileResult",
    "SimplifyResult",
    "Stage",
    "iterations",
    "make_vec",
    "run_benchmark",
    "run_compare",
    "run_gate",
    "run_optimize",
    "run_profile",
    "run_simplify",
    "stage",
    "state",
    "watch",
]

# A package that can be called as well.
_CALLED = "watch"
# No other name may be a submodule's: importing that would put the module in the name's place.
_HOMES = {
    "hotloop.loop": ("Lever", "Loop", "Stage", "iterations", "stage", "state"),
    "hotloop.envs": ("make_vec",),
    "hotloop.results.benchmark": ("BenchmarkResult", "run_benchmark"),
    "hotloop.results.compare": ("CompareResult", "run_compare"),
    "hotloop.results.gate": ("GateResult", "run_gate"),
    "hotloop.results.optimize": ("OptimizeResult", "run_optimize"),
    "hotloop.results.profile": ("ProfileResult", "run_profile"),
    "hotloop.results.simplify": ("SimplifyResult", "run_simplify"),
}


def __getattr__(name: str) -> Any:
    # Loaded at first use: `hotloop --help` needs none of it.
    if name == _CALLED:
        return importlib.import_module(f"hotloop.{name}")
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'hotloop' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
