"""What a section of the page is made of: tiles, charts, tables, and how their numbers are set.

The template lays these out; the other files here fill them. Sentences that the terminal says too
come from `hotloop.report.statements` and get the page's markup here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from hotloop.benchmark.summary import Figure, StageTime, Unknown
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.report.charts import svg
from hotloop.report.numbers import Form, figure, number
from hotloop.report.statements import Amount, Name, Sentence
from hotloop.simplify.rows import StageVerdict


@dataclass(frozen=True)
class Tile:
    """One large number at the top: what it is, its value with the interval, and a remark."""

    label: str
    value: Markup
    note: str = ""


@dataclass(frozen=True)
class Charts:
    """A chart in its two widths, what it shows, and what is to be said below it."""

    title: str
    lead: str
    charts: list[Markup]
    legend: list[tuple[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class TableView:
    """A table; `footnotes` are the reasons of what is unknown in it, numbered from 1."""

    title: str
    head: list[str]
    rows: list[list[Markup | str]]
    footnotes: list[str]
    notes: list[str] = field(default_factory=list)
    refused: bool = False


@dataclass(frozen=True)
class Section:
    """All that the page says about one run."""

    key: str
    run: Run
    heading: str
    tiles: list[Tile]
    figures: list[Charts]
    warnings: list[str]
    refused: str | None = None
    answer: list[tuple[str, Markup]] = field(default_factory=list)  # a word ("fix"), its sentence
    tables: list[TableView] = field(default_factory=list)

    @property
    def settings(self) -> list[tuple[str, str]]:
        """How the run was measured."""
        return [
            ("command", str(self.run.host.get("command", ""))),
            ("date", str(self.run.host.get("date", ""))),
            ("machine", describe(self.run.host)),
            *((name, _as_text(value)) for name, value in self.run.settings.items()),
        ]


class Footnotes:
    """Numbers the reasons of one table; the same reason has one number."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def cell(self, of: Figure, form: Form = number) -> Markup:
        """A figure; an unknown one has the number of its reason."""
        if not isinstance(of, Unknown):
            return measure(of, form)
        if of.why not in self.reasons:
            self.reasons.append(of.why)
        mark = self.reasons.index(of.why) + 1
        return Markup('<span class="unknown">unknown<sup>{}</sup></span>').format(mark)


def measure(of: Figure, form: Form = number) -> Markup:
    """A figure with its interval set apart; an unknown one says so, with the reason."""
    if isinstance(of, Unknown):
        return Markup('<span class="unknown">unknown: {}</span>').format(of.why)
    return apart(figure(of, form))


def apart(text: str) -> Markup:
    """'12.3k [12.1, 12.5]' with the bracket as a span of its own."""
    value, bracket, ends = text.partition(" [")
    shown = Markup('<span class="n">{}</span>').format(value)
    if not bracket:
        return shown
    return Markup('{} <span class="iv">[{}</span>').format(shown, ends)


def stage_name(row: StageVerdict | StageTime, colours: Mapping[str, int]) -> Markup:
    """The name of a stage beside its colour, and what it is inside of."""
    inside = (
        Markup(' <span class="inside">in {}</span>').format(row.inside) if row.inside else Markup()
    )
    return Markup('<span class="swatch {}"></span>{}{}').format(
        svg.stage_shade(row.name, colours), row.name, inside
    )


def sentence(words: Sentence) -> Markup:
    """A sentence with its names and amounts set off, and its full stop."""
    return Markup("").join(_word(word) for word in words) + Markup(".")


def capital(text: str) -> str:
    """Plain words as a sentence of their own."""
    return f"{text[:1].upper()}{text[1:]}."


def _word(word: str | Name | Amount) -> Markup:
    if isinstance(word, Name):
        return Markup("<strong>{}</strong>").format(word.text)
    if isinstance(word, Amount):
        return measure(word.value, word.form)
    return Markup("{}").format(word)


def _as_text(value: object) -> str:
    """A setting as it is shown: the same before and after it was saved."""
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return str(value)
