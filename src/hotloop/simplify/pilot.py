"""How long a block must be: the transient after a switch of arms.

After a switch the first iterations still consume what the arm before had produced, or find caches
that other arms filled. The pilot switches back and forth between the baseline and arms in which a
stage is free, without leaving anything out, and compares the durations by their position.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hotloop.loop.conduct import Block
from hotloop.loop.figures import median_spread
from hotloop.simplify.arm_names import BASELINE
from hotloop.simplify.rare_work import REST, rest_of_iterations
from hotloop.simplify.record import Record

# A block may be off by this share of its time through the transient.
CARRIED = 0.003
# Blocks may become so many times shorter once the arms are known.
SHORTER = 4
# A neighbour whose time grows so much when a stage is free waits for something unseen.
WAITS_FACTOR, WAITS_SHARE = 1.3, 0.05
# A stage that is called so much less while another is free is fed by that one.
FED_SHARE = 0.5
REST_NUMBER = -1
# Other threads with this share of a core beside the loop are part of it.
HIDDEN_CPU = 0.1
# What a stage that writes hands to such a thread is done by the time it is called again. Beyond so
# many iterations nothing is left out for it: most of every block would be.
LONGEST_HANDED_ON = 50
# Queues hold more at some switches than at others: so many times the transient that was seen.
QUEUE_MARGIN = 1.5
# A transient has no more than so many ordinary iterations in a row.
GAP = 4
# A stretch whose last quarter takes so many times the one before is still changing.
DRIFT = 1.3


@dataclass(frozen=True)
class Stretch:
    """One uninterrupted run of an arm.

    durations_ns: (iterations,). call_ns: the median call of each stage on the loop's own lane, by
    its number, with `REST_NUMBER` for what an iteration does outside of them. calls: of each stage
    in an iteration. other_cpu: processor time of other threads over wall time, without those that
    only help the loop's own one. presence: the share of the iterations in which each stage is
    called. stolen_ns: of an iteration, in which another program had the loop's core.
    """

    durations_ns: np.ndarray
    call_ns: Mapping[int, float]
    calls: Mapping[int, float]
    other_cpu: float
    presence: Mapping[int, float] = field(default_factory=dict)
    stolen_ns: float = 0.0


def stretch_of(block: Block, outermost: Sequence[int], lane: int) -> Stretch:
    """Read a block as a stretch. outermost: stages in no other one; lane: the loop's own."""
    events = np.array(block.events, np.int64).reshape(-1, 4)
    durations, starts = np.array(block.duration_ns, float), np.array(block.start_ns)
    rest = rest_of_iterations(events, outermost, lane, starts, durations)
    call_ns = {REST_NUMBER: float(np.median(rest))}
    calls: dict[int, float] = {}
    presence: dict[int, float] = {}
    for number in np.unique(events[:, 0]) if len(events) else ():
        of = events[events[:, 0] == number]
        calls[int(number)] = len(of) / len(durations)
        iterations = np.searchsorted(starts, of[:, 1], side="right")
        presence[int(number)] = len(np.unique(iterations)) / len(durations)
        mine = of[of[:, 3] == lane]
        if len(mine):
            call_ns[int(number)] = float(np.median(mine[:, 2] - mine[:, 1]))
    other = max(0, block.process_cpu_ns - block.helpers_cpu_ns - block.cpu_ns)
    stolen_ns = block.stolen_ns / len(durations)
    return Stretch(durations, call_ns, calls, other / max(block.wall_ns, 1), presence, stolen_ns)


@dataclass(frozen=True)
class Pilot:
    """The effect of a switch of arms on the iterations after it.

    transients: by stage, the iterations until the time of the arm in which it is free is its own.
    transient_ns: how long the longest of these transients takes. transient_base: the iterations
    of the baseline after them. carry_over: how much a gain would be off if nothing were left out.
    settled: whether the stretches were long enough to tell.
    """

    transients: dict[str, int] = field(default_factory=dict)
    transient_ns: float = 0.0
    transient_base: int = 0
    carry_over: float = 0.0
    settled: bool = False
    feeds: dict[str, list[str]] = field(default_factory=dict)  # by stage: those it keeps going
    # Stages that wait for something unseen, and how long a typical call then is, in ns.
    waits: dict[str, float] = field(default_factory=dict)
    other_cpu: float = 0.0
    presence: dict[str, float] = field(default_factory=dict)  # of stages in the iterations

    @property
    def transient(self) -> int:
        """The most iterations until the time of an arm with a free stage is its own."""
        return max(self.transients.values(), default=0)


@dataclass(frozen=True)
class Transient:
    """The iterations after a switch that are not yet the arm's own.

    iterations: of so many that were `seen`. ns: what they take. carried: what they add to a block,
    as a share of what a block of the baseline takes.
    """

    iterations: int
    seen: int
    ns: float = 0.0
    carried: float = 0.0


NO_PILOT = Pilot()
"""Where there was no time for one."""


def pilot_of(
    stretches: Mapping[tuple[str, str], list[Stretch]],
    free_arms: Mapping[str, str],
    numbers: Mapping[str, int],
    block: int,
) -> Pilot:
    """Read the pilot's stretches: (arm before, arm) to its repetitions.

    free_arms: stage by the arm that makes it free; numbers: of the stages by name; block:
    iterations of a block as it would be without the pilot.
    """
    base = [s for (_, arm), rows in stretches.items() if arm == BASELINE for s in rows]
    whole = float(np.median([np.median(s.durations_ns) for s in base])) if base else 0.0
    found = {pair: _transient(rows, block, whole) for pair, rows in stretches.items()}
    of_free = {free_arms[arm]: each for (_, arm), each in found.items() if arm in free_arms}
    settled = all(
        each.iterations < each.seen / 3
        and not _drifts([row.durations_ns[: each.seen] for row in stretches[pair]])
        for pair, each in found.items()
        if pair[1] in free_arms
    )
    feeds, waits = _feeds_and_waits(stretches, free_arms, numbers, base, whole)
    return Pilot(
        transients={name: each.iterations for name, each in of_free.items()},
        transient_ns=max((each.ns for each in of_free.values()), default=0.0),
        transient_base=max((t.iterations for p, t in found.items() if p[1] == BASELINE), default=0),
        carry_over=max((each.carried for each in found.values()), default=0.0),
        settled=settled,
        feeds=feeds,
        waits=waits,
        other_cpu=float(np.median([s.other_cpu for s in base])) if base else 0.0,
        presence={
            name: float(np.mean([s.presence.get(number, 0.0) for s in base]))
            for name, number in numbers.items()
            if base
        },
    )


def _feeds_and_waits(
    stretches: Mapping[tuple[str, str], list[Stretch]],
    free_arms: Mapping[str, str],
    numbers: Mapping[str, int],
    base: Sequence[Stretch],
    whole_ns: float,
) -> tuple[dict[str, list[str]], dict[str, float]]:
    """What is called less while another stage is free, and what then takes longer, in ns."""
    feeds: dict[str, list[str]] = {}
    waits: dict[str, float] = {}
    for (_, arm), rows in stretches.items():
        if arm not in free_arms:
            continue
        for other, number in [*numbers.items(), (REST, REST_NUMBER)]:
            if other == free_arms[arm]:
                continue
            before = [row.calls.get(number, 0.0) for row in base]
            if max(row.calls.get(number, 0.0) for row in rows) < FED_SHARE * min(before):
                feeds.setdefault(free_arms[arm], []).append(other)
            took = min(row.call_ns.get(number, 0.0) for row in rows)
            most = max(row.call_ns.get(number, 0.0) for row in base)
            # On a busy machine it may be that other programs held it up, and nothing of the loop.
            own = min(
                row.call_ns.get(number, 0.0) - row.stolen_ns / max(row.calls.get(number, 0.0), 1.0)
                for row in rows
            )
            if took > WAITS_FACTOR * most and own > most + WAITS_SHARE * whole_ns:
                longest = max(row.call_ns.get(number, 0.0) for row in rows)
                waits[other] = max(longest, waits.get(other, 0.0))
    return feeds, waits


def apply_pilot(record: Record, pilot: Pilot, declared: int, ahead: Mapping[str, int]) -> None:
    """Put the pilot's findings into the record: queues, waits, and what to leave out.

    declared: items in flight as they were given, 0 if they were not. ahead: by stage, the items
    that its own workers make before they are asked for.
    """
    record.carry_over, record.block_settled = pilot.carry_over, pilot.settled
    record.feeds = pilot.feeds
    if not record.concurrent:
        record.hidden = _what_shows_something_unseen(pilot, ahead)
        record.concurrent = record.hidden is not None
        if record.concurrent:
            record.kinds = [kind for kind in record.kinds if kind.name != REST]
    if record.concurrent:
        kinds = [kind.beside_waiting(pilot.waits.get(kind.name, 0.0)) for kind in record.kinds]
        record.kinds = [kind for kind in kinds if kind is not None]
    if declared or record.concurrent:
        record.in_flight = max(declared, record.in_flight, pilot.transient, *ahead.values())
    # One more: putting the state back takes time, in which the loop's other threads go on.
    out = record.in_flight + 1 if record.concurrent or record.in_flight else 0
    out = max(out, _handed_on(record, pilot))
    margin = QUEUE_MARGIN if record.concurrent else 1.0
    record.drain_iterations = out
    record.drain_base = max(out, math.ceil(margin * pilot.transient_base))
    if record.concurrent or record.in_flight:
        record.drain_iterations = max(out, math.ceil(margin * pilot.transient))
    else:
        # No queue: these are an effect of the processor and of other programs on this arm alone.
        record.transients, record.transient_ns = dict(pilot.transients), pilot.transient_ns


def _handed_on(record: Record, pilot: Pilot) -> int:
    """The iterations in which other threads may do what a stage gave them that is called seldom.

    The thread of a logger writes for several iterations after one that logs. Positions after a
    switch do not show it, for the stage is called at another one each time.
    """
    if pilot.other_cpu <= HIDDEN_CPU:
        return 0
    stages = [s for s in record.stages_in_focus() if s.replaceable and s.kind == "io"]
    present = [pilot.presence.get(stage.name, 0.0) for stage in stages]
    periods = [math.ceil(1 / share) for share in present if 0 < share < 1]
    return max((each for each in periods if each <= LONGEST_HANDED_ON), default=0)


def _what_shows_something_unseen(pilot: Pilot, ahead: Mapping[str, int]) -> str | None:
    if ahead:
        name, items = next(iter(ahead.items()))
        return f"workers of {name} make up to {items} items before they are asked for"
    if pilot.waits:
        return (
            f"{' and '.join(sorted(pilot.waits))} took longer when other stages were free: "
            "something waits there that is not a stage"
        )
    if pilot.other_cpu > HIDDEN_CPU and pilot.transient > 1:
        return (
            f"other threads computed for {pilot.other_cpu:.0%} of the time, and it took "
            f"{pilot.transient} iterations until a free stage was felt"
        )
    return None


def _transient(rows: list[Stretch], block: int, whole_ns: float) -> Transient:
    """The iterations to leave out, of how many that were seen, and what they would carry over.

    Repetitions are combined by position. The end of the transient is the first position from
    which the rest of the first half is no longer off by more than `CARRIED` of a block, or by
    the error of a sum of so many. A gain is a share of the baseline's time, so that a block takes
    `whole_ns` for an iteration here, also in an arm that is much shorter.
    """
    length = min(len(row.durations_ns) for row in rows)
    half = length // 2
    if half < 2 or not _carries([row.durations_ns[:length] for row in rows]):
        return Transient(0, length)
    typical = np.median([row.durations_ns[:length] for row in rows], axis=0)
    late = typical[half:]
    settled = float(np.median(late))
    spread = median_spread(late)
    off = np.clip(typical[:half] - settled, -settled, 20 * settled)
    _keep_first_run(off, 3 * spread + CARRIED * settled)
    # What is carried over if the first k iterations are left out, for every k.
    carried = np.abs(np.append(np.cumsum(off[::-1])[::-1], 0.0))
    left = half - np.arange(half + 1)
    allowed = np.maximum(CARRIED * block / SHORTER * whole_ns, 3 * spread * np.sqrt(left))
    end = int(np.argmax(carried <= allowed))
    share = float(carried[0] / (max(block, 1) * whole_ns)) if whole_ns else 0.0
    return Transient(end, length, float(typical[:end].sum()), share)


def _keep_first_run(off: np.ndarray, noise: float) -> None:
    """Set to 0 what comes long after the transient: rare work that was alike by chance."""
    last = -1
    for position in np.flatnonzero(np.abs(off) > noise).tolist():
        if position - last > GAP + 1:
            off[position:] = 0.0
            return
        last = position


def _carries(rows: list[np.ndarray]) -> bool:
    """Whether every repetition begins off its later level, and all of them in one direction.

    The effect of other programs differs from one repetition to the next.
    """
    sums = []
    for row in rows:
        half = len(row) // 2
        settled = float(np.median(row[half:]))
        sums.append(float((np.clip(row[:half], 0, 3 * settled) - settled).sum()))
    mean, error = float(np.mean(sums)), float(np.std(sums, ddof=1)) / np.sqrt(len(sums))
    same = all(each > 0 for each in sums) or all(each < 0 for each in sums)
    # Student's t for three repetitions.
    return same and abs(mean) > 4.3 * error


def _drifts(rows: list[np.ndarray]) -> bool:
    """Whether the last quarter differs from the one before, in all repetitions alike.

    Then a queue may have become empty only now, and more iterations would show another time.
    """
    quarter = len(rows[0]) // 4
    if quarter < 2:
        return False
    before = np.array([row[2 * quarter : 3 * quarter].mean() for row in rows])
    last = np.array([row[3 * quarter :].mean() for row in rows])
    return bool((last > DRIFT * before).all() or (before > DRIFT * last).all())
