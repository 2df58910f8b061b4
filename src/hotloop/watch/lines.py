"""Where a watched training is shown while it goes on: a line in the terminal, and metrics."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from hotloop.loop.figures import Unknown
from hotloop.loop.sinks import Sinks
from hotloop.simplify.watched import DelayedStage

# Of more stages than this only the largest are in the line.
MOST_STAGES = 5


@dataclass(frozen=True)
class Line:
    """What was seen since the line before.

    units_done: since the watch began. shares: of each outermost stage, of the sampled time.
    """

    unit: str
    units_done: float
    units_per_s: float
    iterations_per_s: float
    shares: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        rates = [f"{_short(self.iterations_per_s)} iterations/s"]
        if self.unit != "iterations":
            rates.insert(0, f"{_short(self.units_per_s)} {self.unit}/s")
        largest = sorted(self.shares.items(), key=lambda item: -item[1])[:MOST_STAGES]
        stages = [f"{name} {share:.0%}" for name, share in largest]
        return "; ".join(filter(None, [", ".join(rates), ", ".join(stages)]))


class Terminal:
    """Lines on standard error; a closed one is given up."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown

    def say(self, text: object) -> None:
        """Print one line."""
        if not self._shown:
            return
        try:
            print(f"hotloop: {text}", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            self._shown = False


def write_scalars(sinks: Sinks, line: Line, delays: list[DelayedStage]) -> None:
    """Write a line, and what delays have shown so far, as scalars over the units done."""
    scalars = {
        "hotloop/iterations_per_s": line.iterations_per_s,
        **{f"hotloop/share/{_tag(name)}": share for name, share in line.shares.items()},
    }
    if line.unit != "iterations":
        scalars[f"hotloop/{_tag(line.unit)}_per_s"] = line.units_per_s
    for each in delays:
        if not isinstance(each.sensitivity, Unknown) and not isinstance(each.slack, Unknown):
            scalars[f"hotloop/sensitivity/{_tag(each.name)}"] = each.sensitivity.value
            scalars[f"hotloop/slack_ms/{_tag(each.name)}"] = each.slack.slack_ns.value * 1e-6

    sinks.scalars(scalars, round(line.units_done))


def _tag(name: str) -> str:
    return name.replace(" + ", "_").replace(" ", "_")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
