"""What a reader should know besides the verdict: the blocks, and reasons to doubt it."""

import numpy as np

from hotloop.simplify.estimate import FEW_EVENTS
from hotloop.simplify.record import Record

# From this share of the time on, the cost of measuring the calls is reported.
MUCH_PROBE = 0.03


def warnings_of(record: Record, complete: bool) -> list[str]:
    """Return the warnings, each a sentence, the loop's own notices first."""
    found = [*record.notices, *_replay_warnings(record), *_block_warnings(record)]
    found += [f"{b['stage']} {b['what']}: {b['remedy']}" for b in record.broken]
    found += _rare_warnings(record)
    if record.out_of_time:
        found.append("the time was up in the middle of a round; what was measured by then counts")
    probe = sum(record.probe_ns) / max(sum(record.ns), 1.0)
    if probe > MUCH_PROBE:
        what = "left out" if record.in_sequence else "part of the times, for it runs beside others"
        found.append(
            f"measuring the calls took {probe:.0%} of the time, which is {what}; stages around "
            "longer pieces of work would tell more"
        )
    pressure = _pressure(record)
    if pressure > 0.2:
        found.append(f"during {pressure:.0%} of the blocks some program waited for a core")
    if record.extended:
        found.append("the arms that are the same differed at first, so the run was extended")
    if not complete:
        found.append("the run was interrupted; this is what it had measured")
    return found


def blocks_of(record: Record) -> str:
    """Say how long blocks were, and what is left out after a switch of arms."""
    least, most = min(record.iterations, default=0), max(record.iterations, default=0)
    untimed = max(record.drain_iterations, *record.transients.values(), 0)
    text = f"blocks of {f'{least} to ' if least < most else ''}{most} iterations"
    left_out = [f"up to {max(untimed, record.drain_base)} iterations"] if untimed else []
    if record.drain_s:
        left_out.append(f"{1e3 * record.drain_s:.2g} ms")
    if left_out:
        text += f" after {' and '.join(left_out)} that are not timed"
    outputs = [stage.outputs for stage in record.stages_in_focus() if stage.replaceable]
    if outputs:
        least, most = min(outputs), max(outputs)
        text += f", replayed from {least}{f' to {most}' if most > least else ''} recorded outputs"
    if record.concurrent and record.carry_over is not None:
        text += f" (undrained, a gain would be off by up to {100 * record.carry_over:.1f} points)"
    return text


def _replay_warnings(record: Record) -> list[str]:
    """Where recorded outputs may differ from new ones."""
    found = [
        f"the output of {name} is written into downstream; each block replays fresh copies"
        for name in record.mutated
    ]
    for stage in record.stages:
        if stage.modes_ns is not None:
            low, high = (ns / 1e6 for ns in stage.modes_ns)
            found.append(
                f"{stage.name} takes either {low:.3g} or {high:.3g} ms: a replayed mix may not be "
                "what the next call would have taken"
            )
        inner = [s.name for s in record.stages if s.inside == stage.name]
        if inner and stage.replaceable:
            found.append(
                f"while {stage.name} is replaced, the stages inside it ({', '.join(inner)}) do "
                "not run"
            )
    for name, why in record.dropped.items():
        if " raised " in why:
            found.append(f"{name} was given up: {why}")
    return found


def _block_warnings(record: Record) -> list[str]:
    """Reasons in the blocks themselves to doubt their times."""
    found = []
    if not record.block_settled:
        found.append(
            f"the estimates still moved at {record.block_iterations} iterations a block: what an "
            "arm leaves in the queues may be counted to the next; say in_flight, or give a larger "
            "--budget"
        )
    if record.missed_replays:
        found.append(f"{record.missed_replays} replayed calls had nothing recorded and ran instead")
    if record.switches and np.median(record.switches) > 20:
        found.append(
            f"the loop was put off its core {np.median(record.switches):.0f} times in a median "
            "block: something else wants these cores"
        )
    if record.hidden:
        found.append(
            f"something beside the loop feeds it without being a stage: {record.hidden}. Its gains "
            "hold, for blocks were made long enough; put a stage around its work to see what it "
            "could gain"
        )
    return found


def _rare_warnings(record: Record) -> list[str]:
    """Rare work of which too few events were seen to know its share."""
    found = []
    total = sum(record.ns)
    for k, kind in enumerate(record.kinds):
        spent = sum(float(row[k]) for row in record.rare_ns)
        events = sum(float(row[k]) for row in record.rare_events)
        if total and spent > 0.01 * total and 0 < events < FEW_EVENTS:
            found.append(
                f"{kind.name} has rare long calls with {spent / total:.0%} of the time, and only "
                f"{events:.0f} of them were seen; a --budget of about "
                f"{record.seconds * FEW_EVENTS / events:.0f} s would tell their share"
            )
    if record.period > 2 * record.block_iterations:
        found.append(
            f"work that comes about every {record.period} iterations does not fit into a block of "
            f"{record.block_iterations}; intervals are wide for it"
        )
    return found


def _pressure(record: Record) -> float:
    """The share of the measured time in which some task of the machine waited for a core."""
    measured_ns = sum(record.ns)
    # The kernel adds up at times of its own, so that short blocks may seem to have more than all.
    return min(1e3 * sum(record.pressure_us) / measured_ns, 1.0) if measured_ns else 0.0
