"""What a saved run of a kind must hold; `hotloop.report.format_check` checks that it does."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict, get_type_hints

from hotloop.benchmark.peaks import Peaks
from hotloop.benchmark.warmup import WarmUp
from hotloop.benchmark.work import Work
from hotloop.loop.run import Run

LARGEST = 2**62  # above any number that a run measures

Positive = Annotated[float, ("above 0", lambda x: 0 < x < math.inf)]
Count = Annotated[int, ("0 or more", lambda x: 0 <= x < LARGEST)]
Share = Annotated[float, ("between 0 and 1", lambda x: 0 <= x <= 1)]

Types = Mapping[str, Any]  # the type of each name


@dataclass(frozen=True)
class Format:
    """What a run of one kind holds.

    settings, facts: names and types that it must have; optional_facts: that it may have.
    dict_facts: for a fact that is a dict, names and types that it must have, and that it may have.
    arrays, optional_arrays: for each array, what its numbers may be ("count", "real", …), then the
    size of each dimension, as a number or a name. Equal names are equal sizes; a name that is also
    the name of a list among the facts is the length of that list. run_arrays, optional_run_arrays:
    the same for arrays whose names depend on the facts, which are checked before. check: returns
    what else does not fit, if anything.
    """

    settings: Types = field(default_factory=dict)
    facts: Types = field(default_factory=dict)
    optional_facts: Types = field(default_factory=dict)
    dict_facts: Mapping[str, tuple[Types, Types]] = field(default_factory=dict)
    arrays: Mapping[str, str] = field(default_factory=dict)
    optional_arrays: Mapping[str, str] = field(default_factory=dict)
    run_arrays: Callable[[Run], Mapping[str, str]] = lambda _run: {}
    optional_run_arrays: Callable[[Run], Mapping[str, str]] = lambda _run: {}
    check: Callable[[Run], str | None] = lambda _run: None


HOST: Types = {
    "processor": str,
    "cores": Positive,
    "memory_bytes": Positive,
    "python": str,
    "date": str,
}
OPTIONAL_HOST: Types = {"quota_cores": Positive | None, "gpu": str | None, "command": str}


def as_saved(kind: type[Any], **other: Any) -> Any:
    """The type of a dataclass as JSON holds it. other: types of fields that are saved otherwise."""
    return TypedDict(kind.__name__, get_type_hints(kind) | other)  # type: ignore[operator]


# Types of facts that more than one kind of run has.
WARM_UP = as_saved(WarmUp) | None
# Runs of before hotloop had rules for more than products have no number of those alone.
WORK = as_saved(Work, by_stage=dict[str, list[float]], product_flops=NotRequired[float]) | None
PEAKS = as_saved(Peaks) | None
MEASURED_LOOP: Types = {
    "seconds": float,
    "start_up_s": float | None,
    "first_batch_s": float | None,
    "no_iterations": str | None,
    "iterations_marked_by": str | None,
    "gpu_problem": str | None,
    "gpu_activity_problem": str | None,
    "usable_cores": Positive,
    "whole_process": bool,
}
