"""Parts of sentences and named figures, which the terminal and the page each style in their way."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hotloop.loop.figures import Figure, Unknown
from hotloop.report.numbers import Form


@dataclass(frozen=True)
class Name:
    """A word to emphasise inside a sentence, such as the name of a stage."""

    text: str


@dataclass(frozen=True)
class Amount:
    """A number inside a sentence, with the form in which it is written."""

    value: Figure
    form: Form


Sentence = Sequence[str | Name | Amount]  # without a capital letter and a full stop


@dataclass(frozen=True)
class NamedFigure:
    """A number with its name, the form in which it is written, and a remark."""

    name: str
    value: Figure
    form: Form
    note: str = ""


def listed(names: Sequence[str]) -> list[str | Name | Amount]:
    """Join names with commas."""
    words: list[str | Name | Amount] = []
    for name in names:
        words += [", ", Name(name)] if words else [Name(name)]
    return words


def names_by_reason(figures: Iterable[NamedFigure]) -> dict[str, list[str]]:
    """Group the names of unknown figures by the reason why they are unknown."""
    found: dict[str, list[str]] = {}
    for figure in figures:
        if isinstance(figure.value, Unknown):
            found.setdefault(figure.value.why, []).append(figure.name)
    return found
