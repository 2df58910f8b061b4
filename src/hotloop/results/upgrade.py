"""Runs of earlier versions, whose content is brought into today's form.

Until runs named the outputs of their model, `simulate` and `calibrate` runs held the counts of one
model, an epidemic: infections and deaths by day, a reproduction number for each week, a mortality.
"""

import dataclasses
from typing import Any

import numpy as np

from hotloop.errors import RunError
from hotloop.loop.run import Run
from hotloop.report.format import Count, Format, Positive, Types
from hotloop.report.format_check import problem_of

_MODEL_FACTS: Types = {
    "model": str,
    "population": str,
    "agents": Positive,
    "contacts": Count,
    "infected_at_start": Count,
    "device": str,
    "seconds": float,
}


def _interval_fits(run: Run) -> str | None:
    interval = run.facts["mortality_interval"]
    if interval is not None and len(interval) != 2:
        return f"facts: mortality_interval: expected two numbers, got {interval!r}"
    return None


_SIMULATE = Format(
    settings={"seed": Count, "steps": Count, "replicates": Count},
    facts={**_MODEL_FACTS, "stats": dict[str, Any]},
    arrays={"daily_infected": "count runs days", "daily_deaths": "count runs days"},
)
_CALIBRATE = Format(
    settings={"seed": Count},
    facts={
        **_MODEL_FACTS,
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
    optional_arrays={
        "observed_deaths": "real days",
        "infected": "real 3 days",
        "deaths": "real 3 days",
    },
    check=_interval_fits,
)
_OUTPUTS = [
    {
        "name": "daily_infected",
        "label": "infections",
        "kind": "count",
        "word": "infected",
        "total_name": "total_infected",
        "total_label": "infections in all",
        "share_of": "agents",
        "share_label": "of the agents",
        "peak": True,
        "colour": 0,
    },
    {
        "name": "daily_deaths",
        "label": "deaths",
        "kind": "count",
        "word": "died",
        "total_name": "total_deaths",
        "total_label": "deaths in all",
        "share_of": "daily_infected",
        "share_label": "of the infected so far",
        "peak": False,
        "colour": 3,
    },
]


def upgraded(run: Run) -> Run:
    """The run in today's form: itself, or a new one if an earlier version wrote it.

    Raises: RunError for the run of an earlier version whose content does not fit together.
    """
    if "outputs" in run.facts or "infected_at_start" not in run.facts:
        return run
    if run.verb not in _EARLIER:
        return run
    earlier, upgrade = _EARLIER[run.verb]
    problem = problem_of(run, earlier)
    if problem is not None:
        raise RunError(problem)
    return upgrade(run)


def _simulate(run: Run) -> Run:
    heading = f"How {run.facts['model']} spreads in {run.facts['population']}"
    return dataclasses.replace(run, facts=_model_facts(run) | {"heading": heading})


def _calibrate(run: Run) -> Run:
    arrays, facts = dict(run.arrays), _model_facts(run)
    weeks = len(arrays["rate"])
    with_deaths = "observed_deaths" in arrays
    facts["parameters"] = [
        *(
            {"label": f"R, week {k + 1}", "group": "R by week", "fitted": True}
            for k in range(weeks)
        ),
        {"label": "mortality", "group": "mortality", "fitted": with_deaths},
    ]
    note = "fitted to the deaths" if with_deaths else "kept: no deaths were given to fit it to"
    facts["groups"] = [{"label": "R by week", "note": ""}, {"label": "mortality", "note": note}]
    facts["loss_label"] = "Poisson deviance of the observed counts, a mean over the days."
    interval = facts.pop("mortality_interval") or [np.nan, np.nan]
    for name, mortality in (
        ("", facts.pop("mortality")),
        ("_first", facts.pop("mortality_first")),
        ("_interval", [interval]),
    ):
        arrays[f"parameter{name}"] = np.append(
            np.asarray(arrays.pop(f"rate{name}"), np.float64),
            np.atleast_1d(np.asarray(mortality, np.float64)),
            axis=0,
        )
    for name in ("infected", "deaths"):
        for old, new in (("observed_", "observed_daily_"), ("", "fitted_daily_")):
            if old + name in arrays:
                arrays[new + name] = arrays.pop(old + name)
    return dataclasses.replace(run, facts=facts, arrays=arrays)


def _model_facts(run: Run) -> dict[str, Any]:
    """The facts with the words of the model in place of `infected_at_start`."""
    facts = dict(run.facts)
    start = [["infected", facts.pop("infected_at_start")]]
    return facts | {"step": "day", "start": start, "outputs": [dict(each) for each in _OUTPUTS]}


_EARLIER = {"simulate": (_SIMULATE, _simulate), "calibrate": (_CALIBRATE, _calibrate)}
