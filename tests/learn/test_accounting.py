"""The benchmark of accounting, in small: it balances, and it notices what does not."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def accounting(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "peers"))
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("accounting")
    for name in ("accounting", "counted", "tables"):
        sys.modules.pop(name, None)


@pytest.mark.long
def test_every_step_is_accounted_for_whatever_is_killed(
    accounting: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "KILL_S", (0.2, 0.6))
    monkeypatch.setattr(accounting, "FIRST_KILL_S", 0.0)
    sums = accounting.train(60_000, seed=3)
    assert sum(sums["kills"].values()) > 0
    assert sums["put_into_replay"] >= 60_000
    assert sums["drawn"] > 0
    assert sums["drawn_wrong"] == 0
    parts = ("put_into_replay", "dropped_by_max_lag", "lost_with_actors", "under_way_at_the_end")
    assert sums["made"] == sum(sums[part] for part in parts)
    assert sums["replaced_by_newer"] >= 0


def keys(life: int, *steps: int) -> np.ndarray:
    return life * 2**24 + np.array(steps)


@pytest.mark.parametrize(
    ("added", "made", "said"),
    [
        ([keys(1, 1, 2), keys(1, 2)], [2], "arrived twice"),
        ([keys(1, 1, 3)], [3], "in the middle of a life is missing"),
        ([keys(1, 1, 2)], [1], "was never made"),
        ([keys(1, 1), keys(2, 1)], [5_000, 1], "of a life were under way"),
    ],
)
def test_books_that_do_not_balance_are_refused(
    accounting: ModuleType, added: list[np.ndarray], made: list[int], said: str
) -> None:
    books = accounting.Books(added=added)
    with pytest.raises(AssertionError, match=said):
        accounting.balance(books, np.array(made), 0, np.ones(len(made), bool))
