"""What the logs of several ranks say together, by planted logs."""

from typing import Any

import numpy as np
import pytest

from hotloop.benchmark.ranks import joined, ranks_of
from hotloop.loop.run import Run

MS = 1_000_000
DATA, COMMUNICATION = 0, 1
# Rank 1 is the slow one: each iteration takes 20 ms, all but 1 ms of them its data.
LASTED_MS = 20
# What rank 0 does for the measurement in its third iteration, while the other waits for it.
MEASURES, ITS_OWN_MS = 3, 800


def log_of(rank: int, numbers: list[int], exchanges_ms: dict[int, int]) -> dict[str, Any]:
    """The log of a rank; exchanges_ms: those read, by iteration."""
    begun_ms = {n: LASTED_MS * n + ITS_OWN_MS * (n > MEASURES) for n in range(1, 12)}
    called_ms = {n: begun_ms[n + 1] - 1 for n in numbers}
    data_ms = 1 if rank == 0 else 19
    return {
        "number": numbers,
        "start_ns": [begun_ms[n] * MS for n in numbers],
        "end_ns": [begun_ms[n + 1] * MS for n in numbers],
        "arrived_ns": [
            ((called_ms[n] if rank == 1 else begun_ms[n] + data_ms) * MS,) for n in numbers
        ],
        "stage_ns": [
            (
                (DATA, data_ms * MS),
                (COMMUNICATION, (begun_ms[n + 1] - begun_ms[n] - data_ms) * MS),
            )
            for n in numbers
        ],
        "units": [(("samples", 4.0),) for _ in numbers],
        "stages": ["data", "communication"],
        "exchange_ns": {n: (ms * MS, 0) for n, ms in exchanges_ms.items()},
    }


def ranks_from(*logs: dict[str, Any]) -> Any:
    facts, arrays = joined(logs)
    return ranks_of(Run("benchmark", "torchrun", {}, facts=facts, arrays=arrays))


def test_an_iteration_that_one_rank_leaves_out_counts_for_none() -> None:
    every = [*range(1, 11)]
    ranks = ranks_from(
        log_of(0, [n for n in every if n != MEASURES], {}),
        log_of(1, every, {}),
    )
    assert ranks.slowest == 1
    assert ranks.iteration_ns.value == LASTED_MS * MS
    assert [row.ns_per_iteration["data"] for row in ranks.rows] == [1 * MS, 19 * MS]
    assert [row.ns_per_iteration["communication"] for row in ranks.rows] == [19 * MS, 1 * MS]
    assert [row.units_per_iteration for row in ranks.rows] == [{"samples": 4.0}] * 2
    assert ranks.stage_communication == pytest.approx(1 / LASTED_MS)


def test_an_exchange_is_compared_with_the_iteration_that_it_was_in() -> None:
    shared = [1, 2, 4, 5]
    short, long = log_of(0, shared, {2: 19, 5: 19}), log_of(1, shared, {1: 1, 2: 15})
    # One iteration of the slow rank's was three times as long, and its exchange with it.
    stalled_ms = 2 * LASTED_MS
    long["end_ns"][1] += stalled_ms * MS
    long["exchange_ns"][2] = ((15 + stalled_ms) * MS, 0)
    ranks = ranks_from(short, long)
    expected = (1 + 15 + stalled_ms) / (2 * LASTED_MS + stalled_ms)
    assert ranks.communication == pytest.approx(expected)
    assert ranks.communication < 1


def test_an_exchange_of_an_iteration_that_is_left_out_is_left_out() -> None:
    logs = [log_of(rank, [1, 2, 4, 5], {MEASURES: 700, 4: 1}) for rank in (0, 1)]
    assert ranks_from(*logs).communication == pytest.approx(1 / LASTED_MS)


def test_ranks_that_share_no_iteration_have_no_figures() -> None:
    facts, arrays = joined([log_of(0, [1, 2], {}), log_of(1, [4, 5], {})])
    assert [rank["iterations"] for rank in facts["ranks"]] == [0, 0]
    assert arrays["rank_waits_ns"].shape == (0, 2)
    assert np.isfinite([rank["ns_per_iteration"] for rank in facts["ranks"]]).all()
