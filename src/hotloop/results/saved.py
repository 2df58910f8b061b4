"""Saved runs as they are read again: what a run of each verb holds, checked before it is drawn.

A run file comes from anywhere: an older version, a colleague, an editor. What does not fit is
refused here, in one sentence, so that whatever draws a run can rely on it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict, get_args, get_origin, get_type_hints

import numpy as np
from typeguard import CollectionCheckStrategy, TypeCheckError, check_type

from hotloop.benchmark.peaks import Peaks
from hotloop.benchmark.warmup import WarmUp
from hotloop.benchmark.work import Work
from hotloop.errors import RunError
from hotloop.loop.cost import ProbeCost
from hotloop.loop.run import Run, load
from hotloop.simplify.rare import REST, WorkKind
from hotloop.simplify.record import ROWS, Record, StageFacts

LARGEST = 2**62  # no number that was measured is as large

Positive = Annotated[float, ("above 0", lambda x: 0 < x < math.inf)]
Count = Annotated[int, ("0 or more", lambda x: 0 <= x < LARGEST)]
Share = Annotated[float, ("between 0 and 1", lambda x: 0 <= x <= 1)]

Names = Mapping[str, Any]  # names with their types


def _as_saved(kind: type[Any], **other: Any) -> Any:
    """The dict that JSON has of a dataclass; `other`: fields that it has in another way."""
    return TypedDict(kind.__name__, get_type_hints(kind) | other)  # type: ignore[operator]


_WARM_UP = _as_saved(WarmUp) | None
_WORK = _as_saved(Work, by_stage=dict[str, list[float]]) | None
_PEAKS = _as_saved(Peaks) | None


class _MeasuredStage(TypedDict):
    """A stage of a benchmark."""

    name: str
    kind: str
    effect: str
    inside: str | None
    bytes_per_call: float | None
    cpu_share: float | None
    index: int


class _Variant(TypedDict):
    """A row of a sweep of backends."""

    backend: str
    num_workers: int | None
    splits: int
    envs_per_worker: int | None
    chosen: str | None
    problem: str | None


@dataclass(frozen=True)
class Format:
    """What a run of one verb holds.

    settings, facts: those that it must have, and `more` those that it may have. arrays: a kind of
    numbers and the sizes, by name or number; equal names are equal sizes, and "stages", "kinds"
    and "variants" are the numbers of those among the facts. also: what else must fit.
    """

    settings: Names = field(default_factory=dict)
    facts: Names = field(default_factory=dict)
    more: Names = field(default_factory=dict)
    arrays: Mapping[str, str] = field(default_factory=dict)
    more_arrays: Mapping[str, str] = field(default_factory=dict)
    also: Callable[[Run], str | None] = lambda _run: None


def _blocks_fit(run: Run) -> str | None:
    blocks = len(run.arrays["stage_ns"])
    if (run.arrays["block_of"] >= blocks).any():
        return f"block_of: expected numbers below {blocks}, one for each block"
    return None


def _arms_fit(run: Run) -> str | None:
    arms = len(run.facts["arms"])
    if (run.arrays["arm_of"] >= arms).any():
        return f"arm_of: expected numbers below {arms}, one for each arm"
    known = {REST, *(stage["name"] for stage in run.facts["stages"])}
    strange = [kind["name"] for kind in run.facts["kinds"] if kind["name"] not in known]
    return f"kinds: expected names of stages, got {strange[0]!r}" if strange else None


def _variants_fit(run: Run) -> str | None:
    for variant in run.facts["variants"]:
        for name in ("num_workers", "splits", "envs_per_worker"):
            number = variant[name]
            if number is not None and number < 1:
                return f"variants: {name}: expected a number above 0, got {number}"
    return None


def _stats_fit(run: Run) -> str | None:
    needed = {"agent_steps_per_s": float, "program": str, "precision": str}
    return _misfit("stats", run.facts["stats"], needed, {"active_share": Share})


def _record_facts() -> dict[str, Any]:
    """The facts of an experiment: the fields of its record that are no rows."""
    hints = get_type_hints(Record)
    skip = {"arms", "events", "stages", "kinds", "warm_up", "work", "peaks", "probe_cost", *ROWS}
    plain = {name: hint for name, hint in hints.items() if name not in skip}
    stage: Any = _as_saved(StageFacts, modes_ns=list[float] | None)
    kind: Any = _as_saved(WorkKind, recorded_ns=NotRequired[float])
    return plain | {
        "stages": list[stage],
        "kinds": list[kind],
        "arms": dict[str, dict[str, str]],
        "warm_up": _WARM_UP,
        "work": _WORK,
        "peaks": _PEAKS,
        "probe_cost": _as_saved(ProbeCost),
    }


_RECORD = _record_facts()
_NEEDED = ("stages", "kinds", "arms")
_SIMULATED: Names = {
    "model": str,
    "population": str,
    "agents": Positive,
    "contacts": Count,
    "infected_at_start": Count,
    "device": str,
    "seconds": float,
}
_OF_SCRIPTS: dict[str, Any] = {
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
_WIDE = {"stage_ns": "stages", "running_ns": "stages", "stage_calls": "stages"}
_WIDE |= {"rare_ns": "kinds", "rare_events": "kinds"}

FORMATS: Mapping[str, Format] = {
    "benchmark": Format(
        facts={"stages": list[_MeasuredStage], "warm_up": _WARM_UP, "work": _WORK},
        more={
            **_OF_SCRIPTS,
            "unit": str,
            "batches_per_iteration": Positive,
            "price_per_hour": Positive | None,
            "work_problem": str | None,
            "peaks": _PEAKS,
            "dropped_events": Count,
        },
        arrays={
            "start_ns": "count n",
            "duration_ns": "count n",
            "units": "amount n",
            "block_of": "count n",
            "stage_ns": "real blocks stages",
            "stage_calls": "real blocks stages",
            "events": "int events 4",
        },
        more_arrays={"stage_running_ns": "real blocks stages", "meters": "any samples columns"},
        also=_blocks_fit,
    ),
    "simplify": Format(
        settings={"worth": Share, "seed": Count},
        facts={name: _RECORD[name] for name in _NEEDED},
        more={name: kind for name, kind in _RECORD.items() if name not in _NEEDED} | _OF_SCRIPTS,
        arrays={name: f"real n {_WIDE.get(name, '')}" for name in ROWS if name != "probe_ns"}
        | {"arm_of": "count n", "round_of": "count n", "events": "int events 4"}
        | {"ns": "amount n", "units": "amount n", "iterations": "amount n"},
        more_arrays={"meters": "any samples columns", "probe_ns": "amount n"},
        also=_arms_fit,
    ),
    "backends": Format(
        facts={
            "env_id": str,
            "num_envs": Positive,
            "round_s": Positive,
            "choice": str | None,
            "variants": list[_Variant],
        },
        arrays={"sps": "rate variants rounds"},
        also=_variants_fit,
    ),
    "train": Format(
        facts={
            "env_id": str,
            "threshold": float | None,
            "solved": bool,
            "steps_to_solve": Count | None,
            "seconds_to_solve": float | None,
        },
        more={"unit": str},
        arrays={
            "env_steps": "count n",
            "seconds": "real n",
            "mean_return": "any n",
            "passed": "bool n",
        },
    ),
    "simulate": Format(
        settings={"seed": Count, "steps": Count, "replicates": Count},
        facts={**_SIMULATED, "stats": dict[str, Any]},
        arrays={"daily_infected": "count runs days", "daily_deaths": "count runs days"},
        also=_stats_fit,
    ),
    "calibrate": Format(
        settings={"seed": Count},
        facts={
            **_SIMULATED,
            "replicates": Count,
            "mortality": float,
            "mortality_first": float,
            "mortality_interval": list[float] | None,
            "notes": list[str],
        },
        arrays={
            "loss": "any iterations",
            "rate": "any weeks",
            "rate_first": "any weeks",
            "rate_interval": "any weeks 2",
            "observed_infected": "real days",
        },
        more_arrays={
            "observed_deaths": "real days",
            "infected": "real 3 days",
            "deaths": "real 3 days",
        },
    ),
}

HOST: Names = {
    "processor": str,
    "cores": Positive,
    "memory_bytes": Positive,
    "python": str,
    "date": str,
}
MORE_OF_HOST: Names = {"quota_cores": Positive | None, "gpu": str | None, "command": str}


def open_run(path: Path) -> Run:
    """Read a saved run that can be drawn.

    Raises: RunError, in one sentence, for what cannot: no run, a damaged one, or one whose content
    does not fit together.
    """
    run = load(path)
    known = FORMATS.get(run.verb)
    if known is None:
        raise RunError(f"{path} is a {run.verb} run, which this version cannot draw")
    problem = _problem(run, known)
    if problem is not None:
        raise RunError(f"{path} was edited or damaged: {problem}")
    return run


def _problem(run: Run, known: Format) -> str | None:
    """What does not fit, if anything."""
    return (
        _too_large([run.host, run.settings, run.facts])
        or _misfit("host", run.host, HOST, MORE_OF_HOST)
        or _misfit("settings", run.settings, known.settings, {})
        or _misfit("facts", run.facts, known.facts, known.more)
        or _array_problem(run, known)
        or known.also(run)
    )


def _too_large(value: Any) -> str | None:
    """A number anywhere in a tree that nothing can be counted with."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return next((why for part in value if (why := _too_large(part)) is not None), None)
    if isinstance(value, int | float) and not (math.isnan(value) or abs(value) < LARGEST):
        return f"expected numbers that can be counted with, got {value!r}"
    return None


def _misfit(where: str, values: Mapping[str, Any], needed: Names, more: Names) -> str | None:
    for name in needed:
        if name not in values:
            return f"{where}: it has no {name!r}"
    for name, kind in {**more, **needed}.items():
        if name in values and (why := _wrong(values[name], kind)) is not None:
            return f"{where}: {name}: {why}"
    return None


def _wrong(value: Any, kind: Any) -> str | None:
    """Why a value is not of a type, if so; a rule of an `Annotated` type is kept as well."""
    rules = [part for part in (kind, *get_args(kind)) if get_origin(part) is Annotated]
    try:
        check_type(value, kind, collection_check_strategy=CollectionCheckStrategy.ALL_ITEMS)
    except TypeCheckError as error:
        return " ".join(str(error).split())
    for expected, holds in (get_args(rule)[1] for rule in rules if value is not None):
        if isinstance(value, bool) or not holds(value):
            return f"expected a number {expected}, got {value!r}"
    return None


# What the numbers of an array may be, by NumPy's kinds and in words.
_KINDS = {
    "count": ("iu", "whole numbers from 0 on"),
    "int": ("iu", "whole numbers"),
    "amount": ("iuf", "numbers from 0 on"),
    "real": ("iuf", "finite numbers"),
    "rate": ("iuf", "numbers from 0 on, or none"),
    "any": ("iuf", "finite numbers, or none"),
    "bool": ("b", "yes or no"),
}


def _array_problem(run: Run, known: Format) -> str | None:
    sizes = {
        name: len(run.facts[name])
        for name in ("stages", "kinds", "variants")
        if isinstance(run.facts.get(name), Sequence)
    }
    for name, described in {**known.arrays, **known.more_arrays}.items():
        array = run.arrays.get(name)
        if array is None:
            if name in known.arrays:
                return f"arrays: it has no {name!r}"
            continue
        kind, *wanted = described.split()
        if array.dtype.kind not in (_KINDS[kind][0] if array.size else "iufb"):
            return f"arrays: {name}: expected {_KINDS[kind][1]}, got {array.dtype}"
        if array.ndim != len(wanted):
            return f"arrays: {name}: expected {len(wanted)} dimensions, got {array.ndim}"
        for size, of in zip(array.shape, wanted, strict=True):
            expected = int(of) if of.isdigit() else sizes.setdefault(of, size)
            if size != expected:
                return f"arrays: {name}: expected {expected} {of}, got {size}"
        if not _holds(array, kind):
            return f"arrays: {name}: expected {_KINDS[kind][1]}"
    return None


def _holds(array: np.ndarray, kind: str) -> bool:
    if kind in ("any", "rate"):
        array = array[~np.isnan(array)]
    least = -LARGEST if kind in ("int", "real", "any") else 0
    return bool(((array >= least) & (array < LARGEST)).all())
