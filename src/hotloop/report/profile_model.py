"""The tables of what a model computes: its stages, operations, modules, and what has no rule."""

from hotloop.profile.model_costs import Cost, ModelProfile
from hotloop.report.numbers import bytes_, duration, number, percent
from hotloop.report.profile_rows import MOST_ROWS, Rows, place

_COST = [("time", "right"), ("FLOPs", "right"), ("bytes", "right")]
_ROOF = [
    ("FLOP/byte", "right"),
    ("FLOP/s", "right"),
    ("roof", "right"),
    ("of the roof", "right"),
]


def model_tables(found: ModelProfile, stage: str | None) -> list[Rows]:
    """The tables of a model's profile. stage: the only one to show; None: all."""
    tables = [_stages(found, stage), _operations(found, stage), _modules(found, stage)]
    return [*tables, _uncounted(found, stage)] if found.uncounted else tables


def _stages(found: ModelProfile, stage: str | None) -> Rows:
    peaks = found.peaks
    return Rows(
        "Arithmetic by stage, in an iteration",
        [("stage", "left"), *_COST, *_ROOF, ("outside operations", "right")],
        [
            [
                each.stage,
                *_cost(each.cost),
                *_roof(each.cost, found),
                "" if each.outside is None else percent(each.outside),
            ]
            for each in found.stages
            if stage in (None, each.stage)
        ],
        [
            f"{number(found.whole.flops)} FLOPs and {bytes_(found.whole.moved_bytes)} an iteration "
            f"of {duration(found.whole.time_ns)}, by torch’s operations on the loop’s "
            "own thread; an outer stage has those of its inner ones.",
            f"{percent(found.call_coverage)} of {number(found.whole.calls)} calls have a rule for "
            f"their FLOPs, and {percent(found.time_coverage)} of the operations’ time.",
            f"Roof: {number(peaks.flops_per_s)} FLOP/s, or {bytes_(peaks.bytes_per_s)}/s by the "
            f"FLOPs for each byte, whichever is less; {peaks.how}. Bytes are counted for each "
            "operation on its own: what stays in a cache may come faster than the roof allows.",
        ],
    )


def _operations(found: ModelProfile, stage: str | None) -> Rows:
    return Rows(
        "Operations that take the most",
        [("stage", "left"), ("operation", "left"), ("calls", "right"), *_COST, *_ROOF],
        [
            [
                each.stage,
                each.operation,
                number(each.cost.calls),
                *(_cost(each.cost) if each.is_counted else _unknown_cost(each.cost)),
                *(_roof(each.cost, found) if each.is_counted else [""] * len(_ROOF)),
            ]
            for each in found.operations
            if stage in (None, each.stage)
        ][:MOST_ROWS],
        [
            "Times on the card, with the profiler."
            if found.on_card
            else "Times with the profiler, which makes small operations slower than they are."
        ],
    )


def _modules(found: ModelProfile, stage: str | None) -> Rows:
    return Rows(
        "Modules",
        [("stage", "left"), ("module", "left"), ("class", "left"), ("pass", "left"), *_COST],
        [
            [
                each.stage,
                each.module,
                each.kind if each.kind != each.module else "",
                each.pass_name,
                *_cost(each.cost),
            ]
            for each in found.modules
            if stage in (None, each.stage)
        ][:MOST_ROWS],
        [
            "Each without the modules inside it. Backward operations are of the module whose "
            "forward operation needs them."
        ],
    )


def _uncounted(found: ModelProfile, stage: str | None) -> Rows:
    return Rows(
        "Operations without a rule",
        [
            ("stage", "left"),
            ("operation", "left"),
            ("module", "left"),
            ("pass", "left"),
            ("calls", "right"),
            ("time", "right"),
            ("at", "left"),
        ],
        [
            [
                each.stage,
                each.operation,
                each.module,
                each.pass_name,
                number(each.cost.calls),
                duration(each.cost.time_ns),
                place(each.file, each.line),
            ]
            for each in found.uncounted
            if stage in (None, each.stage)
        ][:MOST_ROWS],
        ["Their FLOPs are unknown, and in no sum above."],
    )


def _cost(cost: Cost) -> list[str]:
    return [duration(cost.time_ns), number(cost.flops), bytes_(cost.moved_bytes)]


def _unknown_cost(cost: Cost) -> list[str]:
    return [duration(cost.time_ns), "unknown", bytes_(cost.moved_bytes)]


def _roof(cost: Cost, found: ModelProfile) -> list[str]:
    share = cost.share_of_roof(found.peaks)
    return [
        number(cost.intensity),
        number(cost.flops_per_s),
        number(cost.roof_flops_per_s(found.peaks)),
        "" if share is None else percent(share),
    ]
