"""The search for the best cut of a course, over every pair of stages that follow each other."""

from collections.abc import Iterator, Set

import numpy as np

from hotloop.recognise.calls import ACT, RESET, SIDE_WORK, SOURCES, Course, Ints
from hotloop.recognise.cuts import ANY, HELD, Cut, Rule, cut, kept_calls

# Where iterations start, if they may. A source is worth this much likeness: the update of an actor
# after every second one of its critic is no iteration of two steps.
STARTS, CLEAR = (RESET, *SOURCES[:2], ACT, *SOURCES[2:]), 0.12
FEWEST = 2  # segments that show a repetition
# A stage that is called again after at most so many updates is the source of the loop; after more
# only if it came before the first update: an evaluation does not.
OFTEN = 32
# So much of the steps is in simulations of the usual length, give or take this share of it.
EQUAL_LENGTH, GIVE_OR_TAKE = 0.9, 0.05
# Cuts are as good as each other within this likeness and this share of their counts; a cut that
# finds fewer than another by the third share misses iterations.
TIE, TIE_COUNT, MISSED = 0.05, 0.05, 0.005
AS_GOOD = 0.01  # a score this much lower is accepted for skipping what is rare
Preference = tuple[bool, bool, bool, bool, int, bool, int, float]


def best_cut(course: Course, needed: Set[str]) -> Cut | None:
    """The best of all cuts whose segments hold what is needed; None if nothing repeats."""
    best = _best(course, needed, frozenset(SIDE_WORK))
    # What is rare must not hide a boundary: a copy of the network between update and next step.
    rare = set(best.rare()) - set(SIDE_WORK) if best else set()
    if not best or not rare:
        return best
    again = _best(course, needed, rare.union(SIDE_WORK))
    return again if again and again.score >= best.score - AS_GOOD else best


def needs(course: Course) -> frozenset[str]:
    """What every iteration of this course must hold.

    The update, if there is one; and the source of the loop, if it is called again after updates.
    With neither policy nor update, simulations of equal length are the iterations.
    """
    if course.update not in course.has:
        return _simulations(course)
    update = course.update
    for source in sorted(course.has & set(SOURCES), key=course.first):
        both = course.code[np.isin(course.code, course.codes([source, update]))]
        both = both == course.names.index(update)
        returns = int((both[:-1] & ~both[1:]).sum())
        came_first, often = not both[0], both.sum() <= OFTEN * returns
        # Waits while processes are started come first, and not again.
        if returns and (came_first or often):
            return frozenset({update, source})
    return frozenset({update})


def _simulations(course: Course) -> frozenset[str]:
    if ACT in course.has or not {RESET, "env step"} <= course.has:
        return frozenset()
    by_reset = cut(course, Rule(ANY, RESET))
    steps = by_reset.counts[:, course.names.index("env step")]
    if len(steps) < FEWEST or steps.sum() <= len(steps):
        return frozenset()
    usual = float(np.median(steps))
    equal = np.abs(steps - usual) <= GIVE_OR_TAKE * usual
    alike = steps[equal].sum() >= EQUAL_LENGTH * steps.sum()
    return frozenset({RESET}) if alike else frozenset()


def _best(course: Course, needed: Set[str], beside: Set[str]) -> Cut | None:
    """The best cut where the stages of `beside` need not be part of the order."""
    skips = _skips(course, beside)
    cuts = (each for skipped in skips for each in _cuts(course, skipped, _most(course, needed)))
    good = [each for each in cuts if each.count >= FEWEST and each.holds(needed)]
    if not good:
        return None
    most = max(good, key=lambda each: each.score + CLEAR * (each.rule.start in SOURCES))
    equal = [
        each
        for each in good
        if each.likeness >= most.likeness - TIE
        and abs(each.count - most.count) <= max(1, TIE_COUNT * most.count)
    ]
    # Whatever stage: only where no stage alone makes the same boundaries.
    named = {each.places.tobytes() for each in equal if each.rule.named}
    equal = [each for each in equal if each.rule.named or each.places.tobytes() not in named]
    return min(equal, key=lambda each: _preference(each, most.count, needed, skips))


def _most(course: Course, needed: Set[str]) -> float:
    """How many segments may hold what is needed, and as many again that are not usual."""
    calls = course.before[-1][course.codes(sorted(needed))]
    return 2 * float(calls.min(initial=len(course))) / HELD


def _skips(course: Course, beside: Set[str]) -> list[frozenset[str]]:
    """What may be skipped: side work; all but the heart of the loop; acting too; nothing.

    A policy that acts now and then (ε-greedy) would come between the update and the env's step.
    """
    others = beside | (course.has - {*SOURCES, ACT, course.update})
    ways = (frozenset(beside), frozenset(others), frozenset({*others, ACT}), frozenset[str]())
    different: dict[frozenset[str], frozenset[str]] = {}
    for way in ways:
        different.setdefault(course.has & way, way)
    return list(different.values())


def _cuts(course: Course, skipped: frozenset[str], most: float) -> Iterator[Cut]:
    """The cuts at every pair of stages where some are skipped, of so many segments at most."""
    kept, size = kept_calls(course, skipped), len(course.names)
    code = course.code[kept]
    pairs = code[:-1] * size + code[1:]
    by_pair = np.argsort(pairs, kind="stable")
    ends = np.cumsum(np.bincount(pairs, minlength=size * size))
    rules: list[tuple[str, str, Ints]] = []
    for pair in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
        x, y = divmod(pair, size)
        if x != y:
            within = slice(ends[pair - 1] if pair else 0, ends[pair])
            rules.append((course.names[x], course.names[y], kept[1:][by_pair[within]]))
    for x in np.flatnonzero(np.bincount(code)).tolist():
        rules.append((ANY, course.names[x], kept[code == x]))
        after = code[:-1] == x
        if not (after & (code[1:] == x)).any():
            rules.append((course.names[x], ANY, kept[1:][after]))
    for x_name, y_name, places in rules:
        if FEWEST < len(places) <= most + 1:
            yield Cut(course, Rule(x_name, y_name, skipped), places)


def _preference(each: Cut, most: int, needed: Set[str], skips: list[frozenset[str]]) -> Preference:
    """Of cuts that are as good: before the source, after the update, after the longest pause."""
    rule = each.rule
    rank = STARTS.index(rule.start) if rule.start in STARTS else len(STARTS)
    sources = set(SOURCES[:2]) if not needed else needed & {RESET, *SOURCES[:2]}
    return (
        rule.start not in sources,
        most - each.count > max(1, MISSED * most),
        rule.after != each.course.update,
        rule.start not in STARTS and (rule.start != ANY or rule.after != each.course.update),
        skips.index(rule.skipped),
        rule.after == ANY,
        rank + (rule.start == ANY),
        -each.gap_ns(),
    )
