"""The end of a verb that measured: the report, the saved run, then the error that cut it short."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from hotloop.cli.output import say_saved
from hotloop.errors import RunError
from hotloop.loop.run import Run
from hotloop.report.kinds import kind_of


def finish(
    errors: Console,
    run: Run,
    error: BaseException | None,
    save: Path | None,
    show: Callable[[], None],
) -> int:
    """Show the report, save the run, then raise the error that cut it short, if there is one.

    Without any samples, such a run is neither shown nor saved.
    """
    if error is not None and not kind_of(run).has_samples(run):
        raise error
    problem: BaseException | None = None
    try:
        show()
    except (Exception, SystemExit) as unreadable:
        problem = unreadable
    try:
        path = run.save(save)
    except RunError as unsaved:
        if error is not None:
            errors.print(f"hotloop: {unsaved}", markup=False, highlight=False, soft_wrap=True)
        problem = unsaved
    else:
        say_saved(errors, path, run.complete)
    if error is not None:
        raise error
    if problem is not None:
        raise problem
    return 0
