"""`hotloop doctor`: what can this machine measure?"""

from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from hotloop.benchmark.doctor import NOISE_SECONDS, examine
from hotloop.cli.output import consoles, parse, print_json
from hotloop.loop.host import describe, host_facts


@dataclass(frozen=True)
class Options:
    """Say what this machine can measure, and what that means."""

    seconds: float = NOISE_SECONDS
    """How long to measure its noise, in seconds."""
    json: bool = False
    """Print the findings as JSON."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    options = parse(Options, arguments, "doctor")
    console, _ = consoles(options.json)
    findings = examine(options.seconds)
    if options.json:
        print_json(findings)
        return 0
    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        mark = "[green]ok[/]" if finding.good else "[yellow]note[/]"
        table.add_row(mark, f"[bold]{finding.name}[/]", escape(finding.value), finding.means)
    console.print(describe(host_facts()), highlight=False)
    console.print(table)
    return 0
