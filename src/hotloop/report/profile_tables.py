"""The tables of each profile, for the terminal and the page alike."""

from collections.abc import Callable, Mapping
from typing import Any

from hotloop.loop.figures import Interval
from hotloop.profile.growth import is_growth
from hotloop.profile.memory import MemoryProfile
from hotloop.profile.time_profile import TimeProfile
from hotloop.report.numbers import bytes_, measured, number, percent
from hotloop.report.profile_model import model_tables
from hotloop.report.profile_network import network_tables
from hotloop.report.profile_rows import MOST_ROWS, Rows, place


def _time_tables(found: TimeProfile, stage: str | None) -> list[Rows]:
    stages = [each for each in found.stages if stage in (None, each.stage)]
    functions = [each for each in found.functions if stage in (None, each.stage)]
    return [
        Rows(
            "Time by stage",
            [("stage", "left"), ("share", "right"), ("thread", "left")],
            [[each.stage, percent(each.share), each.lane] for each in stages[:MOST_ROWS]],
            ["Shares of the samples of each thread; an outer stage has those of its inner ones."],
        ),
        Rows(
            "Functions that take the most by themselves",
            [
                ("stage", "left"),
                ("function", "left"),
                ("itself", "right"),
                ("with what it calls", "right"),
                ("line", "right"),
                ("at", "left"),
            ],
            [
                [
                    each.stage,
                    each.function,
                    percent(each.own),
                    percent(each.total),
                    percent(each.at_line),
                    place(each.file, each.line),
                ]
                for each in functions[:MOST_ROWS]
            ],
            ["Shares of the stage's samples; line: what the hottest line has, which is named."],
        ),
    ]


def _memory_tables(found: MemoryProfile, stage: str | None) -> list[Rows]:
    return [
        _stage_memory(found, stage),
        Rows(
            "Lines that allocate the most",
            [*_PLACE, ("bytes an iteration", "right"), ("allocations", "right")],
            [
                [
                    *_place_cells(each),
                    bytes_(each.bytes_per_iteration),
                    number(each.allocations_per_iteration),
                ]
                for each in found.allocating
                if stage in (None, each.stage)
            ][:MOST_ROWS],
            ["Freed or not, Python's small objects included."],
        ),
        Rows(
            "Growth",
            [*_PLACE, ("bytes an iteration", "right")],
            [
                [*_place_cells(each), measured(each.growth_bytes, bytes_)]
                for each in found.growing
                if stage in (None, each.stage)
            ],
            _growth_notes(found),
        ),
        *_gpu_tables(found, stage),
    ]


_PLACE = [("stage", "left"), ("function", "left"), ("at", "left")]


def _place_cells(line: Any) -> list[str]:
    return [line.stage, line.function, place(line.file, line.line)]


def _stage_memory(found: MemoryProfile, stage: str | None) -> Rows:
    return Rows(
        "Memory by stage",
        [
            ("stage", "left"),
            ("held at the peak", "right"),
            ("bytes an iteration", "right"),
            ("allocations", "right"),
        ],
        [
            [
                each.stage,
                bytes_(each.at_peak_bytes),
                bytes_(each.bytes_per_iteration),
                number(each.allocations_per_iteration),
            ]
            for each in found.stages
            if stage in (None, each.stage)
        ],
        [
            f"At the peak {bytes_(found.peak_bytes)} of what was allocated meanwhile; the process "
            f"has {bytes_(found.resident_bytes)} resident."
        ],
    )


def _growth_notes(found: MemoryProfile) -> list[str]:
    growth = found.growth_bytes
    if growth is None:
        return ["Too few iterations to tell growth from turnover; give a larger --seconds."]
    notes = [f"The loop grows by {measured(growth, bytes_)} an iteration{_judged(growth)}."]
    if found.replaced_bytes:
        notes.append(
            f"Lines keep {bytes_(found.replaced_bytes)} an iteration more, in place of what was "
            "there before and is freed: a queue or a ring."
        )
    return notes + [
        f"{each.name}, a {each.kind} of {each.items} items, grows by "
        f"{number(each.items_per_iteration)} an iteration."
        for each in found.holders
    ]


def _judged(growth: Interval) -> str:
    if is_growth(growth):
        return ": a leak, or a buffer that is not full yet"
    return ": no leak is seen"


def _gpu_tables(found: MemoryProfile, stage: str | None) -> list[Rows]:
    if found.gpu is None:
        return []
    return [
        Rows(
            "Memory of the card",
            [*_PLACE, ("in use", "right")],
            [
                [*_place_cells(each), bytes_(each.bytes)]
                for each in found.gpu.lines
                if stage in (None, each.stage)
            ],
            [
                f"At the peak {bytes_(found.gpu.peak_bytes)} in use and "
                f"{bytes_(found.gpu.reserved_bytes)} reserved."
            ],
        )
    ]


# The tables of a profile of each aspect, given what it has found and the only stage looked at.
TABLES: Mapping[str, Callable[[Any, str | None], list[Rows]]] = {
    "time": _time_tables,
    "memory": _memory_tables,
    "model": model_tables,
    "network": network_tables,
}
