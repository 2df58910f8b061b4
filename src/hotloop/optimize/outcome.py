"""What a search has found, as a run keeps it and reports read it."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotloop.loop.figures import Figure, Interval, Unknown
from hotloop.loop.lever import Lever, Option
from hotloop.optimize.advice import Advice, Evidence, HotLine
from hotloop.optimize.search import Search

Gains = Mapping[str, Interval]
"""By stage, the share of the time that is gained if the stage were free."""


@dataclass(frozen=True)
class LeverFound:
    """A lever with what is known of it.

    before, after: its option, after the search. expected: the share of the time that it can save
    at most; stages: the experiment on which stages says so. left_out: why it was not tried.
    """

    name: str
    options: Sequence[Option]
    before: Option
    after: Option
    about: str
    area: str
    keeps_result: bool | float
    risk: str
    stages: Sequence[str]
    expected: Figure
    left_out: str = ""


@dataclass(frozen=True)
class TrialFound:
    """A choice that was tried: what it changed, and how many times faster it was, or why not."""

    changes: Mapping[str, Option]
    ratio: Figure
    rounds: int
    problem: str | None


@dataclass(frozen=True)
class Outcome:
    """The answer of a search.

    gain: how many times faster the best is than the start. predicted: the share of the time that
    the levers which were changed could save at most. over: why the search ended. unchecked: why it
    could not be checked whether changes keep what the loop computes; empty where they were.
    judged_by: the rate, or the time to the target. advice: on the loop's own code.
    """

    unit: str
    levers: list[LeverFound]
    trials: list[TrialFound]
    best: dict[str, Option]
    gain: Figure
    predicted: Figure
    over: str
    unchecked: str
    judged_by: str
    experiment: str
    seconds: float
    advice: list[Advice]

    @property
    def saved(self) -> Figure:
        """The share of the time that the best saves: 1 less the ratio of the times."""
        gain = self.gain
        if isinstance(gain, Unknown):
            return gain
        if isinstance(gain, Interval):
            return Interval(1 - 1 / gain.value, 1 - 1 / gain.low, 1 - 1 / gain.high)
        return 1 - 1 / gain


# How `Outcome.experiment` begins where there is none; the reason follows.
NOT_KNOWN = "none: "
RATE, TIME_TO_TARGET = "rate", "time to target"


def facts_of(
    search: Search,
    levers: Sequence[Lever],
    left_out: Mapping[str, str],
    gains: Gains,
    **known: Any,
) -> dict[str, Any]:
    """A search as the facts of a run."""
    best = search.space.changes(search.best)
    gain = search.gain
    return {
        "levers": [
            _lever_facts(lever, best.get(lever.name, lever.now), left_out.get(lever.name, ""))
            for lever in levers
        ],
        "gains": {name: dataclasses.astuple(each) for name, each in gains.items()},
        "trials": [
            {
                "changes": search.space.changes(each.choice),
                "ratio": each.ratio if math.isfinite(each.ratio) else None,
                "rounds": each.rounds,
                "problem": each.problem,
            }
            for each in search.trials
        ],
        "best": best,
        "gain": None if gain is None else dataclasses.astuple(gain),
        "over": search.over,
        **known,
    }


def outcome_of(facts: Mapping[str, Any]) -> Outcome:
    """The answer that the facts of a run hold."""
    gains = {name: Interval(*each) for name, each in facts["gains"].items()}
    levers = [
        LeverFound(**each, expected=expected(each["stages"], gains)) for each in facts["levers"]
    ]
    unknown = Unknown("too few rounds")
    trials = [
        TrialFound(
            each["changes"],
            unknown if each["ratio"] is None else float(each["ratio"]),
            each["rounds"],
            each["problem"],
        )
        for each in facts["trials"]
    ]
    gain = facts["gain"]
    changed = [stage for each in levers if each.name in facts["best"] for stage in each.stages]
    names = ("unit", "over", "unchecked", "judged_by", "experiment", "seconds")
    return Outcome(
        levers=levers,
        trials=trials,
        best=dict(facts["best"]),
        gain=Unknown("the search was cut short") if gain is None else Interval(*gain),
        predicted=expected(changed, gains),
        advice=[_advice(each) for each in facts["advice"]],
        **{name: facts[name] for name in names},
    )


def expected(stages: Sequence[str], gains: Gains) -> Figure:
    """The share of the time that changes to some stages can save at most.

    What two stages gain together may be more than the larger of their gains, and never more than
    all of the time: the sum of both, up to 1.
    """
    known = [gains[stage] for stage in dict.fromkeys(stages) if stage in gains]
    if not known:
        return Unknown("no experiment on a stage speaks for it")
    total = Interval(
        *(sum(max(0.0, getattr(each, end)) for each in known) for end in ("value", "low", "high"))
    )
    return total.at_most(1.0)


def advice_facts(advice: Sequence[Advice]) -> list[dict[str, Any]]:
    """Advice as the facts of a run."""
    return [
        {
            **dataclasses.asdict(each),
            "at_most": _figure_facts(each.at_most),
            "evidence": [[e.name, _figure_facts(e.value), e.unit] for e in each.evidence],
            "hottest": [[h.file, h.line, h.function, _figure_facts(h.share)] for h in each.hottest],
        }
        for each in advice
    ]


def _advice(facts: Mapping[str, Any]) -> Advice:
    evidence = tuple(Evidence(n, _figure(value), unit) for n, value, unit in facts["evidence"])
    hottest = tuple(
        HotLine(file, line, name, _figure(share)) for file, line, name, share in facts["hottest"]
    )
    figures = {"at_most": _figure(facts["at_most"]), "evidence": evidence, "hottest": hottest}
    return Advice(**{**facts, **figures})


def _figure_facts(figure: Figure) -> Any:
    """A number, the three of an interval, or the reason why it is not known."""
    if isinstance(figure, Interval):
        return list(dataclasses.astuple(figure))
    return figure.why if isinstance(figure, Unknown) else figure


def _figure(facts: Any) -> Figure:
    if isinstance(facts, str):
        return Unknown(facts)
    return Interval(*facts) if isinstance(facts, list) else float(facts)


def _lever_facts(lever: Lever, after: Option, left_out: str) -> dict[str, Any]:
    names = ("name", "options", "about", "area", "keeps_result", "risk", "stages")
    found = {name: getattr(lever, name) for name in names}
    found |= {"options": list(lever.options), "stages": list(lever.stages)}
    return found | {"before": lever.now, "after": after, "left_out": left_out}
