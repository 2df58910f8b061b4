"""How fast each backend steps an env: all of them side by side, a moment each, in random order.

Throughput drifts from second to second. So every variant is made first, and then measured in
rounds: what one round shows of two variants was measured within the same seconds.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv as AnyVectorEnv
from numpy.typing import NDArray

from hotloop.envs.auto import Choice
from hotloop.envs.backends import (
    AUTO,
    BACKENDS,
    find_backend,
    load_backend,
    measurable,
    variants_of,
)
from hotloop.envs.make import env_makers, make_vec
from hotloop.envs.probe import probe_env
from hotloop.envs.turns import Turns
from hotloop.envs.vector import VectorEnv
from hotloop.envs.workload import Probe, Variant, Workload
from hotloop.errors import HotloopError, expect_positive
from hotloop.loop.host import whole_cores
from hotloop.loop.race import Race

ROUND_S = 0.3
MIN_ROUNDS = 3

Opener = Callable[[Variant], AnyVectorEnv[Any, Any, Any]]
Observer = Callable[[float, str], None]  # how much is done, 0 to 1; what comes next


@dataclass(frozen=True)
class SweepSettings:
    """What to measure, and for how long."""

    num_envs: int = 64
    """Envs stepped together."""
    backends: tuple[str, ...] = field(default_factory=measurable)
    """Which backends; the numbers of workers follow from the machine and the env."""
    seconds: float = 30.0
    """Time for the turns of all variants together, in s; at least three rounds."""
    seed: int = 0
    """Of the order within rounds."""

    def __post_init__(self) -> None:
        expect_positive("num_envs", self.num_envs)
        expect_positive("seconds", self.seconds)


@dataclass
class Entry:
    """A variant with what came of it."""

    variant: Variant
    problem: str | None = None
    choice: Choice | None = None


@dataclass
class Sweep:
    """The samples of a sweep so far; they stay when it is cut short."""

    env_id: str
    settings: SweepSettings = field(default_factory=SweepSettings)
    clock: Callable[[], float] = time.perf_counter  # s
    probe: Probe | None = None
    entries: list[Entry] = field(default_factory=list)
    race: Race = field(default_factory=lambda: Race(()))  # of the variants that could be made
    racing: list[int] = field(default_factory=list)  # their entries

    def run(self, observer: Observer) -> None:
        """Measure; everything that was started has ended when it returns or raises.

        Raises: TargetError for an env that does not exist; what making or stepping one env raises.
        """
        settings = self.settings
        (fn,) = env_makers(self.env_id, 1, {})
        observer(0.0, "one env alone")
        self.probe = probe_env(fn)
        work = Workload(self.probe, settings.num_envs, whole_cores())
        with ExitStack() as sessions:
            opener = _Opener(self.env_id, settings.num_envs, sessions)
            self.measure(variants_of(settings.backends, work), opener, observer)

    def measure(self, variants: Sequence[Variant], opener: Opener, observer: Observer) -> None:
        """Make all variants, then measure those that could be made, until the time is up."""
        self.entries = [Entry(variant) for variant in variants]
        with ExitStack() as stack:
            racers = self._open(opener, stack, observer)
            share = 0.0
            start = self.clock()

            def turn_of(racer: _Racer) -> Callable[[], float]:
                def turn() -> float:
                    observer(min(1.0, share), str(racer.entry.variant))
                    return racer.rate(self._round_s, self.clock)

                return turn

            self.race = Race([turn_of(racer) for racer in racers], self.settings.seed)
            self.racing = [racer.number for racer in racers]
            while self.race.running:
                share = (self.clock() - start) / self.settings.seconds
                if share >= 1 and len(self.race.rates) >= MIN_ROUNDS:
                    return
                self.race.round()

    def facts(self) -> dict[str, Any]:
        """Everything that is not an array, for a run file."""
        choice = next((entry.choice for entry in self.entries if entry.choice), None)
        return {
            "unit": "env steps",
            "env_id": self.env_id,
            "num_envs": self.settings.num_envs,
            "usable_cores": whole_cores(),
            "round_s": self._round_s,
            "probe": dataclasses.asdict(self.probe) if self.probe else None,
            "choice": choice.reason if choice else None,
            "variants": [self._described(entry) for entry in self.entries],
        }

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """`sps`, (variants, rounds): env steps a second, NaN where none were measured."""
        rates = self.race.rates
        sps = np.full((len(self.entries), len(rates)), np.nan)
        sps[self.racing] = rates.T
        return {"sps": sps}

    @property
    def _round_s(self) -> float:
        return min(ROUND_S, self.settings.seconds / (MIN_ROUNDS * max(1, len(self.entries))))

    def _open(self, opener: Opener, stack: ExitStack, observer: Observer) -> list["_Racer"]:
        # Worker processes are forked before a backend starts threads.
        order = sorted(range(len(self.entries)), key=lambda k: _is_late(self.entries[k].variant))
        racers = []
        for number in order:
            entry = self.entries[number]
            observer(0.0, f"making {entry.variant}")
            try:
                envs = opener(entry.variant)
                racer = _Racer(number, entry, envs)
                stack.push(racer.close)
                racer.turns.prepare()
            except Exception as error:
                entry.problem = _reason(error)
                continue
            if isinstance(envs, VectorEnv) and isinstance(envs.choice, Choice):
                entry.choice = envs.choice
            racers.append(racer)
        return racers

    def _described(self, entry: Entry) -> dict[str, Any]:
        variant, choice = entry.variant, entry.choice
        workers = choice.num_workers if choice else variant.num_workers
        if variant.backend == AUTO:
            in_one = choice is not None and workers is None
        else:
            in_one = find_backend(variant.backend).workers is None
        return {
            "backend": variant.backend,
            "num_workers": workers,
            "splits": variant.splits,
            "envs_per_worker": -(-self.settings.num_envs // (workers or 1))
            if workers or in_one
            else None,
            "chosen": choice.backend if choice else None,
            "problem": entry.problem,
        }


class _Racer:
    """One variant, made and ready to take turns."""

    def __init__(self, number: int, entry: Entry, envs: AnyVectorEnv[Any, Any, Any]) -> None:
        self.number = number
        self.entry = entry
        self.turns = Turns(envs, entry.variant.splits)

    def rate(self, seconds: float, clock: Callable[[], float]) -> float:
        """Env steps a second; not a number, and the entry says why, where it failed."""
        try:
            return self.turns.steps_per_s(seconds, clock)
        except Exception as error:
            self.entry.problem = _reason(error)
            return float("nan")

    def close(self, *raised: object) -> None:
        """End it; where something was raised, an engine of ours does not wait for its steps."""
        cut_short = raised[0] is not None or self.entry.problem is not None
        envs = self.turns.envs
        try:
            if cut_short and isinstance(envs, VectorEnv):
                envs.close(terminate=True)
            else:
                envs.close()
        except Exception as unclosed:
            self.entry.problem = self.entry.problem or f"closing it failed: {_reason(unclosed)}"


@dataclass
class _Opener:
    """Makes variants of an env, each beside the session that its backend needs meanwhile."""

    env_id: str
    num_envs: int
    sessions: ExitStack
    _entered: set[str] = field(default_factory=set)

    def __call__(self, variant: Variant) -> AnyVectorEnv[Any, Any, Any]:
        """The vector env of a variant.

        Raises: TargetError where the env has none of its own; WorkerError where a package is
        missing; what making the envs raises.
        """
        name = variant.backend
        settings: dict[str, Any] = {}
        if name != AUTO:
            load_backend(name)  # refuses it before its session starts
            settings |= BACKENDS[name].sweep_settings
            if name not in self._entered:
                self.sessions.enter_context(BACKENDS[name].session())
                self._entered.add(name)
        return make_vec(
            self.env_id,
            self.num_envs,
            backend=name,
            num_workers=variant.num_workers,
            splits=variant.splits,
            **settings,
        )


def _is_late(variant: Variant) -> bool:
    return variant.backend != AUTO and find_backend(variant.backend).starts_threads


def _reason(error: Exception) -> str:
    message = " ".join(str(error).split())
    if isinstance(error, HotloopError):
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
