"""The end of a verb that measured: the report, the saved run, its line in the journal, the error.

What was measured is kept three times over: as text, as a file and in the journal. Where one of them
fails, the others are done all the same, and what failed is said.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from hotloop.cli.output import say_saved
from hotloop.errors import HotloopError, JournalError, RunError
from hotloop.loop.run import Run
from hotloop.repeat.entries import TryEntry
from hotloop.report.kinds import kind_of
from hotloop.results.noted import note


def finish(
    errors: Console,
    run: Run,
    error: BaseException | None,
    save: Path | None,
    show: Callable[[], None],
    *,
    found: Callable[[], Any] | None = None,
    tried: TryEntry | None = None,
) -> int:
    """Show the report, save and note the run, then raise the error that cut it short, if any.

    found: returns the summary of the run, where it was computed already. tried: noted with the
    run. Without any samples, a run with an error is neither shown nor saved nor noted.
    """
    if error is not None and not kind_of(run).has_samples(run):
        raise error
    problems: list[BaseException] = []
    try:
        show()
    except (Exception, SystemExit) as unreadable:
        problems.append(unreadable)
    problems += keep(errors, run, save, found, tried)
    return end(errors, error, problems)


def keep(
    errors: Console,
    run: Run,
    save: Path | None,
    found: Callable[[], Any] | None = None,
    tried: TryEntry | None = None,
) -> list[BaseException]:
    """Save a run and note it, also where it could not be saved; returns what went wrong."""
    problems: list[BaseException] = []
    path, metrics = None, {}
    try:
        path = run.save(save)
    except RunError as unsaved:
        problems.append(unsaved)
    else:
        say_saved(errors, path, run.complete)
    kind = kind_of(run)
    try:
        metrics = dict(kind.metrics(found() if found else kind.summarize(run), run))
    except Exception as unreadable:
        problems.append(unreadable)
    try:
        note(run, metrics, path, tried)
    except JournalError as unnoted:
        problems.append(unnoted)
    return problems


def end(errors: Console, error: BaseException | None, problems: Sequence[BaseException]) -> int:
    """End a verb: raise its error, or else the first problem, and print the others."""
    raised = error or next(iter(problems), None)
    said = {str(raised)}
    for problem in problems:
        if isinstance(problem, HotloopError) and str(problem) not in said:
            errors.print(f"hotloop: {problem}", markup=False, highlight=False, soft_wrap=True)
            said.add(str(problem))
    if raised is not None:
        raise raised
    return 0
