"""What several ranks of one job show: the slowest one, what it costs, and their communication.

In an iteration every rank waits, where it calls a collective, until the last one has called it too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.loop.figures import Figure, Interval, Unknown, rate_interval
from hotloop.loop.run import Run

# A rank that the others wait for during less than this share of the time is not named.
NAMED = 0.02
_NO_COLLECTIVE = (
    "no call of a collective was seen on all ranks alike: seen are those of torch.distributed that "
    "are called from Python, and backward passes of DistributedDataParallel"
)
_NO_DDP = (
    "it is read from what DistributedDataParallel notes of its backward passes, and there was none "
    "that had noted anything"
)


@dataclass(frozen=True)
class RankRow:
    """One rank. waits_ns: in an iteration, for the last rank at a collective. ns_per_iteration:
    of each stage. units_per_iteration: by what is counted.
    """

    rank: int
    waits_ns: Figure
    ns_per_iteration: Mapping[str, float]
    units_per_iteration: Mapping[str, float]


@dataclass(frozen=True)
class Ranks:
    """How the ranks of a job wait for each other; times are means of an iteration, in ns.

    slowest: the rank that the others wait for most; None if none stands out. in_stage: the stage
    that takes longer there than on the others, and by how much. if_like_mean_ns,
    if_like_fastest_ns: an iteration, if in each every rank came to the collectives when the mean
    or the first one does.
    communication: share of an iteration in which gradients are exchanged, all ranks being there,
    and the backward pass has no work of its own left. stage_communication: share of the stage,
    which also holds the collectives that Python calls, and waiting for other ranks.
    """

    rows: list[RankRow]
    iteration_ns: Figure
    slowest: int | None
    in_stage: tuple[str, float] | None
    cost_ns: Figure
    if_like_mean_ns: Figure
    if_like_fastest_ns: Figure
    communication: Figure
    stage_communication: Figure


def joined(logs: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The facts and arrays of a run from the logs of its ranks (see `hotloop.recognise.rank_log`).

    Both are of the iterations that all ranks have logged. A rank leaves out an iteration at whose
    start the measurement took long, and the other ranks have waited for it. Arrays: one row for
    each of these iterations in which the ranks called equally many collectives.
    """
    numbered = [{number: k for k, number in enumerate(log["number"])} for log in logs]
    common = sorted(set.intersection(*(set(each) for each in numbered)))
    at = [[each[number] for number in common] for each in numbered]
    arrived = [[log["arrived_ns"][k] for k in ks] for log, ks in zip(logs, at, strict=True)]
    calls = np.array([[len(each) for each in rank] for rank in arrived])
    alike = np.flatnonzero((calls[0] > 0) & (calls == calls[0]).all(axis=0))
    waits = np.zeros((len(alike), len(logs)))
    for n, k in enumerate(alike):
        called = np.array([rank[k] for rank in arrived], float)
        waits[n] = (called.max(axis=0) - called).sum(axis=1)
    lasted = np.array(
        [np.subtract(log["end_ns"], log["start_ns"])[ks] for log, ks in zip(logs, at, strict=True)]
    )
    facts = [_facts_of(log, ks, ns) for log, ks, ns in zip(logs, at, lasted, strict=True)]
    arrays = {"rank_waits_ns": waits, "rank_iteration_ns": lasted[:, alike].mean(axis=0)}
    return {"ranks": facts}, arrays


def _facts_of(log: Mapping[str, Any], at: Sequence[int], lasted_ns: np.ndarray) -> dict[str, Any]:
    """Means of the iterations at these places of a log, which lasted so long, (n,)."""
    ns_per_iteration = float(lasted_ns.mean()) if at else 0.0
    stages, stage_ns = log["stages"], [log["stage_ns"][k] for k in at]
    noted = [log["exchange_ns"].get(log["number"][k]) for k in at]
    exchanges = np.array([each for each in noted if each is not None], float)
    exchange_ns = overlap_ns = None
    if len(exchanges):
        # A share of the iterations that they were in: few are known, and may be long ones.
        within_ns = lasted_ns[[each is not None for each in noted]].sum()
        exchange_ns, overlap_ns = (
            float(share) * ns_per_iteration for share in exchanges.sum(axis=0) / within_ns
        )
    return {
        "iterations": len(at),
        "ns_per_iteration": ns_per_iteration,
        "stage_ns": _means([[(stages[stage], ns) for stage, ns in row] for row in stage_ns]),
        "units": _means([log["units"][k] for k in at]),
        "exchange_ns": exchange_ns,
        "overlap_ns": overlap_ns,
    }


def _means(rows: Sequence[Sequence[tuple[str, float]]]) -> dict[str, float]:
    """The mean of each name over all rows, where a row without it counts as 0."""
    totals: dict[str, float] = {}
    for row in rows:
        for name, amount in row:
            totals[name] = totals.get(name, 0.0) + amount
    return {name: total / len(rows) for name, total in totals.items()}


def ranks_of(run: Run) -> Ranks | None:
    """What the ranks of a run show; None for a run of one process."""
    facts = run.facts.get("ranks")
    if not facts:
        return None
    waits, lasted = run.arrays["rank_waits_ns"], run.arrays["rank_iteration_ns"]
    none = Unknown(_NO_COLLECTIVE)
    measured = len(waits) >= 2
    ones = np.full(len(waits), 1e9)
    cost: Figure = rate_interval(waits.mean(axis=1), ones) if measured else none
    rows = [
        RankRow(
            rank,
            rate_interval(waits[:, rank], ones) if measured else none,
            each["stage_ns"],
            each["units"],
        )
        for rank, each in enumerate(facts)
    ]
    iteration_ns = float(np.mean(lasted)) if measured else 0.0
    slowest = _slowest(waits, iteration_ns) if measured else None
    return Ranks(
        rows=rows,
        iteration_ns=rate_interval(lasted, ones) if measured else none,
        slowest=slowest,
        in_stage=None if slowest is None else _longer_stage(facts, slowest, waits),
        cost_ns=cost,
        if_like_mean_ns=rate_interval(lasted - waits.mean(axis=1), ones) if measured else none,
        if_like_fastest_ns=rate_interval(lasted - waits.max(axis=1), ones) if measured else none,
        communication=_communication(facts),
        stage_communication=_in_the_stage(facts),
    )


def _slowest(waits: np.ndarray, iteration_ns: float) -> int | None:
    """The rank that waits least, if the others wait noticeably longer, and not by chance."""
    mean = waits.mean(axis=0)
    rank = int(mean.argmin())
    others = np.delete(waits, rank, axis=1).mean(axis=1) - waits[:, rank]
    longer = rate_interval(others, np.full(len(others), 1e9))
    return rank if longer.low > NAMED * iteration_ns else None


def _longer_stage(
    facts: Sequence[Mapping[str, Any]], rank: int, waits: np.ndarray
) -> tuple[str, float] | None:
    """The stage that takes most longer on a rank than on the mean of the others, and how much.

    None if that is less than half of what the others wait.
    """
    others = [each["stage_ns"] for k, each in enumerate(facts) if k != rank]
    longer = {
        name: ns - float(np.mean([each.get(name, 0.0) for each in others]))
        for name, ns in facts[rank]["stage_ns"].items()
    }
    name = max(longer, key=longer.__getitem__, default=None)
    waited = float(np.delete(waits, rank, axis=1).mean())
    return (name, longer[name]) if name is not None and longer[name] > waited / 2 else None


def _communication(facts: Sequence[Mapping[str, Any]]) -> Figure:
    """The least of the ranks: the last one waits for nobody, so its exchange is nothing else."""
    shares = [
        max(each["exchange_ns"] - each["overlap_ns"], 0.0) / each["ns_per_iteration"]
        for each in facts
        if each["exchange_ns"] is not None and each["ns_per_iteration"]
    ]
    return min(shares) if len(shares) == len(facts) else Unknown(_NO_DDP)


def _in_the_stage(facts: Sequence[Mapping[str, Any]]) -> Figure:
    """The share of the stage `communication`, on the rank that waits least in it."""
    shares = [
        each["stage_ns"].get("communication", 0.0) / each["ns_per_iteration"]
        for each in facts
        if each["ns_per_iteration"]
    ]
    return min(shares) if any(shares) else Unknown("nothing was exchanged with other ranks")


def ranks_warnings(ranks: Ranks | None) -> list[str]:
    """One sentence about the slowest rank, if there is one."""
    if ranks is None or ranks.slowest is None or not isinstance(ranks.cost_ns, Interval):
        return []
    assert isinstance(ranks.iteration_ns, Interval)
    share = ranks.cost_ns.value / ranks.iteration_ns.value
    why = "; what it does longer is in none of its stages"
    if ranks.in_stage is not None:
        name, ns = ranks.in_stage
        why = f"; its {name} takes {ns * 1e-6:.3g} ms longer than on the others"
    return [
        f"rank {ranks.slowest} is the slowest: the mean rank waits for the last one during "
        f"{share:.0%} of an iteration{why}"
    ]
