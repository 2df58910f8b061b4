"""Advice about a loop's own code, printed in the terminal: what, where, how much, what to do."""

import linecache
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from hotloop.loop.figures import Figure, Interval, Unknown
from hotloop.optimize.advice import Advice, HotLine, Unit
from hotloop.report.numbers import Form, bytes_, figure, number, percent, seconds

_FORMS: Mapping[Unit, Form] = {"": number, "s": seconds, "bytes": bytes_, "share": percent}


def print_advice(console: Console, found: Sequence[Advice]) -> None:
    """Print each piece of advice, in the order given; a line if there is none."""
    if not found:
        console.print("[bold]advice[/]  none: no fault that a detector knows was found")
    for each in found:
        _print_one(console, each)


def _print_one(console: Console, advice: Advice) -> None:
    place = f"{advice.file}:{advice.line} {advice.function}"
    evidence = ", ".join(
        f"{each.name} {figure(each.value, _FORMS[each.unit])}" for each in advice.evidence
    )
    console.print(f"[bold]advice[/]  {escape(advice.sentence)}", highlight=False)
    console.print(f"        [bold]{escape(place)}[/]", highlight=False, soft_wrap=True)
    console.print(f"        {_at_most(advice.at_most)}; {escape(evidence)}", highlight=False)
    console.print(f"        [green]do[/] {escape(advice.action)}", highlight=False)
    for line in advice.hottest:
        console.print(f"        [dim]{_hot(line)}[/]", highlight=False, soft_wrap=True)
    console.print()


def _at_most(share: Figure) -> str:
    if isinstance(share, Unknown):
        return f"share of the time unknown: {escape(share.why)}"
    return f"at most {escape(figure(share, percent))} of the time"


def _hot(line: HotLine) -> str:
    value = line.share.value if isinstance(line.share, Interval) else line.share
    share = "?" if isinstance(value, Unknown) else percent(value)
    text = linecache.getline(line.file, line.line).strip()
    return f"{share:>6}  {escape(f'{line.line}: {text}')}"
