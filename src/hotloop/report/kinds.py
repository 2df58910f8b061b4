"""The table of all kinds of runs, by verb. Their order is that of the sections of a page."""

from typing import Any

from hotloop.errors import RunError, nearest
from hotloop.loop.run import Run
from hotloop.report.backends import BACKENDS
from hotloop.report.benchmark import BENCHMARK
from hotloop.report.calibrate import CALIBRATE
from hotloop.report.compare import COMPARE
from hotloop.report.gate import GATE
from hotloop.report.kind import Kind
from hotloop.report.nodes import NODES
from hotloop.report.optimize import OPTIMIZE
from hotloop.report.plan import PLAN
from hotloop.report.profile import PROFILE
from hotloop.report.simplify import SIMPLIFY
from hotloop.report.simulate import SIMULATE
from hotloop.report.split import SPLIT
from hotloop.report.train import TRAIN
from hotloop.report.watch import WATCH

KINDS: dict[str, Kind[Any]] = {
    "simplify": SIMPLIFY,
    "optimize": OPTIMIZE,
    "benchmark": BENCHMARK,
    "profile": PROFILE,
    "watch": WATCH,
    "backends": BACKENDS,
    "nodes": NODES,
    "plan": PLAN,
    "split": SPLIT,
    "compare": COMPARE,
    "gate": GATE,
    "train": TRAIN,
    "simulate": SIMULATE,
    "calibrate": CALIBRATE,
}


def kind_of(run: Run) -> Kind[Any]:
    """The kind of a run.

    Raises: RunError for a kind that is not in the table.
    """
    kind = KINDS.get(run.verb)
    if kind is None:
        raise RunError(
            f"a {run.verb} run of {run.target} has no report in this version"
            f"{nearest(run.verb, KINDS)}"
        )
    return kind
