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

    Arrays: one row for each iteration that all ranks have logged, and in which they called equally
    many collectives.
    """
    numbered = [
        {
            number: (start, end, arrived)
            for number, start, end, arrived in zip(
                log["number"], log["start_ns"], log["end_ns"], log["arrived_ns"], strict=True
            )
        }
        for log in logs
    ]
    common = sorted(set.intersection(*(set(each) for each in numbered)))
    rows = [[each[number] for each in numbered] for number in common]
    alike = [row for row in rows if row[0][2] and len({len(a) for _, _, a in row}) == 1]
    waits = np.zeros((len(alike), len(logs)))
    for k, row in enumerate(alike):
        arrived = np.array([a for _, _, a in row], float)
        waits[k] = (arrived.max(axis=0) - arrived).sum(axis=1)
    lasted = np.array([np.mean([end - start for start, end, _ in row]) for row in alike], float)
    facts = {"ranks": [_facts_of(log) for log in logs]}
    return facts, {"rank_waits_ns": waits, "rank_iteration_ns": lasted}


def _facts_of(log: Mapping[str, Any]) -> dict[str, Any]:
    count = max(len(log["number"]), 1)
    lasted = np.subtract(log["end_ns"], log["start_ns"])
    comm = np.array(log["comm_ns"], float).reshape(-1, 2)
    return {
        "iterations": len(log["number"]),
        "ns_per_iteration": float(lasted.mean()) if len(lasted) else 0.0,
        "stage_ns": {name: ns / count for name, ns in log["stage_ns"].items()},
        "units": {unit: number / count for unit, number in log["units"].items()},
        "exchange_ns": float(comm[:, 0].mean()) if len(comm) else None,
        "overlap_ns": float(comm[:, 1].mean()) if len(comm) else None,
    }


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
