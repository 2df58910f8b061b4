"""`hotloop report RUN …`: draw saved runs again."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from hotloop.benchmark.backends import compare_backends
from hotloop.benchmark.summary import summarize
from hotloop.cli.output import consoles, content, parse, print_json
from hotloop.loop.run import Run
from hotloop.report.console import print_backends, print_compared, print_train
from hotloop.report.console_curves import print_calibrate, print_simulate
from hotloop.report.curves import fitted, simulated
from hotloop.results.benchmark import BenchmarkResult
from hotloop.results.saved import open_run
from hotloop.results.simplify import SimplifyResult


@dataclass(frozen=True)
class Options:
    """Draw saved runs again: in the terminal, or as one page."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run files, as saved under .hotloop/. Benchmarks of one target are compared with the first."""
    html: Path | None = None
    """Write one self-contained page of all the runs here, instead of printing them."""
    json: bool = False
    """Print figures and verdicts as JSON."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    options = parse(Options, arguments, "report")
    console, errors = consoles(options.json)
    if not options.runs:
        errors.print("hotloop: name one run or more; `ls .hotloop` shows the saved ones")
        return 2
    runs = [open_run(path) for path in options.runs]
    if options.html is not None:
        from hotloop.report.html import write_html

        path = write_html(runs, options.html)
        console.print(f"report written: {path.resolve()}", highlight=False, soft_wrap=True)
        return 0
    if options.json:
        contents = [_content(saved) for saved in runs]
        print_json(contents[0] if len(contents) == 1 else contents)
        return 0
    for saved in runs:
        if saved.verb == "benchmark":
            BenchmarkResult(saved).print_to(console)
        elif saved.verb == "simplify":
            SimplifyResult(saved).print_to(console)
        elif saved.verb == "backends":
            print_backends(console, compare_backends(saved), saved)
        elif saved.verb == "simulate":
            print_simulate(console, simulated(saved), saved, charts=True)
        elif saved.verb == "calibrate":
            print_calibrate(console, fitted(saved), saved, charts=True)
        else:
            print_train(console, saved)
    benchmarks = [(saved, summarize(saved)) for saved in runs if saved.verb == "benchmark"]
    if len(benchmarks) > 1 and not options.json:
        print_compared(console, benchmarks)
    return 0


def _content(saved: Run) -> object:
    if saved.verb == "benchmark":
        return BenchmarkResult(saved).to_dict()
    if saved.verb == "simplify":
        return SimplifyResult(saved).to_dict()
    if saved.verb == "backends":
        return compare_backends(saved)
    if saved.verb == "simulate":
        return simulated(saved)
    if saved.verb == "calibrate":
        return fitted(saved)
    return content(saved)
