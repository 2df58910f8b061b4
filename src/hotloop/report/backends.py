"""What the terminal and the page both say about a sweep of backends."""

from hotloop.benchmark.backends import BackendRow, BackendTable
from hotloop.benchmark.noise import Interval
from hotloop.report.numbers import factor, number, percent
from hotloop.report.statements import Amount, Name, Sentence


def row_name(row: BackendRow) -> str:
    """process, 2 workers, 2 splits."""
    return _counted(row.backend if row.chosen is None else f"auto ({row.chosen})", row)


def series_name(row: BackendRow) -> str:
    """The backend, without its workers."""
    return row.backend if row.splits == 1 else f"{row.backend}, {row.splits} splits"


def best(table: BackendTable) -> Sentence:
    """Which backend is best, by how much, and which others may be as good."""
    if table.best is None:
        return ["nothing was measured"]
    row = table.rows[table.best]
    words: list[str | Name | Amount] = [Name(row_name(row)), ": ", Amount(row.sps, number), " SPS"]
    if isinstance(row.to_serial, Interval) and row.backend != "serial":
        words += [", ", Amount(row.to_serial, factor), " serial’s"]
    for k in table.equals:
        words += ["; not told apart from " if k == table.equals[0] else ", "]
        words.append(Name(row_name(table.rows[k])))
    second = _second(table)
    if second is not None:
        words += ["; the next, ", Name(row_name(second)), ", has "]
        words += [Amount(second.to_best, percent), " of its rate"]
    return words


def auto(table: BackendTable) -> Sentence | None:
    """What auto chose and how it compares; None where it was not measured."""
    if table.auto is None:
        return None
    row = table.rows[table.auto]
    chosen: Sentence = ["chose ", Name(_counted(str(row.chosen), row)), ": "]
    if table.best == table.auto:
        return [*chosen, Amount(row.sps, number), " SPS"]
    return [*chosen, Amount(row.to_best, percent), " of the best one’s rate"]


def measured(table: BackendTable) -> str:
    """How the rates were measured."""
    return (
        f"{table.rounds} rounds in random order, {table.round_s:.2g} s each; random actions, "
        "policy and learner left out"
    )


def _second(table: BackendTable) -> BackendRow | None:
    """The fastest row that is slower than the best one."""
    slower = [
        row
        for k, row in enumerate(table.rows)
        if k not in (table.best, table.auto, *table.equals) and isinstance(row.to_best, Interval)
    ]
    return max(slower, key=_share, default=None)


def _share(row: BackendRow) -> float:
    return row.to_best.value if isinstance(row.to_best, Interval) else 0.0


def _counted(name: str, row: BackendRow) -> str:
    words = [name]
    if row.num_workers is not None:
        what = "actor" if "ray" in (row.backend, row.chosen) else "worker"
        words.append(f"{row.num_workers} {what}{'s' if row.num_workers != 1 else ''}")
    if row.splits > 1:
        words.append(f"{row.splits} splits")
    return ", ".join(words)
