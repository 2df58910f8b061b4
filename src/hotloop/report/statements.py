"""The answer of an experiment in words, the same in the terminal and on the page.

A sentence is a list of plain words, names and amounts; the terminal and the page each style them
in their own way.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotloop.loop.figures import Interval, Unknown
from hotloop.report.numbers import duration, interval, percent
from hotloop.report.sentence import Amount, Name, Sentence, listed
from hotloop.simplify.ceilings import Ladder, Rung
from hotloop.simplify.verdict import Verdict
from hotloop.simplify.verdict_rows import Pair

MOST_IS_LEFT = 0.5  # of the time when every stage is free
WORTH_A_LOOK = 0.1  # of the time, between the stages

_COST = {
    "waiting": "the loop waits for it",
    "contention": "it takes the others’ cores or lock: more workers would make it worse",
    "own work": "it is its own work",
    "unknown": "how it costs is not known",
}


@dataclass(frozen=True)
class State:
    """Where a loop stands, and the ceilings above it.

    base_ns: the time of an iteration in the rounds in which every arm of the ladder ran. The
    factor of a ceiling is computed within those rounds: from base_ns, not from now_ns.
    """

    now_ns: Interval
    base_ns: Interval
    ceilings: Sequence[Rung]


def rungs(verdict: Verdict) -> list[Rung]:
    """The ladder from now to the roof; without a ladder, now and one rung with the reason."""
    if isinstance(verdict.ladder, Ladder):
        return verdict.ladder.rungs
    return [
        Rung("now", verdict.baseline_ns, "the loop as it is", ""),
        Rung("ceilings", verdict.ladder, "", ""),
    ]


def state(verdict: Verdict) -> State | Unknown:
    """The loop's rate and its ceilings, or the reason why they are unknown."""
    now = verdict.baseline_ns
    if isinstance(now, Unknown):
        return now
    first, *ceilings = rungs(verdict)
    return State(now, first.ns if isinstance(first.ns, Interval) else now, ceilings)


def fix(verdict: Verdict) -> Sentence:
    """Say what to fix next, what it is worth and how it costs."""
    found = verdict.fix
    if found is None:
        return _nothing(verdict)
    if isinstance(found, Pair):
        one, other = found.stages
        words: list[str | Name | Amount] = [Name(one), " and ", Name(other), " together: up to "]
        return [*words, Amount(found.gain, percent), " of the time; neither gains alone"]
    words = [Name(found.name), ": up to ", Amount(found.gain, percent), " of the time; "]
    words.append(_COST[found.cost])
    for k, gain in found.faster.items():
        if isinstance(gain, Interval):
            words += [f"; {_times_as_fast(k)} saves ", Amount(gain, percent)]
            break
    if verdict.ties:
        words += [". A tie: ", *listed(verdict.ties), " gain", "s"[len(verdict.ties) > 1 :]]
        words.append(" as much, as far as can be told")
    if verdict.contention:
        words.append(". Contention, not modelled: try before you add workers")
    return words


def unknown(verdict: Verdict) -> Sentence | None:
    """Name the stages whose gain is unknown, with the reasons; None if there is no such stage."""
    rows = {row.name: row for row in verdict.rows}
    if not verdict.unknown or (verdict.fix is None and not _replaced(verdict)):
        return None  # the answer itself is about them
    reasons = {rows[name].not_replaced or "too few rounds" for name in verdict.unknown}
    return [
        *listed(verdict.unknown),
        f": not replaced, so {'its' if len(verdict.unknown) == 1 else 'their'} gain is unknown "
        f"({_any(reasons)})",
    ]


def rest(verdict: Verdict) -> Sentence | None:
    """Say which code between the stages has much of the time; None where there is none."""
    largest = max((row.share for row in verdict.rows), default=0.0)
    places = [each for each in verdict.rest_places if each.share >= min(largest, WORTH_A_LOOK)]
    if not places:
        return None
    words: list[str | Name | Amount] = []
    for place in places:
        words += [", "] * bool(words) + [Name(place.function), " by itself" * place.calls_stages]
        at = f"{Path(place.file).name}:{place.line}"
        words.append(f" has {percent(place.share)} of the time, most of it at {at}")
    options = [f"--stage {place.stage}" for place in places if place.stage is not None]
    if options:
        words.append(f"; to know its gain: {' '.join(options)}")
    return words


def _nothing(verdict: Verdict) -> Sentence:
    """The answer without a stage to fix: nothing gains, or no gain is known."""
    if _replaced(verdict):
        words: list[str | Name | Amount] = [
            "nothing: no stage alone, and no pair tried, gains what is worth it"
        ]
        words += _where_it_is(verdict)
        unclear = [row.name for row in verdict.rows if row.verdict == "unclear"]
        if unclear:
            words += ["; not clear yet: ", *listed(unclear), " (a larger --budget tells)"]
        return words
    reasons = {row.not_replaced or "too few rounds" for row in verdict.rows}
    if not reasons:
        return ["not known: no stage was seen in the time that there was"]
    return [
        "not known: no stage could be replaced, so no gain was measured. ",
        f'{_any(reasons).capitalize()}. Declare effect="pure" or, with the loop’s state, '
        'effect="stateful" for a stage to make it known; of a script as it is, make functions '
        "of its own stages with --stage module:function",
        *_where_it_is(verdict),
    ]


def _where_it_is(verdict: Verdict) -> Sentence:
    """Say where the time is, if not in a stage that was replaced."""
    rows = [row for row in verdict.rows if row.inside is None]
    largest = max(rows, key=lambda row: row.share)
    rest = 0.0 if verdict.rest is None else verdict.rest.share
    if rest > largest.share:
        return [f"; {percent(rest)} of the time is between the stages, which no stage can gain"]
    if largest.not_replaced is None:
        return []
    return [
        "; ",
        Name(largest.name),
        f" was delayed only, and has {percent(largest.share)} of the time",
    ]


def _replaced(verdict: Verdict) -> bool:
    return any(isinstance(row.gain, Interval) for row in verdict.rows)


def _any(reasons: Iterable[str]) -> str:
    first, *more = sorted(reasons)
    others = "1 other reason" if len(more) == 1 else f"{len(more)} other reasons"
    return first + (f"; and {others}, in the table" if more else "")


def _times_as_fast(k: float) -> str:
    return "twice as fast" if k == 2 else f"{k:g} times as fast"


def leave(verdict: Verdict) -> Sentence:
    """Say what to leave alone, and the most that it could be worth."""
    if not verdict.leave:
        return ["nothing is known to be safe to ignore"]
    rows = {row.name: row for row in verdict.rows}
    most = max(gain.high for name in verdict.leave if isinstance(gain := rows[name].gain, Interval))
    words = listed(verdict.leave)
    each = "each, " if len(verdict.leave) > 1 else ""
    return [*words, f": under {percent(max(most, 0.0))} {each}even if free"]


def remarks(verdict: Verdict) -> list[str]:
    """What parts of the loop and pairs of stages gain together, and what no stage can gain."""
    groups = [
        f"{group.name} ({', '.join(group.stages)}) together: {interval(group.gain, percent)}"
        for group in verdict.groups
    ]
    pairs = [
        f"{' + '.join(pair.stages)} together: {interval(pair.gain, percent)}"
        for pair in verdict.pairs
    ]
    return [*groups, *pairs, *_most_is_left(verdict)]


def _most_is_left(verdict: Verdict) -> list[str]:
    found = verdict.rest
    if found is None or not isinstance(found.left, Interval) or found.left.low < MOST_IS_LEFT:
        return []
    left = f"{interval(found.left, percent)} of the time is left when every stage "
    kept = [row for row in verdict.rows if row.inside is None and row.not_replaced]
    if kept and max(row.share for row in kept) > found.share:
        largest = max(kept, key=lambda row: row.share)
        return [
            f"{left}that can be replaced is free: {largest.name}, which is delayed only, has "
            f"{percent(largest.share)} of the time, and nothing says what of it could be gained"
        ]
    return [
        f"{left}is free: no stage "
        "can gain it. Make functions between the stages stages of their own (of a script as it is: "
        "--stage module:function)"
    ]


def model(ladder: Ladder) -> str:
    """Say whether a pipeline of the stages' ceilings explains the measured baseline."""
    if isinstance(ladder.model, Unknown):
        return f"no pipeline model: {ladder.model.why}"
    predicted = interval(ladder.model.predicted_ns, duration)
    if ladder.model.holds:
        return f"a pipeline of the stages’ ceilings reproduces the baseline: {predicted}"
    return f"contention, not modelled: a pipeline of the stages’ ceilings would take {predicted}"


def noise(verdict: Verdict) -> str:
    """Say how long was measured, and by how much the machine's noise alone changed the result."""
    same = "; ".join(interval(gain, percent) for gain in verdict.aa.gains.values())
    return (
        f"{verdict.rounds} rounds in {verdict.seconds:.1f} s, {verdict.blocks}; "
        f"arms that are the same differ by {same or 'unknown: none ran often enough'}"
    )
