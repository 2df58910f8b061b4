"""A run as the journal notes it: its metrics, what it cost, and the version of the code."""

import datetime
from pathlib import Path
from typing import Any

from hotloop.loop.run import Run
from hotloop.repeat.code_version import code_version
from hotloop.repeat.entries import SECONDS, Metric, RunEntry, TryEntry
from hotloop.repeat.journal import Journal

_PRICE = "price_per_hour"


def run_entry(run: Run, metrics: dict[str, Metric], file: Path | None) -> RunEntry:
    """The entry of a run of the working folder.

    metrics: of its kind. file: where it was saved. Its cost is known where the price of an hour is
    among its settings or facts.
    """
    version = code_version(Path.cwd())
    seconds = metrics[SECONDS].value if SECONDS in metrics else None
    settings: dict[str, Any] = dict(run.settings)
    price = settings.get(_PRICE) or run.facts.get(_PRICE)  # the loop's own is a fact
    if price is not None:
        settings[_PRICE] = price
    return RunEntry(
        at=now(),
        verb=run.verb,
        target=run.target,
        metrics=metrics,
        commit=version.commit,
        diff_hash=version.diff_hash,
        host=run.host,
        settings=settings,
        seconds=seconds,
        cost=None if seconds is None or price is None else seconds * price / 3600,
        complete=run.complete,
        file=None if file is None else str(file),
    )


def note(run: Run, metrics: dict[str, Metric], file: Path | None, tried: TryEntry | None) -> None:
    """Note a run, and the try that it was made for, in the working folder's journal.

    Raises: JournalError.
    """
    Journal().add(run_entry(run, metrics, file), tried)


def now() -> str:
    """The time in ISO format, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
