"""Rare work: the part of a block's time that depends on how many rare events fell into it.

A burst every twentieth call, a checkpoint every fortieth iteration, a garbage collection: whether a
block holds two of them or three says nothing about its arm. How often they come is the same in
every arm in which the work really runs, so it is estimated from all arms together, and what a block
had more or less than that can be subtracted from its time. This module finds how long the common
calls of each stage take, and how much time a block had beyond them.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# A call that takes so many times the median is rare work; up to that it is the common kind.
RARE_FACTOR = 3.0
# Beside waiting, a rare call is one of which waiting can be no more than this share.
WAITING_SHARE = 2 / 3
# Work outside of the stages counts as rare from this share of an iteration on.
REST_SHARE = 0.02
# A stage that is called in fewer iterations than this is rare work itself.
EVERY_ITERATION = 0.75
# A call in more iterations than it should be, by this share, means that calls are not regular.
REGULAR = 0.02
# A count that is off by so many standard deviations is not off by chance.
UNLIKELY = 4.0
# And a time, whose spread from block to block is known less well.
UNLIKELY_TIME = 3.0
# The name of what a loop does outside of its stages.
REST = "the rest"


@dataclass(frozen=True)
class WorkKind:
    """How the calls of one stage, or the rest of the iterations, are divided into common and rare.

    limit_ns: longer ones are rare; common_ns: the mean of the others; beyond_ns: the mean of what
    the rare ones take beyond the limit. irregular: calls come in some iterations only.
    recorded_ns: what `of` made of the recording, ns an iteration.
    """

    name: str
    index: int  # of the stage; -1: the rest
    limit_ns: float
    common_ns: float
    beyond_ns: float
    irregular: bool
    recorded_ns: float = 0.0

    def of(self, durations_ns: np.ndarray) -> tuple[float, int]:
        """Return ns beyond the common calls, and rare events, of a block with these calls."""
        beyond = durations_ns[durations_ns > self.limit_ns] - self.limit_ns
        if self.irregular:
            every = self.common_ns * len(durations_ns)
            return float(beyond.sum()) + every, len(durations_ns)
        return float(beyond.sum()), len(beyond)

    def beside_waiting(self, waiting_ns: float) -> "WorkKind | None":
        """Return this kind where calls also wait for others so long: that is not rare work.

        None if the rare calls are not much longer than that. Where calls come in some iterations
        only, the call itself is the rare work, however long it waits.
        """
        if self.irregular:
            return self
        rare_ns = self.limit_ns + self.beyond_ns
        limit = max(self.limit_ns, RARE_FACTOR * waiting_ns, rare_ns / 2)
        if limit > WAITING_SHARE * rare_ns:
            return None
        left = (rare_ns - limit) / self.beyond_ns
        return dataclasses.replace(
            self,
            limit_ns=limit,
            beyond_ns=rare_ns - limit,
            recorded_ns=self.recorded_ns * left,
        )


def kind_of_stage(name: str, index: int, durations_ns: np.ndarray, calls: float) -> WorkKind:
    """Divide a stage's calls. durations_ns: (n,) recorded; calls: of them in an iteration."""
    limit = RARE_FACTOR * float(np.median(durations_ns)) if len(durations_ns) else np.inf
    near = round(calls)
    regular = near > 0 and abs(calls - near) <= REGULAR * calls and calls > EVERY_ITERATION
    return _kind(name, index, durations_ns, limit, calls, irregular=not regular)


def kind_of_rest(rest_ns: np.ndarray, iteration_ns: float) -> WorkKind:
    """Divide the time of iterations outside of the stages. rest_ns: (iterations,)."""
    median = float(np.median(rest_ns)) if len(rest_ns) else 0.0
    limit = max(RARE_FACTOR * median, REST_SHARE * iteration_ns)
    return _kind(REST, -1, rest_ns, limit, 1.0, irregular=False)


def _kind(
    name: str,
    index: int,
    durations_ns: np.ndarray,
    limit: float,
    calls: float,
    *,
    irregular: bool,
) -> WorkKind:
    common = durations_ns[durations_ns <= limit]
    rare = durations_ns[durations_ns > limit]
    kind = WorkKind(
        name=name,
        index=index,
        limit_ns=limit,
        common_ns=float(common.mean()) if len(common) else 0.0,
        beyond_ns=float(rare.mean()) - limit if len(rare) else 0.0,
        irregular=irregular,
    )
    spent, _ = kind.of(durations_ns)
    return dataclasses.replace(kind, recorded_ns=spent * calls / max(len(durations_ns), 1))


def rest_of_iterations(
    events: np.ndarray,
    outermost: Sequence[int],
    lane: int,
    start_ns: np.ndarray,
    duration_ns: np.ndarray,
) -> np.ndarray:
    """Return the time of each iteration outside of its stages, in ns: (iterations,).

    events: (K, 4) stage, start, end, lane; outermost: the stages that are in no other one; lane:
    what runs the iterations; start_ns, duration_ns: of the iterations, ascending.
    """
    if not len(events):
        return duration_ns.astype(float)
    mine = events[(events[:, 3] == lane) & np.isin(events[:, 0], outermost)]
    at = np.searchsorted(start_ns, mine[:, 1], side="right") - 1
    inside = (at >= 0) & (at < len(start_ns))
    spent = np.bincount(
        at[inside], (mine[inside, 2] - mine[inside, 1]).astype(float), len(start_ns)
    )
    rest: np.ndarray = np.maximum(duration_ns - spent, 0)
    return rest


def longest_period(duration_ns: np.ndarray) -> int:
    """Return the iterations between the rarest work that still matters; 1 if there is none.

    duration_ns: of consecutive iterations. Iterations beyond a limit, for limits from one and a
    half times the median up to the longest, count if what they take beyond the median is a
    hundredth of all time; the mean distance between them is the period of that limit.
    """
    count = len(duration_ns)
    if count < 4:
        return 1
    median = max(float(np.median(duration_ns)), 1.0)
    total = float(duration_ns.sum())
    longest = 1
    limit = 1.5 * median
    while limit < float(duration_ns.max()):
        over = duration_ns[duration_ns > limit]
        if float((over - median).sum()) >= 0.01 * total:
            longest = max(longest, round(count / len(over)))
        limit *= 1.5
    return longest


def comes_alike(events: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Whether each kind of rare work comes as often for a unit in every arm.

    Work that follows the clock and not the loop's iterations comes less often in a faster arm, and
    calls are only long beside a thread that works for a stage which that arm leaves out: these are
    effects of the arm, not of chance.

    Shapes: rare events of a block and its units, both (R, A, K), 0 where the work did not run;
    returns (K,).
    """
    seen, done = events.sum(axis=0), units.sum(axis=0)
    expected = done * seen.sum(axis=0) / np.maximum(done.sum(axis=0), 1e-300)
    away = np.abs(seen - expected) / np.sqrt(np.maximum(expected, 1.0))
    alike: np.ndarray = (away < UNLIKELY).all(axis=0)
    return alike


def takes_alike(rare_ns: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Whether each kind of rare work takes as long for a unit in every arm.

    The time of an arm is compared with that of the others; the error of both is of the spread of
    all blocks.

    Shapes: rare time of a block and its units, both (R, A, K), 0 where the work did not run;
    returns (K,).
    """
    spent, done, blocks = rare_ns.sum(axis=0), units.sum(axis=0), (units > 0).sum(axis=0)
    others_spent, others_done = spent.sum(axis=0) - spent, done.sum(axis=0) - done  # (A, K)
    compared = (done > 0) & (others_done > 0)
    done, others_done = np.where(compared, done, 1.0), np.where(compared, others_done, 1.0)
    mean = spent.sum(axis=0) / np.maximum(units.sum(axis=(0, 1)), 1e-300)
    squares = ((rare_ns - mean * units) ** 2).sum(axis=(0, 1))
    spread = np.sqrt(squares / np.maximum(blocks.sum(axis=0), 1))  # of a block: (K,)
    error = spread * np.sqrt(blocks / done**2 + (blocks.sum(axis=0) - blocks) / others_done**2)
    away = np.abs(spent / done - others_spent / others_done)
    alike: np.ndarray = (~compared | (away <= UNLIKELY_TIME * error)).all(axis=0)
    return alike
