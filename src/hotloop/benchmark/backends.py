"""What a sweep of backends says: the rate of each with its interval, and how they compare.

Rounds hold every variant once, so two variants are compared within rounds: a slow moment of the
machine is in both, and drops out of their ratio.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.loop.figures import Figure, Interval, Unknown, mean_interval, paired_ratio
from hotloop.loop.run import Run


@dataclass(frozen=True)
class BackendRow:
    """One variant. num_workers is None for one that has none; chosen: by auto."""

    backend: str
    num_workers: int | None
    splits: int
    envs_per_worker: int | None
    chosen: str | None
    sps: Figure
    to_serial: Figure
    to_best: Figure


@dataclass(frozen=True)
class BackendTable:
    """All variants of a sweep, in the order of the run; `best` and `equals` are rows of it."""

    env_id: str
    num_envs: int
    rows: list[BackendRow]
    best: int | None  # auto is none: it is one of the others
    equals: list[int]  # which cannot be told from the best
    auto: int | None
    choice: str | None  # what auto chose and why
    rounds: int
    round_s: float
    warnings: list[str]


def compare_backends(run: Run) -> BackendTable:
    """Rates, ratios and the best of a saved sweep."""
    facts = run.facts
    sps, variants = run.arrays["sps"], facts["variants"]
    rates = [_rate(samples, v) for samples, v in zip(sps, variants, strict=True)]
    known = [k for k, rate in enumerate(rates) if isinstance(rate, Interval)]
    autos = [k for k in known if variants[k]["backend"] == "auto"]
    best = max(
        [k for k in known if k not in autos] or known, key=lambda k: _value(rates[k]), default=None
    )
    serial = next((k for k, v in enumerate(variants) if v["backend"] == "serial"), None)
    rows = [
        BackendRow(
            backend=variant["backend"],
            num_workers=variant["num_workers"],
            splits=variant["splits"],
            envs_per_worker=variant["envs_per_worker"],
            chosen=variant["chosen"],
            sps=rates[k],
            to_serial=_against(sps, rates, k, serial, "serial was not measured"),
            to_best=_against(sps, rates, k, best, "nothing was measured"),
        )
        for k, variant in enumerate(variants)
    ]
    return BackendTable(
        env_id=str(facts["env_id"]),
        num_envs=int(facts["num_envs"]),
        rows=rows,
        best=best,
        equals=[k for k in known if k != best and k not in autos and _may_be_one(rows[k].to_best)],
        auto=autos[0] if autos else None,
        choice=facts["choice"],
        rounds=sps.shape[1],
        round_s=float(facts["round_s"]),
        warnings=_warnings(run),
    )


def _rate(samples: np.ndarray, variant: dict[str, Any]) -> Figure:
    if variant["problem"] is not None:
        return Unknown(str(variant["problem"]))
    samples = samples[np.isfinite(samples)]
    if not len(samples):
        return Unknown("its turn had not come")
    return mean_interval(samples)


def _against(sps: np.ndarray, rates: list[Figure], row: int, base: int | None, why: str) -> Figure:
    """How many times the rate of `base`, over the rounds that both are in."""
    if base is None:
        return Unknown(why)
    for rate in (rates[row], rates[base]):
        if isinstance(rate, Unknown):
            return rate
    if row == base:
        return Interval(1.0, 1.0, 1.0)
    both = np.isfinite(sps[row]) & np.isfinite(sps[base])
    if not both.any():
        return Unknown("no round holds both")
    return paired_ratio(sps[row][both], sps[base][both]).above_zero()


def _may_be_one(ratio: Figure) -> bool:
    """Whether 1 lies in the interval, or nothing is known against it."""
    return isinstance(ratio, Interval) and not ratio.high < 1


def _value(rate: Figure) -> float:
    return rate.value if isinstance(rate, Interval) else float("nan")


def _warnings(run: Run) -> list[str]:
    if run.complete:
        return []
    return ["the sweep was interrupted; this is what it had measured"]
