"""How fast each backend steps an env: all of them side by side, a moment each, in random order.

A machine's mood changes from second to second. So every variant is made first, and then measured in
rounds: what one round shows of two variants was measured within the same seconds.
"""

import dataclasses
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv as AnyVectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hotloop.envs.auto import Choice, Probe, probe_env
from hotloop.envs.make import env_makers
from hotloop.envs.placement import whole_cores
from hotloop.envs.variants import BACKENDS, Variant, open_variant, plan
from hotloop.envs.vector import VectorEnv
from hotloop.errors import HotloopError, expect_positive

ROUND_S = 0.3
MIN_ROUNDS = 3
ACTIONS = 16  # batches of random actions, drawn before

Opener = Callable[[Variant], AnyVectorEnv[Any, Any, Any]]
Observer = Callable[[float, str], None]  # how much is done, 0 to 1; what comes next


@dataclass(frozen=True)
class SweepSettings:
    """What to measure, and for how long."""

    num_envs: int = 64
    """Envs stepped together."""
    backends: tuple[str, ...] = BACKENDS
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
    rounds: list[NDArray[np.float64]] = field(default_factory=list)  # SPS (variants,) of each

    def run(self, observer: Observer) -> None:
        """Measure; everything that was started has ended when it returns or raises.

        Raises: TargetError for an env that does not exist; what making or stepping one env raises.
        """
        settings = self.settings
        (fn,) = env_makers(self.env_id, 1, {})
        observer(0.0, "one env alone")
        self.probe = probe_env(fn)
        variants = plan(settings.backends, settings.num_envs, whole_cores(), self.probe.busy)
        had_ray = _ray_runs()
        try:
            self.measure(variants, partial(open_variant, self.env_id, settings.num_envs), observer)
        finally:
            if _ray_runs() and not had_ray:
                sys.modules["ray"].shutdown()

    def measure(self, variants: Sequence[Variant], opener: Opener, observer: Observer) -> None:
        """Make all variants, then measure those that could be made, until the time is up."""
        self.entries = [Entry(variant) for variant in variants]
        order = random.Random(self.settings.seed)
        with ExitStack() as stack:
            racers = self._open(opener, stack, observer)
            start = self.clock()
            while racers:
                share = (self.clock() - start) / self.settings.seconds
                if share >= 1 and len(self.rounds) >= MIN_ROUNDS:
                    return
                order.shuffle(racers)
                self._round(racers, partial(observer, min(1.0, share)))
                racers = [racer for racer in racers if racer.entry.problem is None]

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
        shape = (len(self.rounds), len(self.entries))
        return {"sps": np.array(self.rounds, np.float64).reshape(shape).T.copy()}

    @property
    def _round_s(self) -> float:
        return min(ROUND_S, self.settings.seconds / (MIN_ROUNDS * max(1, len(self.entries))))

    def _open(self, opener: Opener, stack: ExitStack, observer: Observer) -> list["_Racer"]:
        # Ray comes last: it starts threads, and worker processes are forked before there are any.
        order = sorted(
            range(len(self.entries)), key=lambda k: self.entries[k].variant.backend == "ray"
        )
        racers = []
        for number in order:
            entry = self.entries[number]
            observer(0.0, f"making {entry.variant}")
            try:
                envs = opener(entry.variant)
                racer = _Racer(number, entry, envs)
                stack.push(racer.close)
                racer.prepare()
            except Exception as error:
                entry.problem = _told(error)
                continue
            if isinstance(envs, VectorEnv) and isinstance(envs.choice, Choice):
                entry.choice = envs.choice
            racers.append(racer)
        return racers

    def _round(self, racers: Sequence["_Racer"], observer: Callable[[str], None]) -> None:
        measured = np.full(len(self.entries), np.nan)
        self.rounds.append(measured)
        for racer in racers:
            observer(str(racer.entry.variant))
            try:
                measured[racer.number] = racer.steps_per_s(self._round_s, self.clock)
            except Exception as error:
                racer.entry.problem = _told(error)

    def _described(self, entry: Entry) -> dict[str, Any]:
        variant, choice = entry.variant, entry.choice
        workers = choice.num_workers if choice else variant.num_workers
        in_one = variant.backend in ("serial", "native") or (choice and workers is None)
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
    """One variant, made and ready; between two rounds none of its envs is under way."""

    def __init__(self, number: int, entry: Entry, envs: AnyVectorEnv[Any, Any, Any]) -> None:
        self.number = number
        self.entry = entry
        self._envs = envs
        splits = entry.variant.splits
        batch = batch_space(envs.single_action_space, envs.num_envs // splits)
        batch.seed(0)
        self._actions = [batch.sample() for _ in range(ACTIONS)]
        self._turns = self._split_turns if splits > 1 else self._whole_turns

    def prepare(self) -> None:
        """Start the episodes, and let everything happen once that happens once."""
        self._envs.reset(seed=0)
        self._turns(lambda: False)

    def steps_per_s(self, seconds: float, clock: Callable[[], float]) -> float:
        """Env steps a second over about `seconds`, at least one step of every env."""
        self._turns(lambda: False)  # wakes workers that have slept since the round before
        start = clock()
        steps = self._turns(lambda: clock() - start < seconds)
        return steps / (clock() - start)

    def close(self, *raised: object) -> None:
        """End it; where something was raised, an engine of ours does not wait for its steps."""
        cut_short = raised[0] is not None or self.entry.problem is not None
        try:
            if cut_short and isinstance(self._envs, VectorEnv):
                self._envs.close(terminate=True)
            else:
                self._envs.close()
        except Exception as unclosed:
            self.entry.problem = self.entry.problem or f"closing it failed: {_told(unclosed)}"

    def _whole_turns(self, more: Callable[[], bool]) -> int:
        """Step all envs at once; returns the env steps."""
        turns = 0
        while not turns or more():
            self._envs.step(self._actions[turns % ACTIONS])
            turns += 1
        return turns * self._envs.num_envs

    def _split_turns(self, more: Callable[[], bool]) -> int:
        """Step one group after the other, the others being under way; returns the env steps."""
        envs = self._envs
        assert isinstance(envs, VectorEnv)
        for split in range(envs.splits):
            envs.send(self._actions[split % ACTIONS], envs.split_rows(split))
        turns = 0
        while more():
            envs.recv()
            envs.send(self._actions[turns % ACTIONS])
            turns += 1
        for _ in range(envs.splits):
            envs.recv()
        return (turns + envs.splits) * envs.batch_size


def _told(error: Exception) -> str:
    message = " ".join(str(error).split())
    if isinstance(error, HotloopError):
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _ray_runs() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
