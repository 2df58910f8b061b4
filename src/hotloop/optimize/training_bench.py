"""Choices that change learning: each turn is a whole training, judged by its time to the target."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hotloop.optimize.bench import TrialError
from hotloop.optimize.guarded_process import GuardedProcess
from hotloop.optimize.space import Choice, Space
from hotloop.repeat.sides import TRAINING, Side

PATIENCE = 2.0  # a training may take so many times what the trainings of the start have taken
LEAST_S = 1.0  # that any training may take
UNSOLVED = 2.0  # one that is not solved counts as so many times the time that it had
# A training with its evaluations takes so many times its limit, and so long besides, or it hangs.
_BESIDE, _GRACE_S = 10.0, 60.0


class TrainingBench:
    """Trains choices, all of a round from the same seed.

    Those whose levers are the same follow each other in one process; it ends with the bench.

    side_of: the target of a choice with its settings. limit_s: of the trainings of the start, as
    long as none has ended.
    """

    places = 4
    same_work = True
    usual_noise = 0.4  # over seeds
    warm_rounds, least_rounds, final_rounds = 2, 1, 4  # a turn takes seconds to minutes
    judging_share = 0.35  # times to a target differ by half from seed to seed
    free = ()
    unchecked = "they change learning; what counts is how soon the target is reached"

    def __init__(
        self, space: Space, side_of: Callable[[Choice], Side], limit_s: float, seed: int
    ) -> None:
        self.space = space
        self._side_of = side_of
        self._limit_s = limit_s
        self._start_s: list[float] = []  # what trainings with the settings at the start have taken
        self._seed = 1000 * (seed + 1)  # apart from those that settings are judged with
        self._processes: dict[str, TrainingProcess] = {}  # by the levers that are set in them

    def begin(self, choices: Sequence[Choice]) -> None:
        """Nothing runs before a first turn."""

    def open(self, choice: Choice, *, checked: bool = False) -> "Training":  # noqa: ARG002
        """Make a choice ready; nothing runs before its first turn."""
        return Training(self, self._side_of(choice), choice == self.space.start)

    def next_round(self) -> None:
        """The turns of a round have a seed of their own."""
        self._seed += 1

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.close()
        self._processes.clear()

    def train(self, side: Side, *, is_start: bool) -> float:
        """Train once. Returns 1 over the seconds to the target. Raises: TrialError.

        is_start: whether these are the settings at the start, which tell how long others may take.
        """
        limit_s = self._limit_s
        if self._start_s and not is_start:
            limit_s = max(PATIENCE * statistics.mean(self._start_s), LEAST_S)
        key = json.dumps(dict(side.levers), sort_keys=True)
        if key not in self._processes:
            self._processes[key] = TrainingProcess(side)
        process = self._processes[key]
        try:
            solved_s = process.train(side, self._seed, limit_s)
        finally:
            if process.ended:
                self._processes.pop(key).close()
        seconds = UNSOLVED * limit_s if solved_s is None else solved_s
        if is_start:
            self._start_s.append(seconds)
        return 1 / seconds


@dataclass(frozen=True)
class Training:
    """A choice that can be trained."""

    bench: TrainingBench
    side: Side
    is_start: bool
    granularity = 0.0

    def turn(self) -> float:
        """1 over the seconds to the target, of one training. Raises: TrialError."""
        return self.bench.train(self.side, is_start=self.is_start)

    def close(self) -> None:
        """The process stays for other choices."""


class TrainingProcess:
    """A process that trains one target again and again; it rests in between.

    side: the target, and the levers that are set in it.
    Raises: TrialError if it does not start.
    """

    def __init__(self, side: Side) -> None:
        self._process = GuardedProcess(replace(side, kind=TRAINING), seed=0)
        self.close = self._process.close
        try:
            self._process.begin()
        except BaseException:
            self.close()
            raise

    @property
    def ended(self) -> bool:
        """Whether it can train no more."""
        return self._process.ended

    def train(self, side: Side, seed: int, limit_s: float) -> float | None:
        """Train once with the settings of a side.

        Returns the seconds to the target; None if it was not reached in `limit_s` seconds.
        Raises: TrialError if it fails, needs too much memory, or hangs.
        """
        self._process.limit_s = _BESIDE * limit_s + _GRACE_S
        found = self._process.ask(
            {"settings": dict(side.settings), "seed": seed, "limit_s": limit_s}
        )
        if found["problem"] is not None:
            raise TrialError(found["problem"])
        seconds: float | None = found["seconds"]
        return seconds
