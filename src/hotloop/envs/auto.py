"""`auto`: which backend is fastest for an env, by measurement.

A probe of one env says what each backend would need for a step of all envs. Where two come close,
or other programs keep cores busy, some are built and race.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.envs.backends import candidates_for, find_backend, load_backend
from hotloop.envs.placement import OtherPrograms
from hotloop.envs.probe import probe_env
from hotloop.envs.turns import Turns
from hotloop.envs.vector import VectorEnv
from hotloop.envs.workload import Candidate, Probe, Workload
from hotloop.loop.host import whole_cores
from hotloop.loop.race import Race, as_fast, fastest

_LOG = logging.getLogger("hotloop")
RACE_S = 0.25  # for each that races
RACE_ROUNDS = 12
EXTRA_S = 0.5  # beside other programs, for those that the race has not told apart
MIN_ROUNDS = 3  # also where a single step takes longer than a turn
# Fewer workers are preferred where none is faster with this confidence: little is lost by a mistake
# either way, for then both are nearly as fast.
SURE_ENOUGH = 0.8
LITTLE = 0.2  # fewer busy cores than this are not mentioned
CLOSE = 0.5  # a race is run where the second is expected to need at most so much more


@dataclass(frozen=True)
class Choice:
    """What `auto` chose, and from what.

    num_workers: None for a backend without. native: how to ask for a native engine of the same env,
    where there is one. others: cores that other programs kept busy meanwhile. undecided:
    candidates with more workers that the race could not tell from the chosen one.
    """

    backend: str
    num_workers: int | None
    envs_per_worker: int
    probe: Probe
    candidates: tuple[Candidate, ...]
    native: str | None = None
    others: float = 0.0
    undecided: tuple[Candidate, ...] = ()

    @property
    def reason(self) -> str:
        """The choice in one sentence."""
        p = self.probe
        kind = "work" if p.busy > 0.5 else "waiting"
        workers = find_backend(self.backend).workers
        where = (
            "in this process"
            if workers is None
            else f"in {self.num_workers} {workers}, {self.envs_per_worker} envs each"
        )
        others = ", ".join(
            f"{c.variant} {(c.measured_s or c.expected_s) * 1e3:.3g} ms"
            f"{' measured' if c.measured_s else ' expected'}"
            for c in self.candidates
        )
        equals = " and ".join(str(c.variant) for c in self.undecided)
        return (
            f"envs run {where}: a step takes {p.step_s * 1e6:.3g} µs (95th percentile "
            f"{p.late_step_s * 1e6:.3g}), mostly {kind}, an observation {p.obs_bytes:,} bytes; "
            f"a step of all: {others}"
            + (
                f"; not told apart from {equals}, so the one with fewer workers is taken"
                if equals
                else ""
            )
            + (f"; other programs keep {self.others:.1f} cores busy" if self.others else "")
            + (f"; a native engine steps such envs faster: {self.native}" if self.native else "")
        )


def choose(
    fns: Sequence[Callable[[], Any]], settings: dict[str, Any], native: str | None = None
) -> Choice:
    """Measure for at most two seconds, and choose; the log says why, at level INFO.

    native: how to ask for a native engine of the same env, where there is one.
    Raises: what making or stepping the env raises; WorkerError if it ends its process.
    """
    other_programs = OtherPrograms()
    probe = probe_env(fns[0], settings.get("context"))
    others = other_programs.busy_cores()
    others = 0.0 if others < LITTLE or math.isnan(others) else others
    work = Workload(
        probe,
        len(fns),
        whole_cores(),
        splits=settings.get("splits") or 1,
        num_workers=settings.get("num_workers"),
        other_load=others,
    )
    candidates = candidates_for(work)
    undecided: list[Candidate] = []
    racers = find_racers(candidates, others) if probe.make_s * len(fns) < RACE_S else []
    best = candidates[0]
    if racers:
        times, left = _race(fns, racers, EXTRA_S if others else 0.0)
        means = np.nanmean(times, axis=0).tolist()
        racers = [replace(r, measured_s=mean) for r, mean in zip(racers, means, strict=True)]
        best, undecided = decide([racers[k] for k in left], times[:, left])
        raced = {racer.variant for racer in racers}
        candidates = sorted(racers, key=lambda candidate: candidate.measured_s or 0.0) + [
            candidate for candidate in candidates if candidate.variant not in raced
        ]
    variant = best.variant
    choice = Choice(
        *(variant.backend, variant.num_workers, -(-len(fns) // (variant.num_workers or 1))),
        *(probe, tuple(candidates)),
        native=native,
        others=others,
        undecided=tuple(undecided),
    )
    _LOG.info("%s", choice.reason)
    return choice


def find_racers(candidates: Sequence[Candidate], others: float) -> list[Candidate]:
    """The candidates that are worth a race: the best two backends where they are close.

    Beside other programs expectations are rough, above all of many workers, which wait for cores
    again and again: there the best of each backend races, and workers, as few as are considered.
    """
    best_of = {c.variant.backend: c for c in reversed(candidates)}
    rivals = sorted(best_of.values(), key=lambda candidate: candidate.expected_s)
    if others:
        fewest = min(candidates, key=lambda c: c.variant.num_workers or math.inf)
        rivals += [fewest] if fewest not in rivals else []
        return rivals if len(rivals) > 1 else []
    is_close = len(rivals) > 1 and rivals[1].expected_s < rivals[0].expected_s * (1 + CLOSE)
    return rivals[:2] if is_close else []


def decide(
    racers: Sequence[Candidate], times: NDArray[np.float64]
) -> tuple[Candidate, list[Candidate]]:
    """The racer to take, and those that it was preferred to without a proof.

    times: of a step of all envs, (rounds, racers). The fastest is compared with each that has fewer
    workers, within rounds; where the interval of their ratio holds 1, fewer workers win.
    """
    rates = 1 / times
    fast = as_fast(rates, confidence=SURE_ENOUGH)
    chosen = min(fast, key=lambda k: (racers[k].variant.num_workers or 0, times[:, k].mean()))
    best = fastest(rates)
    return racers[chosen], [racers[best]] if chosen != best else []


def _race(
    fns: Sequence[Callable[[], Any]], racers: Sequence[Candidate], extra_s: float = 0.0
) -> tuple[NDArray[np.float64], list[int]]:
    """Build them and let them take turns.

    extra_s: how long those that are not told apart then go on, without those proved slower.
    Returns the time of a step of all envs, (rounds, racers), and the racers that were left.
    """
    with ExitStack() as stack:
        turns = []
        for racer in racers:
            envs = _made(fns, racer)
            stack.callback(envs.close)
            turns.append(Turns(envs))
            turns[-1].prepare()
        turn_s = RACE_S / RACE_ROUNDS
        race = Race([partial(each.steps_per_s, turn_s, time.perf_counter) for each in turns])
        end = time.perf_counter() + RACE_S * len(racers)
        while len(race.rates) < MIN_ROUNDS or time.perf_counter() < end:
            race.round()
        while extra_s and drop_slower(race) and time.perf_counter() < end + extra_s:
            race.round()
    times: NDArray[np.float64] = len(fns) / race.rates
    return times, race.running


def drop_slower(race: Race) -> bool:
    """Let those run no more that are proved slower; returns whether several are left."""
    running = list(race.running)
    fast = as_fast(race.rates[:, running])
    for k, racer in enumerate(running):
        if k not in fast:
            race.drop(racer)
    return len(race.running) > 1


def _made(fns: Sequence[Callable[[], Any]], racer: Candidate) -> VectorEnv:
    workers = racer.variant.num_workers
    settings = {} if workers is None else {"num_workers": workers}
    return load_backend(racer.variant.backend)(fns, **settings)
