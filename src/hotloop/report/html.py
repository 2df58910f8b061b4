"""One self-contained page about saved runs: the answer first, then the charts, then the figures.

Each kind of run fills its own section with tiles, charts and tables, and the template lays them
out. Here is what concerns the page as a whole: the order of its sections, one colour for each
stage, and how it is written. The page loads nothing and is the same, byte for byte, whenever it is
drawn again from the same runs.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from hotloop.errors import RunError
from hotloop.loop.files import atomic_output
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.report.kind import PageContext
from hotloop.report.kinds import KINDS, kind_of
from hotloop.report.section import Section, TableView


def write_html(runs: Sequence[Run], path: Path, more: Sequence[Section] = ()) -> Path:
    """Write one page about all these runs to `path`; returns where. more: as in `render`.

    Raises: RunError if it cannot be written (a file that was there before stays as it was), or if
    a run is of a kind that has no report.
    """
    page = render(runs, more)
    with atomic_output(path, "the report could not be written", "--html") as scratch:
        scratch.write_text(page, encoding="utf-8")
    return path


def render(runs: Sequence[Run], more: Sequence[Section] = ()) -> str:
    """The page as text. more: sections after those of the runs, with keys of their own.

    Raises: RunError without a run, or for a kind of run that has no report.
    """
    if not runs:
        raise RunError("there is no run to report; name one or more")
    kinds = {run.verb: kind_of(run) for run in runs}
    order = list(KINDS)
    # A stable sort: runs of one kind stay in the order in which they were named.
    ordered = sorted(runs, key=lambda run: order.index(run.verb))
    found = [(run, kinds[run.verb].summarize(run)) for run in ordered]
    colours = _colours(ordered)
    return page(
        [
            kinds[run.verb].section(PageContext(f"r{k}", ordered, colours), summary, run)
            for k, (run, summary) in enumerate(found)
        ]
        + [*more],
        title=", ".join(dict.fromkeys(run.target for run in ordered)),
        hosts=[run.host for run in ordered],
        comparisons=_comparisons(found),
    )


def page(
    sections: Sequence[Section],
    *,
    title: str,
    hosts: Sequence[Mapping[str, Any]],
    comparisons: Sequence[TableView] = (),
) -> str:
    """Lay sections out as a page. hosts: the facts of the machines that it is about."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["figure"] = _is_figure
    environment.filters["marked"] = _marked
    return environment.get_template("report.html.jinja").render(
        title=title,
        machines=list(dict.fromkeys(describe(dict(host)) for host in hosts)),
        many=len({section.run.target for section in sections}) > 1,
        sections=sections,
        comparisons=comparisons,
    )


def _is_figure(cell: object) -> bool:
    """Whether a cell is a number, with or without its unit or interval: it stays on one line."""
    return re.fullmatch(r"[-+]?\d\S*( \S{1,3})?( [\[(][^\])]*[\])])?", str(cell)) is not None


def _marked(text: str) -> Markup:
    """Text as HTML; what stands between two backticks is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _comparisons(found: Sequence[tuple[Run, Any]]) -> list[TableView]:
    """A table for each kind that compares its runs and has two or more on the page."""
    tables = []
    for verb, kind in KINDS.items():
        of_kind = [each for each in found if each[0].verb == verb]
        if kind.comparison is not None and len(of_kind) > 1:
            tables.append(kind.comparison.table(of_kind))
    return tables


def _colours(runs: Sequence[Run]) -> dict[str, int]:
    """A colour number for every stage of every run: one name, one colour, on the whole page."""
    names = [stage["name"] for run in runs for stage in run.facts.get("stages") or []]
    return {name: k for k, name in enumerate(dict.fromkeys(names))}
