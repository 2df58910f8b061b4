"""Saved runs, read again for a report: brought up to date, then checked against their kind."""

from pathlib import Path

from hotloop.errors import RunError, nearest
from hotloop.loop.run import Run, load
from hotloop.report.format_check import problem_of
from hotloop.report.kinds import KINDS
from hotloop.results.upgrade import upgraded


def open_run(path: Path) -> Run:
    """Read a saved run that has a report.

    Raises: RunError, in one sentence, for a file that is not a run or is damaged, for a kind of
    run that has no report, and for content that does not fit together.
    """
    run = load(path)
    kind = KINDS.get(run.verb)
    if kind is None:
        raise RunError(
            f"{path} is a {run.verb} run, which has no report in this version"
            f"{nearest(run.verb, KINDS)}"
        )
    try:
        run = upgraded(run)
    except RunError as error:
        raise RunError(f"{path} was edited or damaged: {error}") from None
    problem = problem_of(run, kind.format)
    if problem is not None:
        raise RunError(f"{path} was edited or damaged: {problem}")
    return run
