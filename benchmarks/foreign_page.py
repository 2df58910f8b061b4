"""The page of `foreign_scripts.py`, from its raw results alone: what was said, what is true."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from foreign_table import TABLE, Script
from hotloop.loop.figures import student_quantile
from hotloop.loop.host import describe
from league.agreement import Gain, holds, read_at
from league.process import read
from league.truth import paired_gain
from tables import table

Line = dict[str, Any]
NOT_YET = "not measured yet"
NO_REST = 0.8  # a stage with this share of the time is nearly all of the loop


def kind_of(machine: Line) -> tuple[str, int]:
    """Say on what kind of machine a line was measured: only lines of one kind are compared."""
    return machine["processor"], machine["cores"]


@dataclass
class Found:
    """The newest answers about one script on one kind of machine, as long as it has not changed."""

    name: str
    text: str = ""
    machine: tuple[str, int] = ("", 0)
    package: str = ""
    answers: dict[str, Line] = field(default_factory=dict)
    turns: dict[int, Line] = field(default_factory=dict)
    pairs: dict[int, Line] = field(default_factory=dict)

    def take(self, line: Line) -> None:
        """Take a later line; one of another text of the script, or machine, makes others void."""
        if (line["text"], kind_of(line["machine"])) != (self.text, self.machine):
            self.answers, self.turns, self.pairs = {}, {}, {}
        self.text, self.machine = line["text"], kind_of(line["machine"])
        self.package = line["package"]
        if line["what"] == "pair":
            self.pairs[line["pair"]] = line
        elif line["what"] == "left":
            self.turns[line["turn"]] = line
        else:
            self.answers[line["what"]] = line

    @property
    def entry(self) -> Script:
        return TABLE[self.name]

    @property
    def rows(self) -> dict[str, Line]:
        """What the verdict says of each stage; empty where there is no verdict."""
        rows: dict[str, Line] = self.answers.get("verdict", {}).get("rows", {})
        return rows

    @property
    def missing(self) -> list[str]:
        return [stage for stage in self.entry.stages if stage not in self.rows]

    @property
    def others(self) -> list[str]:
        return [stage for stage in self.rows if stage not in self.entry.stages]

    @property
    def unit_is_right(self) -> bool:
        return self.answers.get("verdict", {}).get("unit") == self.entry.unit

    @property
    def names_the_bottleneck(self) -> bool:
        """Whether the stage of the fix is what the verdict would fix, or as good as that."""
        verdict = self.answers.get("verdict", {})
        return self.entry.stage in [*verdict.get("fix", []), *verdict.get("ties", [])]

    @property
    def left(self) -> tuple[float, float] | None:
        """What the fix leaves of its stage's time, with the half-width of its 95% interval.

        None where that was not measured. From its share of the time in both versions, each against
        the rest of the iteration, so that a machine that was faster meanwhile changes nothing;
        where there is hardly a rest, from its time in an iteration. A stage that is gone leaves
        nothing. The interval is by t over the turns.
        """
        good = [line for line in self.turns.values() if self.entry.stage in line.get("plain", {})]
        if len(good) < 2:
            return None
        left = np.array([self._left_of(line["plain"], line["fixed"]) for line in good])
        half = student_quantile(0.975, len(left) - 1) * left.std(ddof=1) / math.sqrt(len(left))
        return float(left.mean()), float(half)

    def _left_of(self, plain: Line, fixed: Line) -> float:
        old = plain[self.entry.stage]
        new = fixed.get(self.entry.stage, {"share": 0.0, "ns_per_iteration": 0.0})
        if max(old["share"], new["share"]) > NO_REST:
            return float(new["ns_per_iteration"] / old["ns_per_iteration"])
        shares = np.array([old["share"], new["share"]])
        before, after = shares / (1 - shares)
        return float(after / before)

    @property
    def predicted(self) -> Gain | str:
        """The gain that was predicted for what the fix does, or why there is none."""
        verdict = self.answers.get("verdict")
        if verdict is None:
            return NOT_YET
        if verdict.get("refused"):
            return f"no verdict: {verdict['refused']}"
        if self.entry.stage not in self.rows:
            return f"{self.entry.stage} was not recognised"
        gain = self.rows[self.entry.stage]["gain"]
        if gain["value"] is None:
            return str(gain["unknown"])
        if self.left is None:
            return "what the fix leaves is not known: " + self._why_not_left
        free = (gain["value"], gain["low"], gain["high"])
        return read_at(free, 0.0, *self.left)

    @property
    def _why_not_left(self) -> str:
        refused = [line["refused"] for line in self.turns.values() if line.get("refused")]
        return refused[-1] if refused else NOT_YET

    @property
    def true(self) -> Gain | str:
        """1 − fixed/plain of the time that a long run takes more than a short one, or why not."""
        refused = [line["refused"] for line in self.pairs.values() if line.get("refused")]
        good = [line for line in self.pairs.values() if not line.get("refused")]
        if len(good) < 2:
            return refused[-1] if refused else NOT_YET
        plain, fixed = (
            np.array([np.ptp(line[version]) for line in good]) for version in ("plain_s", "fixed_s")
        )
        value, half = paired_gain(plain, fixed)
        return value, value - half, value + half

    @property
    def did_what_was_said(self) -> bool | None:
        """Whether prediction and truth agree; None where one of them is missing."""
        predicted, true = self.predicted, self.true
        if isinstance(predicted, str) or isinstance(true, str):
            return None
        return holds(predicted, true)


def scripts_in(results: Path) -> list[Found]:
    """Return what the results say of each script that was measured."""
    found = {name: Found(name) for name in TABLE}
    for line in read(results):
        if line["script"] in found:
            found[line["script"]].take(line)
    return [each for each in found.values() if each.answers]


def write(results: Path, markdown: Path) -> None:
    """Print the page and write it. No page without results."""
    lines = read(results)
    if not lines:
        raise SystemExit(f"{results}: no results yet; run without --page-only")
    machine, parts = describe(lines[-1]["machine"]), _parts(scripts_in(results))
    head = ["# Scripts that nobody adapted", f"Last measured on {machine}."]
    page = "\n\n".join([*head, *parts])
    print(page)
    markdown.write_text(page + "\n")


def _parts(measured: list[Found]) -> Iterator[str]:
    yield (
        f"{len(measured)} of {len(TABLE)} scripts, written as the manuals of their libraries have "
        "them; they know nothing of hotloop. Each holds one bottleneck, and a flag that really "
        "removes it. Predicted: what `hotloop simplify` says the script as it stands would gain if "
        "that stage were free, read at what the fix leaves of the stage by `hotloop benchmark`. "
        "True: what the fix gains without hotloop, both versions in turns of a quarter of a "
        "second; 95% interval by t over the pairs. It did what was said if both differ by at most "
        "√(h₁² + h₂²), the two half-widths."
    )
    yield _summary(measured)
    yield table(
        ["script", "package", "cores", "stages right", "unit", "s to the verdict", "verdict: fix",
         "what was fixed", "predicted", "true", "did what was said"],
        [_row(each) for each in measured],
    )  # fmt: skip
    problems = [[each.name, *problem] for each in measured for problem in _problems(each)]
    if problems:
        yield "## What was not as expected"
        yield table(["script", "what", "how"], problems)
    yield "Made by `benchmarks/foreign_scripts.py`, whose first lines say how to run it."


def _summary(measured: list[Found]) -> str:
    judged = [each.did_what_was_said for each in measured]
    right = sum(len(each.entry.stages) - len(each.missing) for each in measured)
    stages = sum(len(each.entry.stages) for each in measured)
    works = sum("plain_s" in each.answers.get("plain", {}) for each in measured)
    units = sum(each.unit_is_right for each in measured)
    named = sum(each.names_the_bottleneck for each in measured)
    return (
        f"**{sum(each is True for each in judged)} of {len(measured)} did what was said**, "
        f"{sum(each is False for each in judged)} did not, {sum(each is None for each in judged)} "
        f"cannot be judged. {works} run; {right} of {stages} stages and {units} units were "
        f"recognised; {named} verdicts name the bottleneck."
    )


def _row(each: Found) -> list[str]:
    verdict, answer = each.answers.get("verdict", {}), each.did_what_was_said
    expected = len(each.entry.stages)
    return [
        each.name,
        each.package,
        str(each.machine[1]),
        f"{expected - len(each.missing)} of {expected}",
        "right" if each.unit_is_right else str(verdict.get("unit", "none")),
        f"{verdict['wall_s']:.0f}" if verdict and not verdict.get("refused") else "",
        ", ".join(verdict.get("fix", [])) or ("nothing" if each.rows else ""),
        each.entry.stage,
        _percent(each.predicted),
        _percent(each.true),
        {True: "yes", False: "no", None: "not known"}[answer],
    ]


def _problems(each: Found) -> Iterator[list[str]]:
    for what, line in [*each.answers.items(), *(("left", line) for line in each.turns.values())]:
        if line.get("refused"):
            yield [what, _cell(line["refused"])]
    if each.rows and each.missing:
        yield ["not recognised", ", ".join(each.missing)]
    if each.others:
        yield ["named besides", ", ".join(each.others)]
    verdict = each.answers.get("verdict", {})
    for what, gain in (("predicted", each.predicted), ("true", each.true)):
        if isinstance(gain, str) and not verdict.get("refused") and gain != NOT_YET:
            yield [what, _cell(gain)]
    for warning in verdict.get("warnings", []):
        yield ["warning", _cell(warning)]


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")


def _percent(gain: Gain | str) -> str:
    if isinstance(gain, str):
        return ""
    value, low, high = gain
    return f"{100 * value:.1f}% ± {100 * (high - low) / 2:.1f}"
