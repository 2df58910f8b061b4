"""The parts of a section of the page: tiles, charts, tables, and the markup of their numbers.

Each kind of run fills these, and the template lays them out. Sentences that the terminal prints,
too, get the page's markup here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from hotloop.benchmark.summary import StageTime
from hotloop.loop.figures import Figure, Unknown
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.report.charts import svg
from hotloop.report.numbers import Form, figure, number, probability
from hotloop.report.sentence import Amount, Name, Sentence
from hotloop.simplify.verdict_rows import StageVerdict


@dataclass(frozen=True)
class Tile:
    """One large number at the top: its label, its value with the interval, and a remark."""

    label: str
    value: Markup
    note: str = ""


@dataclass(frozen=True)
class ChartView:
    """A chart in its two widths, with a text above it (lead) and notes below it."""

    title: str
    lead: str
    charts: list[Markup]
    legend: list[tuple[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class TableView:
    """A table. footnotes: the reasons of its unknown figures, numbered from 1."""

    title: str
    head: list[str]
    rows: list[list[Markup | str]]
    footnotes: list[str]
    notes: list[str] = field(default_factory=list)
    refused: bool = False


@dataclass(frozen=True)
class Section:
    """The part of a page about one run."""

    key: str
    run: Run
    heading: str
    tiles: list[Tile]
    charts: list[ChartView]
    warnings: list[str]
    refused: str | None = None
    answer: list[tuple[str, Markup]] = field(
        default_factory=list
    )  # a word, such as "fix", and its sentence
    tables: list[TableView] = field(default_factory=list)

    @property
    def settings(self) -> list[tuple[str, str]]:
        """How the run was measured: names and values."""
        return [
            ("command", str(self.run.host.get("command", ""))),
            ("date", str(self.run.host.get("date", ""))),
            ("machine", describe(self.run.host)),
            *((name, _as_text(value)) for name, value in self.run.settings.items()),
        ]


class Footnotes:
    """The numbered reasons of one table; equal reasons have one number."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def cell(self, of: Figure, form: Form = number) -> Markup:
        """The markup of a figure; an unknown one refers to the number of its reason."""
        if not isinstance(of, Unknown):
            return figure_markup(of, form)
        if of.why not in self.reasons:
            self.reasons.append(of.why)
        mark = self.reasons.index(of.why) + 1
        return Markup('<span class="unknown">unknown<sup>{}</sup></span>').format(mark)

    def chance(self, p: float | None) -> Markup:
        """The markup of the p of a test; None for one that did not run."""
        return self.cell(Unknown("no test ran") if p is None else p, probability)


def figure_markup(of: Figure, form: Form = number) -> Markup:
    """The markup of a figure; an unknown one is 'unknown' with the reason."""
    if isinstance(of, Unknown):
        return Markup('<span class="unknown">unknown: {}</span>').format(of.why)
    return number_markup(figure(of, form))


def number_markup(text: str) -> Markup:
    """The markup of '12.3k [12.1, 12.5]': the interval has an element of its own."""
    value, bracket, ends = text.partition(" [")
    shown = Markup('<span class="n">{}</span>').format(value)
    if not bracket:
        return shown
    return Markup('{} <span class="iv">[{}</span>').format(shown, ends)


def stage_name(row: StageVerdict | StageTime, colours: Mapping[str, int]) -> Markup:
    """The markup of a stage: its colour, its name, and the stage that it is inside of."""
    inside = (
        Markup(' <span class="inside">in {}</span>').format(row.inside) if row.inside else Markup()
    )
    return Markup('<span class="swatch {}"></span>{}{}').format(
        svg.stage_class(row.name, colours), row.name, inside
    )


def sentence_markup(words: Sentence) -> Markup:
    """The markup of a sentence, with its names and amounts emphasised, and its full stop."""
    return Markup("").join(_word(word) for word in words) + Markup(".")


def as_sentence(text: str) -> str:
    """Add the capital letter and the full stop of a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


def _word(word: str | Name | Amount) -> Markup:
    if isinstance(word, Name):
        return Markup("<strong>{}</strong>").format(word.text)
    if isinstance(word, Amount):
        return figure_markup(word.value, word.form)
    return Markup("{}").format(word)


def _as_text(value: object) -> str:
    """A setting as text: the same before and after it was saved."""
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return str(value)
