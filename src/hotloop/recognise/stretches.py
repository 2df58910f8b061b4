"""A course divided into stretches: what repeats, what comes before, after and now and then between.

The best cut of the whole course is found first. What lies before and after it is divided in the
same way; where the iterations of a cut change for good, it becomes two.
"""

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace

import numpy as np

from hotloop.recognise.calls import Course, Ints
from hotloop.recognise.cuts import Cut, order
from hotloop.recognise.search import best_cut, needs

# Below it the order of the calls is as good as random.
REPEATS = 0.4
# A cut that is later than the others is the steady one if it has this share of their time.
LONG = 0.3
# Fewer calls than these, at an end of the course, are no phase.
FEWEST_CALLS = 10
# Iterations change for good where at least so many on both sides differ by this share of their
# time, and so many times more than they vary.
FEWEST_ALIKE, CHANGE, BEYOND_NOISE = 10, 0.3, 30.0

Needs = Callable[[Course], Set[str]]


@dataclass(frozen=True)
class Stretch:
    """The calls from one place of a course up to another. cut: where it repeats, else None.

    Stretches between which something else came now and then share one cut.
    """

    begin: int
    end: int
    cut: Cut | None = None


def stretches(course: Course, needed: Needs = needs) -> list[Stretch]:
    """Divide a course into stretches, in order. needed: what iterations must hold."""
    found = best_cut(course, needed(course))
    if found is None or not repeats(found):
        return [Stretch(0, len(course))] if len(course) else []
    divided: list[Stretch] = []
    for part in _around(found):
        if part.cut is None and (part.begin == 0 or part.end == len(course)):
            inner = stretches(course.part(part.begin, part.end), needed)
            divided += [
                replace(s, begin=s.begin + part.begin, end=s.end + part.begin) for s in inner
            ]
        else:
            divided.append(part)
    return divided


def repeats(found: Cut) -> bool:
    """Whether the calls come in an order that repeats, and not at random."""
    within = found.course.part(int(found.places[0]), int(found.places[-1]))
    return found.likeness * order(within) >= REPEATS


def steady(course: Course) -> Cut | None:
    """The cut of the last long phase; with updates if the course has any. None without a cut."""
    cuts = list({id(s.cut): s.cut for s in stretches(course) if s.cut is not None}.values())
    cuts = [c for c in cuts if course.update not in course.has or course.update in c.course.has]
    total_ns = sum(c.duration_ns.sum() for c in cuts)
    long = [c for c in cuts if c.duration_ns.sum() >= LONG * total_ns]
    return long[-1] if long else max(cuts, key=lambda c: int(c.duration_ns.sum()), default=None)


def _around(found: Cut) -> Iterator[Stretch]:
    """The stretches of a cut, in order, and those before, after and between, which have none."""
    size, pieces, begin = len(found.course), _pieces(found), 0
    for other in (*_others(found), Stretch(size, size)):
        yield from _steady_stretches(pieces, begin, other.begin)
        if other.end > other.begin:
            yield other
        begin = other.end


def _others(found: Cut) -> Iterator[Stretch]:
    """What is no iteration: before the first, after the last, within an unusual segment.

    A warm-up or an evaluation ends where the next iteration begins: so many calls before the next
    boundary as an iteration usually has. After the last boundary may come a whole iteration first.
    """
    edges = [0, *found.places.tolist(), len(found.course)]
    usual_calls = int(np.median(found.iterations.sum(axis=1)))
    other = [_beyond(found, *edges[:2]), *~found.usual, _beyond(found, *edges[-2:])]
    for k in np.flatnonzero(other).tolist():
        begin, end = edges[k], edges[k + 1]
        if k + 2 < len(edges):
            end -= usual_calls
        elif _like_one(found, begin, min(begin + usual_calls, end)):
            begin += usual_calls
        if end > begin:
            yield Stretch(begin, end)


def _beyond(found: Cut, begin: int, end: int) -> bool:
    """Whether many calls hold the time of another iteration beyond the longest iteration.

    Or so many calls of stages that no iteration has: a rollout of a small policy takes less time
    than an update.
    """
    many = max(FEWEST_CALLS, np.median(found.iterations.sum(axis=1)))
    if end - begin <= many:
        return False
    counts = found.course.before[end] - found.course.before[begin]
    if counts[found.iterations.max(axis=0) == 0].sum() > many:
        return True
    beyond = np.maximum(counts - found.iterations.max(axis=0), 0) @ found.course.weight_ns
    return bool(beyond > np.median(found.held_ns))


def _like_one(found: Cut, begin: int, end: int) -> bool:
    """Whether calls hold those of an iteration and no others."""
    counts = found.course.before[end] - found.course.before[begin]
    least, most = found.iterations.min(axis=0), found.iterations.max(axis=0)
    return bool(((counts >= least) & (counts <= most)).all())


def _steady_stretches(pieces: list[Cut], begin: int, end: int) -> Iterator[Stretch]:
    """The part of each piece that lies between two places."""
    for k, piece in enumerate(pieces):
        first = begin if k == 0 else max(begin, int(piece.places[0]))
        last = end if k + 1 == len(pieces) else min(end, int(piece.places[-1]))
        if last > first:
            yield Stretch(first, last, piece)


def _pieces(found: Cut) -> list[Cut]:
    """A cut, divided wherever its iterations change for good."""
    change = _change(found)
    if change is None:
        return [found]
    earlier = replace(found, places=found.places[: change + 1])
    later = replace(found, places=found.places[change:])
    return _pieces(earlier) + _pieces(later)


def _change(found: Cut) -> int | None:
    """The segment from which on the iterations are different ones, if there is one.

    The division into two parts that leaves the least squares around the means of the parts.
    """
    time = found.iterations * found.course.weight_ns
    count = len(time)
    if count < 2 * FEWEST_ALIKE:
        return None
    sums = np.cumsum(time, axis=0)
    numbers = np.arange(1, count)[:, None]
    gain = sums[:-1] ** 2 / numbers + (sums[-1] - sums[:-1]) ** 2 / (count - numbers)
    allowed = slice(FEWEST_ALIKE - 1, count - FEWEST_ALIKE)
    first = int(np.argmax(gain.sum(axis=1)[allowed])) + FEWEST_ALIKE
    earlier, later = time[:first], time[first:]
    apart = np.abs(earlier.mean(axis=0) - later.mean(axis=0)).sum()
    rest = sum(float(((part - part.mean(axis=0)) ** 2).sum()) for part in (earlier, later))
    gained = float(((time - time.mean(axis=0)) ** 2).sum()) - rest
    different = apart >= CHANGE * time.sum(axis=1).mean()
    if not different or gained < BEYOND_NOISE * rest / (count - 2):
        return None
    segments: Ints = np.flatnonzero(found.usual)
    return int(segments[first])
