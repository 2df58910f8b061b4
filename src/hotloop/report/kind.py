"""The type of a kind of run: what a saved run of it holds, and each way in which it is shown.

`hotloop.report.kinds` has the table of all kinds. Adding one means one file beside this one and
one line of that table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.console import Console

from hotloop.loop.run import Run
from hotloop.repeat.entries import Metric
from hotloop.report.format import Format
from hotloop.report.section import Section, TableView

S = TypeVar("S")


@dataclass(frozen=True)
class PageContext:
    """The page around a section.

    key: the section's id, unique on the page; runs: all runs of the page; colours: the number of
    the colour of each stage.
    """

    key: str
    runs: Sequence[Run]
    colours: Mapping[str, int]


@dataclass(frozen=True)
class Comparison(Generic[S]):
    """How two or more runs of a kind are compared, in the terminal and on the page."""

    print: Callable[[Console, Sequence[tuple[Run, S]]], None]
    table: Callable[[Sequence[tuple[Run, S]]], TableView]


@dataclass(frozen=True)
class Kind(Generic[S]):
    """A kind of run.

    format: what a saved run must hold. summarize: computes what the other functions show. print:
    the report in the terminal. section: the report's part of the page. json: what `--json` prints.
    has_samples: whether an interrupted run measured anything that is worth a report. metrics: what
    the journal notes of a run, by name.
    """

    format: Format
    summarize: Callable[[Run], S]
    print: Callable[[Console, S, Run], None]
    section: Callable[[PageContext, S, Run], Section]
    json: Callable[[S, Run], Any]
    has_samples: Callable[[Run], bool]
    comparison: Comparison[S] | None = None
    metrics: Callable[[S, Run], Mapping[str, Metric]] = lambda _summary, _run: {}
