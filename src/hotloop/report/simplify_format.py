"""What saved experiments hold."""

from typing import Any, NotRequired, get_type_hints

from hotloop.loop.cost import ProbeCost
from hotloop.loop.run import Run
from hotloop.report.format import (
    MEASURED_LOOP,
    PEAKS,
    WARM_UP,
    WORK,
    Count,
    Format,
    Share,
    as_saved,
)
from hotloop.report.ranks import RANK_ARRAYS, RANK_FACTS
from hotloop.simplify.rare_work import REST, WorkKind
from hotloop.simplify.record import ROWS, Record
from hotloop.simplify.stage_facts import Place, StageFacts


def _arms_fit(run: Run) -> str | None:
    arms = len(run.facts["arms"])
    if (run.arrays["arm_of"] >= arms).any():
        return f"arm_of: expected numbers below {arms}, one for each arm"
    numbers = {REST: -1} | {stage["name"]: stage["index"] for stage in run.facts["stages"]}
    for kind in run.facts["kinds"]:
        name, index = kind["name"], kind["index"]
        if name not in numbers:
            return f"kinds: expected names of stages, got {name!r}"
        if index != numbers[name]:
            return f"kinds: {name}: index: expected {numbers[name]}, got {index}"
    return None


def _record_facts() -> dict[str, Any]:
    """The facts of an experiment: the fields of its record that are not rows."""
    hints = get_type_hints(Record)
    stage: Any = as_saved(StageFacts, modes_ns=list[float] | None)
    kind: Any = as_saved(WorkKind, recorded_ns=NotRequired[float])
    own = {
        "stages": list[stage],
        "rest_places": list[as_saved(Place)],  # type: ignore[misc]
        "kinds": list[kind],
        "arms": dict[str, dict[str, str]],
        "warm_up": WARM_UP,
        "work": WORK,
        "peaks": PEAKS,
        "probe_cost": as_saved(ProbeCost),
    }
    return {name: hint for name, hint in hints.items() if name not in ("events", *ROWS)} | own


_FACTS = _record_facts()
_NEEDED = ("stages", "kinds", "arms")
_DIMENSIONS = {"stage_ns": "stages", "running_ns": "stages", "stage_calls": "stages"}
_DIMENSIONS |= {"rare_ns": "kinds", "rare_events": "kinds"}

SIMPLIFY_FORMAT = Format(
    settings={"worth": Share, "seed": Count},
    facts={name: _FACTS[name] for name in _NEEDED},
    optional_facts={name: kind for name, kind in _FACTS.items() if name not in _NEEDED}
    | dict(MEASURED_LOOP)
    | RANK_FACTS,
    arrays={name: f"real n {_DIMENSIONS.get(name, '')}" for name in ROWS if name != "probe_ns"}
    | {"arm_of": "count n", "round_of": "count n", "events": "int events 4"}
    | {"ns": "amount n", "units": "amount n", "iterations": "amount n"},
    optional_arrays={"meters": "any samples columns", "probe_ns": "amount n"} | RANK_ARRAYS,
    check=_arms_fit,
)
