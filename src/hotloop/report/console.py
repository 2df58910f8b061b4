"""Parts that the reports of several kinds print in the terminal: tables, sentences, notes."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hotloop.report.numbers import figure
from hotloop.report.sentence import Amount, Name, Sentence


def plain_table() -> Table:
    """A table without a head: a name, a value, a remark."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_column(style="dim")
    return table


def headed_table(columns: Sequence[tuple[str, str]]) -> Table:
    """A table with a bold head. columns: name and "left" or "right"; only one with a name stays
    on one line.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in columns:
        table.add_column(name, justify=justify, no_wrap=name != "")  # type: ignore[arg-type]
    return table


def marked(sentence: Sentence) -> str:
    """A sentence as rich's markup, with its names in bold."""
    return "".join(_word(word) for word in sentence)


def print_answer(console: Console, answer: Sequence[tuple[str, Sentence]]) -> None:
    """Print the lines of an answer, each after its word, aligned."""
    wide = max((len(word) for word, _ in answer), default=0) + 2
    for word, sentence in answer:
        console.print(
            f"[bold]{escape(word)}[/]{' ' * (wide - len(word))}{marked(sentence)}", highlight=False
        )


def print_warnings(console: Console, warnings: Sequence[str]) -> None:
    """Print each warning as a note."""
    for warning in warnings:
        console.print(f"[yellow]note[/]  {escape(warning)}", highlight=False)


def _word(word: str | Name | Amount) -> str:
    if isinstance(word, Name):
        return f"[bold]{escape(word.text)}[/]"
    if isinstance(word, Amount):
        return escape(figure(word.value, word.form))
    return escape(word)
