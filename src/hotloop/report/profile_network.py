"""The tables of what goes over the wire: by stage, by way, by line, and memory that is shared."""

from hotloop.profile.network_profile import NetworkProfile, StageTraffic, Wire
from hotloop.report.numbers import bytes_, duration, number, percent
from hotloop.report.profile_rows import MOST_ROWS, Rows, place

_WIRE = [("calls", "right"), ("sent", "right"), ("received", "right"), ("waiting", "right")]


def network_tables(found: NetworkProfile, stage: str | None) -> list[Rows]:
    """The tables of a profile of the network. stage: the only one to show; None: all."""
    tables = [_stages(found, stage)]
    if found.kinds:
        tables += [_kinds(found, stage), _places(found, stage)]
    return [*tables, _segments(found)] if found.segments else tables


def _stages(found: NetworkProfile, stage: str | None) -> Rows:
    return Rows(
        "Traffic by stage, in an iteration",
        [
            ("stage", "left"),
            ("sent", "right"),
            ("received", "right"),
            ("time", "right"),
            ("waiting", "right"),
            ("less waiting", "right"),
            ("blocked", "right"),
            ("queued", "right"),
            ("declared", "right"),
        ],
        [_stage_row(each) for each in found.stages if stage in (None, each.stage)],
        [*_waiting_notes(found), *_kernel_notes(found), *_ray_notes(found)],
    )


def _stage_row(each: StageTraffic) -> list[str]:
    return [
        each.stage,
        bytes_(each.wire.sent_bytes),
        bytes_(each.wire.received_bytes),
        _time(each.time_ns),
        duration(each.wire.waited_ns),
        _time(each.working_ns),
        _time(each.blocked_ns),
        _time(each.queued_ns),
        "" if each.declared_bytes is None else bytes_(each.declared_bytes),
    ]


def _time(ns: float | None) -> str:
    return "" if ns is None else duration(ns)


def _waiting_notes(found: NetworkProfile) -> list[str]:
    queue = "" if found.knows_queue else ", which this kernel does not tell"
    notes = [
        "Waiting: time within calls that send, receive or wait for that; an outer stage has those "
        "of its inner ones. Blocked, by the kernel: time less processor time less the time queued "
        f"for a processor{queue}; so also sleeps and locks. Declared: what the stage says it "
        "moves, as in memory that is shared."
    ]
    if found.processes:
        notes.append(
            f"Only this process is seen; what {found.processes} of its children send is not."
        )
    return notes


def _kernel_notes(found: NetworkProfile) -> list[str]:
    kernel = found.kernel
    if kernel is None:
        return ["This kernel does not tell what compiled libraries send."]
    moved = kernel.tcp_sent + kernel.tcp_received
    explained = found.tcp.sent_bytes + found.tcp.received_bytes
    notes = []
    if moved or explained:
        share = f"; Python’s calls explain {percent(explained / moved)}" if moved else ""
        notes.append(
            f"By the kernel, TCP: {bytes_(kernel.tcp_sent)} sent and "
            f"{bytes_(kernel.tcp_received)} received on {kernel.sockets} sockets of this "
            f"process{share}. The rest is sent by compiled libraries."
        )
    if kernel.namespace_sent is not None and kernel.namespace_received is not None:
        notes.append(
            f"All processes that share this network: {bytes_(kernel.namespace_sent)} sent and "
            f"{bytes_(kernel.namespace_received)} received meanwhile, with headers."
        )
    return notes


def _ray_notes(found: NetworkProfile) -> list[str]:
    if found.ray_timeline is None:
        return []
    return [f"Ray’s timeline: {found.ray_timeline}, for ui.perfetto.dev."]


def _kinds(found: NetworkProfile, stage: str | None) -> Rows:
    return Rows(
        "Ways",
        [("stage", "left"), ("way", "left"), *_WIRE],
        [
            [each.stage, each.kind, *_wire(each.wire)]
            for each in found.kinds
            if stage in (None, each.stage)
        ][:MOST_ROWS],
    )


def _places(found: NetworkProfile, stage: str | None) -> Rows:
    return Rows(
        "Lines that move or wait the most",
        [("stage", "left"), ("function", "left"), ("way", "left"), *_WIRE, ("at", "left")],
        [
            [
                each.stage,
                each.function,
                each.kind,
                *_wire(each.wire),
                place(each.file, each.line),
            ]
            for each in found.places
            if stage in (None, each.stage)
        ][:MOST_ROWS],
    )


def _wire(wire: Wire) -> list[str]:
    return [
        number(wire.calls),
        bytes_(wire.sent_bytes),
        bytes_(wire.received_bytes),
        duration(wire.waited_ns),
    ]


def _segments(found: NetworkProfile) -> Rows:
    return Rows(
        "Shared memory",
        [("mapping", "left"), ("count", "right"), ("size", "right"), ("resident", "right")],
        [
            [each.name, number(each.mappings), bytes_(each.size_bytes), bytes_(each.resident_bytes)]
            for each in found.segments
        ],
        ["What moves through it is seen by nothing but the stages themselves: see declared."],
    )
