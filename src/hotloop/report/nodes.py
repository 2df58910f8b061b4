"""Simulated nodes: env steps per second in each mode, efficiency, and how busy the machine was."""

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.markup import escape

from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.plan.modes import MODES
from hotloop.plan.points import Point
from hotloop.plan.summary import BUSY, points_of
from hotloop.repeat.entries import RATE, Metric, known
from hotloop.report.console import headed_table, print_answer, print_warnings
from hotloop.report.format import Format, Positive
from hotloop.report.kind import Kind, PageContext
from hotloop.report.numbers import number, percent
from hotloop.report.plan_format import SAVED_POINTS, points_problem
from hotloop.report.section import Section, TableView, Tile, number_markup, sentence_markup
from hotloop.report.sentence import Amount, Name, Sentence


@dataclass(frozen=True)
class Nodes:
    """The cells of simulated nodes."""

    env_id: str
    points: list[Point]
    warnings: list[str]


def summarize_nodes(run: Run) -> Nodes:
    """The cells of a saved run."""
    points = points_of(run)
    warnings = []
    busy = sum(point.busy is not None and point.busy >= BUSY for point in points)
    if busy:
        warnings.append(
            f"{busy} of {len(points)} cells were measured while at least {BUSY:.0%} of this "
            "machine's cores were busy: it set the pace there, and not the engine"
        )
    if not run.complete:
        warnings.append("the measurement was interrupted; this is what it had measured")
    return Nodes(run.target, points, warnings)


def _answer(found: Nodes) -> list[tuple[str, Sentence]]:
    """The mode with the highest rate in the largest cell of each step duration."""
    lines: list[tuple[str, Sentence]] = []
    for step_s in dict.fromkeys(point.cell.step_s for point in found.points):
        points = [point for point in found.points if point.cell.step_s == step_s]
        most = max(point.cell.nodes for point in points)
        best = max((p for p in points if p.cell.nodes == most), key=lambda point: point.sps)
        words: Sentence = [
            f"{most} nodes, steps of {step_s:g} s: ",
            Name(best.cell.mode),
            ", ",
            Amount(best.sps, number),
            " SPS, ",
            Amount(_efficiency(best), percent),
            " of the ideal",
        ]
        lines.append(("best", words))
    return lines


def _efficiency(point: Point) -> float:
    return point.sps / point.cell.ideal_sps


COLUMNS = (
    *(("nodes", "right"), ("cores", "right"), ("step", "right"), ("mode", "left")),
    *(("SPS", "right"), ("efficiency", "right"), ("machine busy", "right")),
)


def _rows(found: Nodes) -> list[list[str]]:
    return [
        [
            f"{point.cell.nodes:,}",
            f"{point.cell.cores_per_node:,}",
            f"{point.cell.step_s:g} s",
            point.cell.mode,
            number(point.sps),
            percent(_efficiency(point)),
            "" if point.busy is None else f"{point.busy:.0%}",
        ]
        for point in found.points
    ]


def _about(found: Nodes) -> list[str]:
    modes = dict.fromkeys(point.cell.mode for point in found.points)
    return [
        "nodes are simulated: a step lasts as long as one env’s for all envs of a node; the "
        "network is not there",
        *(f"{mode}: {MODES[mode].about}" for mode in modes),
    ]


def print_nodes(console: Console, found: Nodes, run: Run) -> None:
    """Print the best mode, then every cell."""
    title = f"[bold]{escape(found.env_id)}[/]  on simulated nodes  {describe(run.host)}"
    console.print(title, highlight=False)
    print_answer(console, _answer(found))
    console.print()
    table = headed_table(COLUMNS)
    for row in _rows(found):
        table.add_row(*(escape(text) for text in row))
    console.print(table)
    for line in _about(found):
        console.print(f"[dim]{escape(line)}[/]", highlight=False)
    print_warnings(console, found.warnings)


def _section(page: PageContext, found: Nodes, run: Run) -> Section:
    rows: list[list[Markup | str]] = [list(row) for row in _rows(found)]
    best = max(found.points, key=lambda point: point.sps)
    return Section(
        key=page.key,
        run=run,
        heading=f"{found.env_id} on simulated nodes",
        tiles=[Tile("env steps per second", number_markup(number(best.sps)), str(best.cell))],
        charts=[],
        warnings=found.warnings,
        answer=[(word, sentence_markup(words)) for word, words in _answer(found)],
        tables=[TableView("Every cell", [name for name, _ in COLUMNS], rows, [], _about(found))],
    )


def nodes_json(found: Nodes, _run: Run) -> dict[str, Any]:
    """What `--json` prints: every cell with its rate."""
    return {
        "env_id": found.env_id,
        "cells": [
            {
                "nodes": point.cell.nodes,
                "cores_per_node": point.cell.cores_per_node,
                "step_s": point.cell.step_s,
                "mode": point.cell.mode,
                "fragment_steps": point.cell.fragment_steps,
                "sps": point.sps,
                "efficiency": _efficiency(point),
                "busy": point.busy,
            }
            for point in found.points
        ],
        "warnings": found.warnings,
    }


def _metrics(found: Nodes, _run: Run) -> dict[str, Metric]:
    return known(
        {
            f"{RATE}: {p.cell}, {p.cell.mode}": (p.sps, "env steps/s")  # the mode, also of "step"
            for p in found.points
        }
    )


NODES = Kind[Nodes](
    format=Format(
        settings={"cores_per_node": Positive, "seconds": Positive},
        facts={"points": SAVED_POINTS},
        check=points_problem,
    ),
    summarize=summarize_nodes,
    print=print_nodes,
    section=_section,
    json=nodes_json,
    has_samples=lambda run: bool(run.facts["points"]),
    metrics=_metrics,
)
