"""The end of a verb that measured: the report, the saved run, then what cut it short."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from hotloop.cli.output import say_saved
from hotloop.errors import RunError
from hotloop.loop.run import Run


def finish(
    errors: Console,
    run: Run,
    error: BaseException | None,
    save: Path | None,
    show: Callable[[], None],
    *,
    enough: bool = True,
) -> int:
    """Show the report, save the run, then raise what cut it short, if something did.

    enough: whether a run that was cut short has anything in it worth showing and saving.
    """
    if error is not None and not enough:
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
