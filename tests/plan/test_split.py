"""Splits of a machine's cores between acting and learning, on planted rates."""

import numpy as np
import pytest

from hotloop.errors import RefusedError, SettingError
from hotloop.plan.split import Split, plan_split

ACT, LEARN, SERIAL = 500.0, 3000.0, 0.1


def truth(act: int, learn: int) -> float:
    return min(ACT * act, LEARN * learn / (1 + SERIAL * (learn - 1)))


def table(*acting: int, cores: int = 16, noise: float = 0.0, seed: int = 0) -> list[Split]:
    rng = np.random.default_rng(seed)
    return [
        Split(a, cores - a, truth(a, cores - a) * float(np.exp(noise * rng.normal())))
        for a in acting
    ]


def test_three_splits_bring_all_fifteen() -> None:
    plan = plan_split(table(4, 13, 15), 16)
    for found in plan.forecasts:
        assert found.sps.value == pytest.approx(
            truth(found.split.act_cores, found.split.learn_cores), rel=0.08
        )
    best = max(range(1, 16), key=lambda act: truth(act, 16 - act))
    assert abs(plan.forecasts[plan.best].split.act_cores - best) <= 1
    assert plan.forecasts[0].limited_by == "acting"
    assert plan.forecasts[-1].limited_by == "learning"
    turn = 1 / (1 / (16 * ACT) + (1 + SERIAL * 15) / (16 * LEARN))
    assert plan.in_turn.value == pytest.approx(turn, rel=0.1)
    assert plan.gaps == []


def test_intervals_cover_noisy_splits() -> None:
    inside = []
    for seed in range(10):
        plan = plan_split(table(3, 8, 13, 15, noise=0.05, seed=seed), 16)
        measured = table(*range(1, 16), noise=0.05, seed=100 + seed)
        inside += [m.sps in f.sps for m, f in zip(measured, plan.forecasts, strict=True)]
    assert np.mean(inside) > 0.9


def test_what_was_never_the_limit_is_open() -> None:
    plan = plan_split(table(2, 4), 16)
    assert plan.gaps == ["how fast learning is, is not determined: measure 15 acting, 1 learning"]
    last = plan.forecasts[-1].sps
    assert last.high > 2 * last.low


def test_splits_by_hand() -> None:
    """Two cores that act 100 each, one that learns 150: acting by one limits, by two learns."""
    plan = plan_split([Split(1, 2, 100.0), Split(2, 1, 150.0)], 3)
    assert [round(f.sps.value, -1) for f in plan.forecasts] == [100.0, 150.0]
    assert [f.limited_by for f in plan.forecasts] == ["acting", "learning"]
    assert plan.best == 1


def test_too_few_splits_and_such_that_fit_no_model_are_refused() -> None:
    with pytest.raises(SettingError, match="at least 2 different splits"):
        plan_split([Split(1, 1, 10.0), Split(1, 1, 11.0)], 4)
    with pytest.raises(SettingError, match="cores: expected a whole number from 2"):
        plan_split(table(2, 4), 1)
    wrong = [Split(1, 3, 100.0), Split(1, 3, 1000.0), Split(2, 2, 10.0)]
    with pytest.raises(RefusedError, match="no model of acting and learning fits these 3 splits"):
        plan_split(wrong, 4)
