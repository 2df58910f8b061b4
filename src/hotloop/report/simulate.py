"""Simulations: the answer for each output of the model, its curve with a band, and the speed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hotloop.loop.figures import Interval
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.repeat.entries import RATE, SECONDS, Metric, known
from hotloop.report import curves
from hotloop.report.console import print_answer, print_warnings
from hotloop.report.curves import (
    MODEL_FACTS,
    Curve,
    Output,
    Setting,
    across,
    count,
    counts,
    curve_of,
    levels,
    outputs_fit,
    outputs_of,
    setting_of,
)
from hotloop.report.curves_console import curve_table, print_chart, print_head
from hotloop.report.curves_page import answer_view, curve_charts, curve_view
from hotloop.report.format import Count, Format, Share
from hotloop.report.kind import Kind, PageContext
from hotloop.report.numbers import a_or_an, bytes_, duration, number, percent, seconds
from hotloop.report.section import Section, Tile, number_markup
from hotloop.report.sentence import Amount, Name, Sentence

_ENOUGH_RUNS = 20  # for an interval that holds 95% of them

# --- what a saved run holds ---------------------------------------------------------------------


def _fits(run: Run) -> str | None:
    if not all(run.arrays[output.name].size for output in outputs_of(run)):
        return "arrays: expected one run and one step at least"
    return None


def _series(run: Run) -> dict[str, str]:
    if outputs_fit(run) is not None:
        return {}
    return {
        output.name: f"{'amount' if output.is_count else 'real'} runs steps"
        for output in outputs_of(run)
    }


_FORMAT = Format(
    settings={"seed": Count, "steps": Count, "replicates": Count},
    facts={**MODEL_FACTS, "stats": dict[str, Any]},
    optional_facts={"heading": str},
    dict_facts={
        "stats": (
            {"agent_steps_per_s": float, "program": str, "precision": str},
            {"active_share": Share},
        )
    },
    run_arrays=_series,
    check=lambda run: outputs_fit(run) or _fits(run),
)

# --- what it says -------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutputFound:
    """One output over the replicates.

    total: the sum over the steps, of a count; end: the last value, of a level. peak, peak_step:
    the highest value and its step, if the model asks for them.
    """

    label: str
    total: Interval | None
    end: Interval | None
    peak: Interval | None
    peak_step: Interval | None


@dataclass(frozen=True)
class Simulated:
    """What a simulation found. stats: how fast the engine was, and its own counters."""

    setting: Setting
    outputs: dict[str, OutputFound]
    by_step: list[Curve]
    totals: list[Curve]
    seconds: float
    stats: dict[str, Any]
    warnings: list[str]

    @property
    def curves(self) -> list[Curve]:
        """All curves, the totals last."""
        return [*self.by_step, *self.totals]


def simulated(run: Run) -> Simulated:
    """Compute the answer and the curves of a `simulate` run; arrays of outputs are (R, T)."""
    outputs = outputs_of(run)
    arrays = [np.asarray(run.arrays[output.name], np.float64) for output in outputs]
    replicates, steps = arrays[0].shape
    setting = setting_of(run, steps, replicates)
    pairs = list(zip(outputs, arrays, strict=True))
    return Simulated(
        setting=setting,
        outputs={output.name: _found(output, values) for output, values in pairs},
        by_step=[curve_of(output, values, setting.step) for output, values in pairs],
        totals=[
            curve_of(output, values, setting.step, total=True)
            for output, values in pairs
            if output.is_count
        ],
        seconds=float(run.facts["seconds"]),
        stats=dict(run.facts["stats"]),
        warnings=_warnings(run, setting),
    )


def _found(output: Output, values: curves.Array) -> OutputFound:
    return OutputFound(
        label=output.label,
        total=across(values.sum(1)) if output.is_count else None,
        end=None if output.is_count else across(values[:, -1]),
        peak=across(values.max(1)) if output.peak else None,
        peak_step=across(values.argmax(1)) if output.peak else None,
    )


def _warnings(run: Run, setting: Setting) -> list[str]:
    warnings = []
    if not run.complete:
        warnings.append(
            f"the simulation was interrupted: {setting.steps} of {run.settings['steps']} "
            f"{setting.step}s, {setting.replicates} of {run.settings['replicates']} runs"
        )
    if setting.replicates < _ENOUGH_RUNS:
        what = "one run" if setting.replicates == 1 else f"{setting.replicates} runs"
        warnings.append(
            f"{what}: too few for an interval that holds 95% of runs; give --replicates 100"
        )
    return warnings


def _answer(found: Simulated, outputs: Sequence[Output]) -> list[tuple[str, Sentence]]:
    """The answer, a word and its sentence for each output, and one for each peak of a count."""
    lines: list[tuple[str, Sentence]] = []
    over = f" in {curves.steps(found.setting)}"  # said once, in the first line of a count
    for output in outputs:
        of = found.outputs[output.name]
        if of.total is not None:
            lines.append((output.word, [Name(counts(of.total)), over + _share(output, found)]))
            over = ""
        if of.end is not None:
            lines.append((output.word, [Name(levels(of.end)), " at the end", _highest(of, found)]))
        elif of.peak is not None:
            lines.append(("peak", _peak(of, found)))
    return lines


def _share(output: Output, found: Simulated) -> str:
    """The total as a share of the agents or of another total; empty if there is nothing of that."""
    total = found.outputs[output.name].total
    whole: float = found.setting.agents
    if output.share_of != "agents":
        other = found.outputs[output.share_of].total if output.share_of is not None else None
        whole = other.value if other is not None else 0.0
    if total is None or not whole:
        return ""
    return f", {percent(total.value / whole)} {output.share_label}"


def _peak(of: OutputFound, found: Simulated) -> Sentence:
    assert of.peak is not None
    assert of.peak_step is not None
    step, last = found.setting.step, found.setting.steps - 1
    words: list[str | Name | Amount] = [
        Name(counts(of.peak)),
        f" {of.label} {a_or_an(step)} {step}",
    ]
    words += [f", on {step} {_when(of.peak_step)}"] if of.peak.high else []
    words += [", the last one: it may still rise"] if of.peak_step.value >= last > 0 else []
    return words


def _highest(of: OutputFound, found: Simulated) -> str:
    if of.peak is None or of.peak_step is None:
        return ""
    return f"; highest {number(of.peak.value)}, at {found.setting.step} {_when(of.peak_step)}"


def _when(step: Interval) -> str:
    return count(step.value) if step.low == step.high else counts(step)


def _speed(found: Simulated) -> str:
    stats = found.stats
    words = f"{seconds(found.seconds)}, {number(float(stats['agent_steps_per_s']))} agent steps/s"
    if "active_share" in stats:
        words += f", {percent(float(stats['active_share']))} of active agents"
    return f"{words}; {stats['program']}, {stats['precision']}"


# --- in the terminal ----------------------------------------------------------------------------


def print_simulate(console: Console, found: Simulated, run: Run, *, charts: bool = True) -> None:
    """Print what a simulation found; then each step, and how fast it was."""
    print_head(console, found.setting)
    print_answer(console, _answer(found, outputs_of(run)))
    for curve in found.by_step if charts else []:
        print_chart(console, curve)
    console.print()
    console.print(curve_table(found.curves))
    console.print(curves.middle_of("median", found.setting.replicates), style="dim")
    console.print(_speed(found), style="dim", highlight=False)
    console.print(describe(run.host), style="dim", highlight=False)
    print_warnings(console, found.warnings)


def print_stats(console: Console, found: Simulated) -> None:
    """Print the engine's own counters, one a line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for key, value in found.stats.items():
        table.add_row(escape(key), escape(_stat(key, value)))
    console.print()
    console.print(table)


def _stat(key: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if "seconds" in key:
        return seconds(value)
    if "bytes" in key:
        return bytes_(value)
    if key.endswith("_ns"):
        return duration(value)
    return f"{value:,}" if isinstance(value, int) else number(value)


# --- on the page --------------------------------------------------------------------------------


def _section(page: PageContext, found: Simulated, run: Run) -> Section:
    setting, outputs = found.setting, outputs_of(run)
    lead = f"The line is the median of the runs on each {setting.step}; the band holds 95% of them."
    return Section(
        key=page.key,
        run=run,
        heading=run.facts.get("heading", f"{setting.model} on {setting.population}"),
        answer=answer_view(_answer(found, outputs)),
        tiles=[
            *(tile for output in outputs for tile in _tiles(output, found)),
            Tile(
                "agent steps per second",
                number_markup(number(float(found.stats["agent_steps_per_s"]))),
                f"in {seconds(found.seconds)}",
            ),
        ],
        charts=curve_charts(page.key, found.curves, lead),
        tables=[curve_view(found.curves)],
        warnings=found.warnings,
    )


def _tiles(output: Output, found: Simulated) -> list[Tile]:
    of, setting = found.outputs[output.name], found.setting
    if of.end is not None:
        return [Tile(output.word, number_markup(levels(of.end)), "at the end")]
    assert of.total is not None
    tiles = [Tile(output.word, number_markup(counts(of.total)), f"in {curves.steps(setting)}")]
    if output.share_of == "agents":
        share = percent(of.total.value / setting.agents)
        tiles.append(Tile(output.share_label, number_markup(share), f"{setting.agents:,} agents"))
    return tiles


def _metrics(found: Simulated, _run: Run) -> dict[str, Metric]:
    rate = float(found.stats["agent_steps_per_s"])
    return known({RATE: (rate, "agent steps/s"), SECONDS: (found.seconds, "s")})


SIMULATE = Kind[Simulated](
    format=_FORMAT,
    summarize=simulated,
    print=print_simulate,
    section=_section,
    json=lambda found, _run: found,
    has_samples=lambda run: all(run.arrays[output.name].size for output in outputs_of(run)),
    metrics=_metrics,
)
