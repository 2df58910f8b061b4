"""Curves over the steps of a model, as plain numbers: what `simulate` and `calibrate` runs share.

The terminal, the page and the picture draw these. What the steps and the outputs of a model are
called, and what they count, is among the facts of the run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

from hotloop.loop.figures import Interval
from hotloop.loop.run import Run
from hotloop.report.charts.svg import COLOURS
from hotloop.report.format import Count, Positive, Types
from hotloop.report.numbers import number

Array = np.ndarray[Any, Any]

# A table shows so many steps at most, and then one in so many: weeks of days.
_MOST_ROWS = 31
_EACH = {"day": 7}

# --- what a saved run holds ---------------------------------------------------------------------


class OutputFacts(TypedDict):
    """An output of a model: a number at each step, and the words for it.

    kind: "count" for events of a step, which add up over the steps; "level" for a value that does
    not, such as a share. label: the plural noun of the events, or the name of the level. word:
    heads the line of the answer. total_name, total_label: of the sum over the steps. share_of:
    "agents" or the name of another count; the total is reported as a share of it, with
    share_label. peak: whether the highest value is reported. colour: a number, as on the page.
    """

    name: str
    label: str
    kind: Literal["count", "level"]
    word: NotRequired[str | None]
    total_name: NotRequired[str | None]
    total_label: NotRequired[str | None]
    share_of: NotRequired[str | None]
    share_label: NotRequired[str | None]
    peak: bool
    colour: int


MODEL_FACTS: Types = {
    "model": str,
    "population": str,
    "agents": Positive,
    "contacts": Count | None,
    "device": str,
    "seconds": float,
    "step": str,
    "start": list[list[str | int]],
    "outputs": list[OutputFacts],
}


def outputs_fit(run: Run) -> str | None:
    """Say what does not fit in the facts about the model's start and outputs, if anything."""
    for entry in run.facts["start"]:
        if [type(part) for part in entry] != [str, int]:
            return f"facts: start: expected pairs of a word and a number, got {entry!r}"
    outputs = run.facts["outputs"]
    if not outputs:
        return "facts: outputs: expected one at least"
    for key in ("name", "label"):
        values = [output[key] for output in outputs]
        if len(set(values)) < len(values):
            return f"facts: outputs: expected each {key} once, got {values}"
    for output in outputs:
        if not 0 <= output["colour"] < COLOURS:
            return f"facts: outputs: colour: expected 0 to {COLOURS - 1}, got {output['colour']}"
    whole = {"agents", *(output["name"] for output in outputs if output["kind"] == "count")}
    for output in outputs:
        share_of = output.get("share_of")
        if share_of is not None and share_of not in whole:
            return f"facts: outputs: share_of: expected one of {sorted(whole)}, got {share_of!r}"
    return None


# --- what is drawn ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """One output of a model, with every word filled in; see `OutputFacts`."""

    name: str
    label: str
    is_count: bool
    word: str
    total_label: str
    share_of: str | None
    share_label: str
    peak: bool
    colour: int


def outputs_of(run: Run) -> list[Output]:
    """The outputs of a run; words that it does not give are made from the labels."""
    labels = {output["name"]: output["label"] for output in run.facts["outputs"]}
    return [
        Output(
            name=facts["name"],
            label=facts["label"],
            is_count=facts["kind"] == "count",
            word=facts.get("word") or facts["label"],
            total_label=facts.get("total_label") or f"{facts['label']} in all",
            share_of=facts.get("share_of"),
            share_label=facts.get("share_label") or f"of the {_whole_of(facts, labels)}",
            peak=facts["peak"],
            colour=facts["colour"],
        )
        for facts in run.facts["outputs"]
    ]


def _whole_of(facts: OutputFacts, labels: Mapping[str, str]) -> str:
    whole = facts.get("share_of") or ""
    return labels.get(whole, whole)


@dataclass(frozen=True)
class Curve:
    """One output over the steps; each list has one number for each step.

    low, high: where 95% of the replicates lie. observed: the data of a fit. colour: its number.
    step: what one step is called. per: "a day", if the values are counts of each step. is_count:
    whether the values are counts.
    """

    name: str
    middle: list[float]
    low: list[float]
    high: list[float]
    observed: list[float] | None = None
    colour: int = 0
    step: str = "step"
    per: str = ""
    is_count: bool = True

    @property
    def title(self) -> str:
        """The name with the unit of time: arrivals a day."""
        return f"{self.name} {self.per}".rstrip()

    @property
    def has_band(self) -> bool:
        """Whether low and high differ anywhere."""
        return self.low != self.high

    def at(self, step: int) -> str:
        """The value at a step, with its interval, as text."""
        return self.text(Interval(self.middle[step], self.low[step], self.high[step]))

    def text(self, of: Interval) -> str:
        """A value of this curve as text, with its interval if that has a width."""
        return counts(of) if self.is_count else levels(of)

    def single(self, value: float) -> str:
        """A single value of this curve as text."""
        return count(value) if self.is_count else number(value)


@dataclass(frozen=True)
class Setting:
    """What a run was about: a model, a population, and how it was run."""

    model: str
    population: str
    agents: int
    contacts: int | None
    start: list[tuple[str, int]]
    step: str
    steps: int
    replicates: int
    seed: int
    device: str


def setting_of(run: Run, steps: int, replicates: int) -> Setting:
    """Read the setting of a run with this number of steps and replicates."""
    facts = run.facts
    return Setting(
        model=str(facts["model"]),
        population=str(facts["population"]),
        agents=int(facts["agents"]),
        contacts=facts["contacts"],
        start=[(str(label), int(number)) for label, number in facts["start"]],
        step=str(facts["step"]),
        steps=steps,
        replicates=replicates,
        seed=int(run.settings["seed"]),
        device=str(facts["device"]),
    )


def across(values: Array) -> Interval:
    """The median over replicates (R,), and where 95% of them lie."""
    low, middle, high = np.percentile(values, [2.5, 50.0, 97.5])
    return Interval(float(middle), float(low), float(high))


def curve_of(output: Output, runs: Array, step: str, *, total: bool = False) -> Curve:
    """The curve of an output from its replicates (R, T). total: summed up over the steps."""
    values = runs.cumsum(1) if total else runs
    low, middle, high = np.percentile(values, [2.5, 50.0, 97.5], axis=0)
    return Curve(
        output.total_label if total else output.label,
        middle.tolist(),
        low.tolist(),
        high.tolist(),
        colour=output.colour,
        step=step,
        per=f"a {step}" if output.is_count and not total else "",
        is_count=output.is_count,
    )


# --- in words -----------------------------------------------------------------------------------


def about(setting: Setting) -> str:
    """Describe the population and how it was run, in a line."""
    parts = [f"{setting.agents:,} agents"]
    if setting.contacts is not None:
        parts.append(f"{setting.contacts:,} contacts")
    if setting.start:
        begin = ", ".join(f"{number:,} {label}" for label, number in setting.start)
        parts.append(f"{begin} at the start")
    runs = "1 run" if setting.replicates == 1 else f"{setting.replicates:,} runs"
    return (
        f"{', '.join(parts)}; {steps(setting)}, {runs} from seed {setting.seed} on {setting.device}"
    )


def steps(setting: Setting) -> str:
    """The number of steps with their name: 21 days."""
    return f"{setting.steps} {setting.step}{'s' if setting.steps != 1 else ''}"


def middle_of(middle: str, replicates: int) -> str:
    """Say what the numbers of a table are. middle: "median" or "mean"."""
    if replicates == 1:
        return "one run"
    return f"{middle} of {replicates:,} runs, in brackets where 95% of them lie"


def count(value: float) -> str:
    """A count: 12,345; the half of a median is shown where it can be seen."""
    return f"{value:,.1f}".removesuffix(".0") if value < 1000 else f"{value:,.0f}"


def counts(of: Interval) -> str:
    """A count with its interval, if that has a width."""
    if of.low == of.high:
        return count(of.value)
    return f"{count(of.value)} [{count(of.low)}, {count(of.high)}]"


def levels(of: Interval) -> str:
    """A level with its interval, if that has a width."""
    if of.low == of.high:
        return number(of.value)
    return f"{number(of.value)} [{number(of.low)}, {number(of.high)}]"


def shown_steps(count: int, step: str) -> list[int]:
    """The steps in a table: all of a month; of more days one a week, of other steps one in 2, 5,
    10, …; and the last.
    """
    if count <= _MOST_ROWS:
        return list(range(count))
    return [*range(0, count - 1, _EACH.get(step) or _round_step(count)), count - 1]


def _round_step(count: int) -> int:
    size = int(10 ** math.floor(math.log10(count / _MOST_ROWS)))
    return next(size * k for k in (1, 2, 5, 10) if size * k * _MOST_ROWS >= count)


def table_head(curves: Sequence[Curve]) -> list[str]:
    """The head of a table with one row for each step."""
    head = [curves[0].step]
    for curve in curves:
        head += [f"{curve.name} observed"] if curve.observed is not None else []
        head.append(curve.name)
    return head


def table_rows(curves: Sequence[Curve]) -> list[list[str]]:
    """The rows of that table: what was observed, if anything was, beside what was simulated."""
    rows = []
    for step in shown_steps(len(curves[0].middle), curves[0].step):
        row = [str(step)]
        for curve in curves:
            row += [curve.single(curve.observed[step])] if curve.observed is not None else []
            row.append(curve.at(step))
        rows.append(row)
    return rows
