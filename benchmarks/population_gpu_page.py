"""The page of benchmarks/population_gpu.py: its tables, from the raw results alone."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from card import MIB, Card
from population_runs import DAYS, interval, text
from tables import table

if TYPE_CHECKING:
    from population_gpu import Job, Session

Row = dict[str, Any]


def page_parts(card: Card, session: "Session", jobs: Sequence["Job"], cpu: str) -> list[str]:
    """The parts of the page, below its title."""
    done = [(job, session.done[job.name]["rows"]) for job in jobs if job.name in session.done]
    facts = ", ".join(f"{name} {value}" for name, value in session.key.items())
    parts = [
        f"**{facts}.** {card.clocks} Medians with 95% intervals; a share or ratio is of the same "
        "turn. Populations and their networks are in memory before anything is timed.",
        _left_out(session, jobs),
    ]
    sections = (
        ("tests", "Tests that need a card", lambda rows: _tests(rows[0][1])),
        ("bits", "The same bits as on the CPU", _bits),
        ("ladder", "The ladder", lambda rows: _ladder(rows, cpu)),
        ("floors", "What the card's memory allows", _floors),
        ("copies", f"Copies for the record: all agents, every day of {DAYS}", _copies),
        ("ensembles", f"Ensembles, {DAYS} days", lambda rows: _ensembles(rows, cpu)),
        ("backward", "Backward, from a run on the card", lambda rows: _backward(rows)),
    )
    for kind, title, write in sections:
        own = [(job, rows) for job, rows in done if job.kind.startswith(kind)]
        if own:
            parts += [f"## {title}", write(own)]
    return parts


def _left_out(session: "Session", jobs: Sequence["Job"]) -> str:
    missing = {
        job.name: session.left_out.get(job.name, "not reached")
        for job in jobs
        if job.name not in session.done
    }
    if not missing:
        return "Nothing was left out."
    lines = [f"- {name}: {why}" for name, why in missing.items()]
    return "\n".join(["**Left out** (the same command goes on with them):", "", *lines])


def _tests(rows: list[Row]) -> str:
    row = rows[0]
    if "error" in row:
        return f"Not run to their end: {row['error']}"
    problems = "".join(f"\n- `{line}`" for line in row["problems"])
    verdict = "all well" if row["exit"] == 0 else f"**pytest ended with {row['exit']}**"
    return f"`pytest -m gpu`: {row['last'].strip('= ')}; {verdict}.{problems}"


def _bits(found: list[tuple["Job", list[Row]]]) -> str:
    ways = ("substeps", "captured graph", "mixed precision")
    rows, differing = [], 0
    for job, each in found:
        for row in each:
            if "error" in row:
                rows.append([row["name"], row["error"], *[""] * len(ways)])
                continue
            differing += sum(sum(row[way].values()) for way in ways[:2])
            cells = [_differences(row[way]) for way in ways]
            rows.append([f"{job.size:,}, {row['name']}", f"{row['infected']:,.0f}", *cells])
    verdict = "**Equal bit for bit.**" if not differing else "**THE CARD AND THE CPU DIFFER.**"
    header = ["agents and seed", "infected on the CPU", *(f"{way} on the card" for way in ways)]
    return (
        f"{verdict} Entries of the daily counts of {DAYS} days, and agents at their end, that "
        "differ from the CPU's program in double precision. Seed 0 starts from the exposed, the "
        "others from a tenth infectious; mixed precision may turn a rare decision.\n\n"
        + table(header, rows)
    )


def _differences(by_path: dict[str, int]) -> str:
    found = [f"{count} of {path.rpartition('/')[2]}" for path, count in by_path.items() if count]
    return ", ".join(found) or "equal"


def _ladder(found: list[tuple["Job", list[Row]]], cpu: str) -> str:
    rows = []
    for job, each in found:
        first = _ms(each, "substeps, a call a day")
        own = [
            [f"{job.size:,}", job.kind.removeprefix("ladder of "), *_speed(row, first)]
            for row in each
        ]
        rows += own
    header = [
        "agents", "run", "way", "ms a day", "against a call a day", "million agent days/s",
        "memory at most, MiB",
    ]  # fmt: skip
    return (
        "Memory is what a way took of the card beyond what was there; the network, 8 bytes an "
        f"edge, was. `{cpu}` follows the active agents, the card visits all of them every day.\n\n"
        + table(header, rows)
        + _agreement(found)
    )


def _agreement(found: Iterable[tuple["Job", list[Row]]]) -> str:
    differing = []
    for job, each in found:
        totals = {
            row["infected"] for row in each if "infected" in row and "mixed" not in row["name"]
        }
        if len(totals) > 1:
            differing.append(job.name)
    if differing:
        return f"\n\n**ROWS DIFFER in how many they infect: {'; '.join(differing)}.**"
    return "\n\nAll rows of a run but those of mixed precision infect as many."


def _ms(rows: list[Row], name: str) -> np.ndarray | None:
    return next((np.array(row["ms"]) for row in rows if row["name"] == name and "ms" in row), None)


def _speed(row: Row, first: np.ndarray | None) -> list[str]:
    if "ms" not in row:
        return [row["name"], row.get("error", ""), "", "", ""]
    ms = np.array(row["ms"])
    ratio = "" if first is None else f"{interval(first / ms).value:.1f}x"
    speed = row["agents"] / interval(ms).value / 1e3
    return [row["name"], text(interval(ms)), ratio, f"{speed:,.0f}", _mib(row)]


def _mib(row: Row) -> str:
    return f"{row['peak'] / MIB:,.0f}" if row.get("on_card") and row["peak"] else ""


def _floors(found: list[tuple["Job", list[Row]]]) -> str:
    rows = []
    for job, each in found:
        day = _ms(each, "captured graph")
        if day is None:
            rows.append([f"{job.size:,}", each[0].get("error", ""), *[""] * 8])
            continue
        row = each[0]
        copy = _ms(each, "copy")
        assert copy is not None
        rate = 2 * row["floor"] / 1e6 / interval(copy).value  # GB/s, read and written
        cells = [f"{job.size:,}", text(interval(day)), f"{rate:,.0f}"]
        for name in ("copy", "gather of 4 bytes", "gather of 1 byte"):
            floor = _ms(each, name)
            assert floor is not None
            cells += [text(interval(floor), 4), f"{interval(floor / day).value:.0%}"]
        moved = row["moved"] / 1e6 / interval(day).value
        cells.append(f"{row['moved'] / row['agents']:,.0f}; {moved:,.0f} GB/s")
        rows.append(cells)
    header = [
        "agents", "day of the captured graph, ms", "copy, GB/s",
        "copy of a dense day's bytes, ms", "share",
        "gather of 4 bytes an edge, ms", "share", "gather of 1 byte an edge, ms", "share",
        "bytes an agent that the operations move in a day, and their rate",
    ]  # fmt: skip
    return (
        "A dense day needs its network's ids and pointers, and the columns once; a gather reads an "
        "id and a number for each edge, and writes the number. A share is that floor over the day, "
        "paired. The operations of a step read and write each of their tensors in full: so much "
        "more than the floor is moved because they are many.\n\n" + table(header, rows)
    )


def _copies(found: list[tuple["Job", list[Row]]]) -> str:
    rows = []
    for job, each in found:
        for row in each:
            way = row["name"].partition(",")[0]
            within = _ms(each, f"{way}, copies in the computing stream")
            cells = _speed(row, within)
            copied = f"{row['copied'] / MIB:,.2f}" if "copied" in row else ""
            rows.append([f"{job.size:,}", *cells[:3], copied])
    header = ["agents", "way", "ms a day", "against copies in its stream", "copied in a run, MiB"]
    return table(header, rows) + _agreement(found)


def _ensembles(found: list[tuple["Job", list[Row]]], cpu: str) -> str:
    rows = []
    for job, each in found:
        first = _ms(each, cpu)
        for row in each:
            cells = _speed(row, first)
            if "ms" in row:
                runs = int(job.detail.removeprefix("of ").replace(",", ""))
                cells[1] = text(interval(np.array(row["ms"]) / runs), 5)
            rows.append([job.detail.removeprefix("of "), *cells])
    header = [
        "replicates", "way", "ms a day of one", "against the CPU", "million agent days/s",
        "memory at most, MiB",
    ]  # fmt: skip
    return table(header, rows) + _agreement(found)


def _backward(found: list[tuple["Job", list[Row]]]) -> str:
    rows, gradients = [], []
    for _, each in found:
        for row in each:
            if "ms" not in row:
                rows.append([row["name"], row.get("error", ""), ""])
                continue
            gradients.append(row["gradient"])
            by_week = ", ".join(f"{value:.2f}" for value in row["gradient"])
            rows.append([row["name"], text(interval(np.array(row["ms"]))), by_week])
    verdict = ""
    if len(gradients) > 2:  # of the card and of the CPU
        same = all(np.allclose(gradients[0], one, rtol=1e-6) for one in gradients)
        verdict = "The gradients agree." if same else "**THE GRADIENTS DIFFER.**"
    return (
        "From a tenth infectious. The gradient is worked out on the host, along the run that the "
        f"card did. {verdict}\n\n" + table(["way", "ms a day", "gradient by R of each week"], rows)
    )
