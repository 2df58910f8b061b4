"""The league's page, made from its raw results alone: what was predicted, what was true."""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foreign_page import scripts_in
from hotloop.loop.host import describe
from league import agreement
from league.agreement import Gain, read_at, width_of
from league.entry import Entry
from league.loops import LOOPS
from league.process import read
from league.reasons import REASONS
from tables import table

WORTH = 0.03
SCRIPT = "script"  # the class of scripts that nobody adapted
STEADY_WIDTH = 0.06  # wanted of the full interval, in the median of steady loops


@dataclass(frozen=True)
class Judged:
    """One pair with both its numbers."""

    loop: str
    stage: str
    left: float
    left_by_clock: float | None  # of the stage's time, where that was measured
    predicted: Gain
    true: Gain
    kind: str

    @property
    def off(self) -> float:
        return self.predicted[0] - self.true[0]

    @property
    def allowed(self) -> float:
        return agreement.allowed(self.predicted, self.true)

    @property
    def holds(self) -> bool:
        return agreement.holds(self.predicted, self.true)


@dataclass
class League:
    """What the results say of one version."""

    version: str
    facts: dict[str, Any]
    predictions: dict[str, dict[str, Any]]
    truths: dict[tuple[str, str, float], dict[str, Any]]
    judged: list[Judged]
    without: list[tuple[str, str, float, str]]  # pairs without a comparison, and why
    set_aside: int = 0  # truths that were measured again, at another speed of the machine


def write(results: Path, version: str | None, markdown: Path | None, scripts: Path) -> None:
    """Print the page of a version, and write it where asked. No page without results.

    scripts: the results of scripts that nobody adapted; each of them is one pair more.
    """
    lines = read(results)
    found = league(lines, version or lines[-1]["version"])
    _add_scripts(found, scripts)
    page = "\n\n".join(
        [
            "# Predicted and true gains",
            describe(found.facts) + ".",
            *_parts(found),
            "Made by `benchmarks/predictions.py`, whose first lines say how to run it.",
        ]
    )
    print(page)
    if markdown is not None:
        markdown.write_text(page + "\n")


def league(lines: list[dict[str, Any]], version: str) -> League:
    """Put predictions and truths of one version together; later lines replace earlier ones."""
    facts: dict[str, Any] = {}
    predictions: dict[str, dict[str, Any]] = {}
    truths: dict[tuple[str, str, float], dict[str, Any]] = {}
    set_aside = 0
    for line in lines:
        if line["version"] != version:
            continue
        if line["what"] == "machine":
            facts = line["facts"]
        elif line["loop"] not in LOOPS:
            continue  # a loop that the league no longer has
        elif line["what"] == "prediction":
            predictions[line["loop"]] = line
        elif line["what"] == "truth":
            truths[line["loop"], line["stage"], line["left"]] = line
        else:
            set_aside += 1
    found = League(version, facts, predictions, truths, [], [], set_aside)
    for (loop, stage, left), truth in truths.items():
        predicted = _predicted(predictions.get(loop), stage, left)
        if isinstance(predicted, str):
            found.without.append((loop, stage, left, predicted))
        elif truth.get("refused"):
            found.without.append((loop, stage, left, f"truth: {truth['refused']}"))
        else:
            by_clock = truth.get("left_by_clock")
            if by_clock is not None:
                predicted = read_at(predicted, left, by_clock, truth.get("left_half_width", 0.0))
            kind = LOOPS[loop].kind
            found.judged.append(Judged(loop, stage, left, by_clock, predicted, _gain(truth), kind))
    return found


def _add_scripts(found: League, results: Path) -> None:
    for each in scripts_in(results):
        predicted, true, stage = each.predicted, each.true, each.entry.stage
        left, _ = each.left or (0.0, 0.0)
        if not isinstance(predicted, str) and not isinstance(true, str):
            found.judged.append(Judged(each.name, stage, left, left, predicted, true, SCRIPT))
        else:
            why = predicted if isinstance(predicted, str) else f"truth: {true}"
            found.without.append((each.name, stage, left, why))


def _predicted(line: dict[str, Any] | None, stage: str, left: float) -> Gain | str:
    """The gain that was predicted for a fix, or why there is none."""
    if line is None:
        return "the loop has no prediction yet"
    if line.get("refused"):
        return f"no verdict: {line['refused']}"
    if stage not in line["rows"]:
        return f"the verdict has no stage {stage!r}"
    gain = line["rows"][stage]["gains"][f"{left:g}"]
    return gain if isinstance(gain, str) else (gain[0], gain[1], gain[2])


# --- the parts of the page -----------------------------------------------------------------------


def _parts(found: League) -> list[str]:
    hits = sum(pair.holds for pair in found.judged)
    count = len(found.judged)
    loops = len({loop for loop, _, _ in found.truths})
    scripts = count + len(found.without) - len(found.truths)
    parts = [
        f"Version `{found.version}`. {len(found.truths)} pairs of a loop and a fix, in {loops} "
        f"loops, and {scripts} of scripts that nobody adapted ([foreign_scripts.md]"
        "(foreign_scripts.md), where machine and truth are described). "
        "Predicted: what `hotloop simplify` says the loop gains if a stage is free (0 of "
        "its work left) or k times faster (1/k left). True: the gain in mean time a unit when the "
        "stage is really fixed, old and new version in turns in four processes each, 95% interval "
        "by t over the pairs of blocks, or over the processes where that is wider. Half of the "
        "work need not be half of the time: in loops that do one thing after the other what was "
        "left of the stage's time is measured too, and the prediction is read at that. A "
        "prediction holds if it is off by at most √(h₁² + h₂²), the two half-widths. "
        f"{_set_aside(found)}",
        f"**{hits} of {count} predictions hold{_share(hits, count)}**; {len(found.without)} pairs "
        "have none.",
        _by_kind(found),
        _verdicts(found),
    ]
    refusals = _refusals(found)
    misses = [pair for pair in found.judged if not pair.holds]
    parts += ["## Without a prediction", refusals] if refusals else []
    parts += ["## Misses", _pairs(misses), _reasons(misses)] if misses else []
    hit = [pair for pair in found.judged if pair.holds]
    parts += ["## Hits", _pairs(hit)] if hit else []
    return parts


def _set_aside(found: League) -> str:
    return (
        f"{found.set_aside} truths were set aside and measured again, whatever they said: the old "
        "version did not run at the speed that it had in the experiment, within 10%."
    )


def _reasons(misses: list[Judged]) -> str:
    """Why predictions missed, a line for each loop among them."""
    lines = []
    for name in dict.fromkeys(pair.loop for pair in misses):
        lines.append(f"- **{name}**: {REASONS.get(name, 'not explained yet')}")
    return "\n".join(lines)


def _by_kind(found: League) -> str:
    grouped: dict[str, list[Judged]] = defaultdict(list)
    for pair in found.judged:
        grouped[pair.kind].append(pair)
    rows = []
    for kind, pairs in grouped.items():
        width = float(np.median([width_of(pair.predicted) for pair in pairs]))
        bounds = [r for pair in pairs if (r := _against_counting(found, pair)) is not None]
        wanted = ""
        if kind == "steady":
            wanted = f" ({'reached' if width <= STEADY_WIDTH else 'missed'}: at most 6 wanted)"
        hits = sum(pair.holds for pair in pairs)
        rows.append(
            [
                kind,
                f"{hits} of {len(pairs)}",
                f"{100 * np.median([abs(pair.off) for pair in pairs]):.1f}",
                f"{100 * width:.1f}{wanted}",
                f"{100 * np.median([width_of(pair.true) for pair in pairs]):.1f}",
                f"{np.median(bounds):.2f}" if bounds else "",
            ]
        )
    header = ["class", "hold", "median error, points", "median width of the prediction, points"]
    header += ["of the truth", "width to what counting allows"]
    return table(header, rows) + (
        "\n\nCounting alone: with n rare events in the budget, of share b in the loop's time, an "
        "interval of a gain g is 3.92·b·(1 − g)/√n wide if the events come at random."
    )


def _against_counting(found: League, pair: Judged) -> float | None:
    """The prediction's width over what the number of rare events allows; None where none are."""
    if pair.kind == SCRIPT:
        return None
    entry: Entry = LOOPS[pair.loop]
    if not entry.every:
        return None
    iteration_s = found.truths[pair.loop, pair.stage, pair.left]["old_iteration_s"]
    budget = found.predictions[pair.loop]["budget"]
    events = budget / (iteration_s * entry.every)
    share = min(1.0, entry.rare_s / (entry.every * iteration_s))
    return width_of(pair.predicted) / (3.92 * share * (1 - pair.true[0]) / math.sqrt(events))


def _verdicts(found: League) -> str:
    """Check what a verdict says to fix, and what to leave, where the truth of a free stage is."""
    said: Counter[str] = Counter()
    wrong = []
    for loop, line in found.predictions.items():
        if line.get("refused"):
            continue
        for (of, stage, left), truth in found.truths.items():
            if of != loop or left or truth.get("refused"):
                continue
            _, low, high = _gain(truth)
            if line["fix"] == [stage]:
                said["fix"] += 1
                if high < WORTH:
                    said["wrong fix"] += 1
                    wrong.append([loop, stage, "fix", _percent(_gain(truth))])
            if stage in line["leave"]:
                said["leave"] += 1
                if low > 2 * WORTH:
                    said["wrong leave"] += 1
                    wrong.append([loop, stage, "leave", _percent(_gain(truth))])
    text = (
        f'Verdicts with a truth: {said["wrong fix"]} of {said["fix"]} "fix" name a stage whose '
        f'true gain lies below {WORTH:.0%}; {said["wrong leave"]} of {said["leave"]} "leave" name '
        f"one whose true gain lies above {2 * WORTH:.0%}."
    )
    return text + "\n\n" + table(["loop", "stage", "said", "true gain"], wrong) if wrong else text


def _refusals(found: League) -> str:
    rows = [
        [loop, stage, f"{left:.2g}", why.replace("|", "/").replace("\n", " ")]
        for loop, stage, left, why in found.without
    ]
    return table(["loop", "stage", "work left", "why"], rows) if rows else ""


def _pairs(pairs: list[Judged]) -> str:
    rows = [
        [
            pair.kind,
            pair.loop,
            pair.stage,
            f"{pair.left:.2g}" + (f" ({pair.left_by_clock:.2f})" if pair.left_by_clock else ""),
            _percent(pair.predicted),
            _percent(pair.true),
            f"{100 * pair.off:+.1f}",
            f"{100 * pair.allowed:.1f}",
        ]
        for pair in sorted(pairs, key=lambda pair: -abs(pair.off) / max(pair.allowed, 1e-9))
    ]
    header = [
        "class",
        "loop",
        "stage",
        "work left (by the clock)",
        "predicted",
        "true",
        "off",
        "allowed",
    ]
    return table(header, rows)


def _gain(truth: dict[str, Any]) -> Gain:
    return truth["value"], truth["low"], truth["high"]


def _share(hits: int, count: int) -> str:
    return f" ({hits / count:.0%})" if count else ""


def _percent(gain: Gain) -> str:
    return f"{gain[0]:.1%} [{100 * gain[1]:.1f}, {100 * gain[2]:.1f}]"
