"""The search for the fastest choice: what is proposed races in turns, and the slower ones drop out.

The fastest choice so far takes part in every race. How much two turns of one choice differ, apart
from what all choices of a round have in common, is pooled over all races: where turns hardly
differ one round decides; where they differ much a few rounds only say what is worth a second look,
and the best few race once more. What wins was picked because it looked best; so the last part of
the budget measures it against the start anew, and only that counts.
"""

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hotloop.errors import HotloopError
from hotloop.loop.figures import Interval
from hotloop.loop.race import Race, Turn, ratio_of
from hotloop.optimize.proposals import Proposals
from hotloop.optimize.space import Choice, Space, written

# Shares of the budget: until then choices are tried, until then the best of them race once more,
# and the rest measures the winner against the start.
TRIED, RACED = 0.55, 0.8
MOST_ROUNDS = 2  # of a race with choices that are new
DROPPED = 2.5  # standard errors below the fastest: it runs no more
TAKEN = 1.0  # standard errors above the fastest so far: it takes its place
CLOSE = 1.6  # what is so many times slower than the best does not race again
BUDGET_USED = "the budget was used"
START_ALONE = "the budget was used by the start alone; a longer --budget leaves time to try others"
ALIKE = 0.005  # once differences are known so exactly, more rounds do not matter


class TrialError(HotloopError):
    """A choice that cannot be tried; the message says why."""


class Entrant(Protocol):
    """A choice that can run."""

    def turn(self) -> float:
        """Run for a moment. Returns units a second. Raises: TrialError."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Bench(Protocol):
    """Where choices run.

    places: how many may be open at once, beside the fastest so far. warm_rounds: turns of the start
    alone, which show how much its turns differ; final_rounds: of the winner against it, at least.
    """

    places: int
    warm_rounds: int
    final_rounds: int

    def open(self, choice: Choice, *, checked: bool = False) -> Entrant:
        """Make a choice ready to run.

        checked: whether it must be known that it keeps what the loop computes.
        Raises: TrialError.
        """
        ...

    def next_round(self) -> None:
        """A round begins; what all its turns share, such as a seed, may change."""
        ...


@dataclass
class Trial:
    """A choice with what came of it.

    ratio: how many times faster than the start; problem: why it is not known.
    """

    choice: Choice
    ratio: float = math.nan
    rounds: int = 0
    problem: str | None = None


@dataclass
class Search:
    """One search; what it has found so far stays when it is cut short.

    worth: the gain, as a share, that another choice must have. best: the fastest choice. gain: how
    many times faster than the start it was in the last part, None as long as that has not been
    measured. over: why the search ended.
    """

    space: Space
    bench: Bench
    budget_s: float
    clock: Callable[[], float]
    order: Sequence[str] = ()
    seed: int = 0
    worth: float = 0.0
    trials: list[Trial] = field(default_factory=list)
    gain: Interval | None = None
    over: str = ""

    def __post_init__(self) -> None:
        self.best = self.space.start
        self._best_log = 0.0  # the logarithm of its ratio to the start
        self._proposals = Proposals(self.space, self.order, self.seed)
        self._noise = _Noise()

    def run(self, observe: Callable[[str], None] = lambda _what: None) -> None:
        """Search until the budget is used or everything was tried.

        observe: told what happens next.
        Raises: TrialError if the start itself does not run.
        """
        begin = self.clock()
        observe("as it is")
        with _opened(self.bench, self.space.start) as start:
            warm = Race([start.turn])
            for _ in range(self.bench.warm_rounds):
                self._round(warm)
            self._noise.start(warm.rates[:, 0])
            self._search(start, begin + TRIED * self.budget_s, observe)
            while True:
                observe("the best once more")
                with contextlib.ExitStack() as stack:
                    best = self._race_again(begin + RACED * self.budget_s, stack)
                    if best is None:
                        self.best, self.gain = self.space.start, Interval(1.0, 1.0, 1.0)
                        return
                    observe("the best against the start")
                    self._judge(start, self._guarded(*best), begin + self.budget_s)
                if best[0].problem is None:
                    return  # else it has failed only now, and the next best is judged

    def _search(self, start: Entrant, until: float, observe: Callable[[str], None]) -> None:
        """Race what is proposed with the fastest so far, until the time is over."""
        leader: tuple[Trial, Entrant] = Trial(self.space.start), start
        try:
            while self.clock() < until:
                racing: list[tuple[Trial, Entrant]] = []
                try:
                    self._gather(racing, until, observe)
                    if not racing:
                        self.over = self.over or "every choice was tried"
                        return
                    before = leader
                    winner = self._race(leader, racing, until)
                    if winner is not None:
                        leader = racing.pop(winner)
                    elif leader[0].problem is not None and leader[1] is not start:
                        leader = Trial(self.space.start), start
                        self.best, self._best_log = self.space.start, 0.0
                    if before is not leader and before[1] is not start:
                        before[1].close()
                finally:
                    for _, entrant in racing:
                        entrant.close()
            self.over = BUDGET_USED if self.trials else START_ALONE
        finally:
            if leader[1] is not start:
                leader[1].close()

    def _gather(
        self, racing: list[tuple[Trial, Entrant]], until: float, observe: Callable[[str], None]
    ) -> None:
        """Open what is proposed, as many as there are places for."""
        while len(racing) < self.bench.places and self.clock() < until:
            choice = self._proposals.next()
            if choice is None:
                return
            trial = Trial(choice)
            self.trials.append(trial)
            observe(written(self.space.changes(choice), ", "))
            try:
                racing.append((trial, self.bench.open(choice)))
            except TrialError as error:
                self._failed(trial, error)

    def _race(
        self, leader: tuple[Trial, Entrant], racing: Sequence[tuple[Trial, Entrant]], until: float
    ) -> int | None:
        """Let them race against the fastest so far; returns which of them takes its place."""
        race = Race(
            [self._guarded(*each) for each in (leader, *racing)], self.seed + len(self.trials)
        )
        self._eliminate(race, lambda rounds: rounds >= MOST_ROUNDS or self.clock() > until)
        return self._settle(race, racing)

    def _race_again(
        self, until: float, stack: contextlib.ExitStack
    ) -> tuple[Trial, Entrant] | None:
        """Let the best few race until one is left, or differences do not matter any more.

        stack: closes them. Returns the winner, None if there is none.
        """
        known = [trial for trial in self.trials if trial.problem is None and trial.ratio > 1]
        waiting = deque(sorted(known, key=lambda each: each.ratio, reverse=True))
        racing: list[tuple[Trial, Entrant]] = []
        while True:
            self._open_best(waiting, racing, until, stack)
            if not racing:
                return None
            race = Race([self._guarded(*each) for each in racing], self.seed)
            self._eliminate(race, lambda _rounds: self.clock() > until)
            if race.running:
                logs = {k: _log_ratio(race.rates, k, race.running[0]) for k in race.running}
                winner = racing[max(logs, key=logs.__getitem__)]
                self.best = winner[0].choice
                return winner
            # Those that led have failed; some that had dropped out, or waited, may be well.
            racing = [each for each in racing if each[0].problem is None]

    def _open_best(
        self,
        waiting: deque[Trial],
        racing: list[tuple[Trial, Entrant]],
        until: float,
        stack: contextlib.ExitStack,
    ) -> None:
        """Open the best of those that wait, and those that come close to it."""
        while waiting and (
            not racing
            or (
                len(racing) <= self.bench.places
                and waiting[0].ratio > racing[0][0].ratio / CLOSE
                and self.clock() < until
            )
        ):
            trial = waiting.popleft()
            try:
                entrant = self.bench.open(trial.choice, checked=True)
            except TrialError as error:
                self._failed(trial, error)
                continue
            stack.callback(entrant.close)
            racing.append((trial, entrant))

    def _eliminate(self, race: Race, over: Callable[[int], bool]) -> None:
        """Run rounds, and drop what is behind, until one is left or it is over.

        over: asked after each round, with how many there were.
        """
        while len(race.running) > 1:
            self._round(race)
            error = self._noise.of_difference(race.rates)
            if not race.running or error < ALIKE or over(len(race.rates)):
                break
            logs = {k: _log_ratio(race.rates, k, race.running[0]) for k in race.running}
            lead = max(logs.values())
            for k in [k for k in race.running if logs[k] < lead - DROPPED * error]:
                race.drop(k)
        self._noise.add(race.rates)

    def _settle(self, race: Race, racing: Sequence[tuple[Trial, Entrant]]) -> int | None:
        """Note what the race has shown; returns who takes the place of the fastest so far."""
        error = self._noise.of_difference(race.rates)
        found = [_log_ratio(race.rates, k + 1, 0) for k in range(len(racing))]
        before, winner = self._best_log, None
        for k, (trial, _) in enumerate(racing):
            trial.rounds = int(np.isfinite(race.rates[:, k + 1]).sum())
            # Nothing is known of what has shared no round with the fastest so far.
            if trial.problem is not None or not math.isfinite(found[k]):
                continue
            trial.ratio = math.exp(before + found[k])
            self._proposals.tell(trial.choice, before + found[k])
            leads = k + 1 in race.running and found[k] > TAKEN * error
            if leads and (winner is None or found[k] > found[winner]):
                winner = k
        if winner is not None:
            self.best, self._best_log = racing[winner][0].choice, before + found[winner]
        return winner

    def _judge(self, start: Entrant, best: Turn, until: float) -> None:
        """Measure the best against the start with turns of their own; keep the start in doubt."""
        race, least = Race([start.turn, best], self.seed), self.bench.final_rounds
        while len(race.running) > 1 and (len(race.rates) < least or self.clock() < until):
            self._round(race)
            self.gain = race.ratio(1, 0)
            if len(race.rates) >= least and self.gain.half_width < ALIKE:
                break
        gain, runs = self.gain, len(race.running) > 1
        if gain is None or not (runs and gain.low > 1 and gain.value >= 1 + self.worth):
            self.best, self.gain = self.space.start, Interval(1.0, 1.0, 1.0)

    def _round(self, race: Race) -> None:
        self.bench.next_round()
        race.round()

    def _guarded(self, trial: Trial, entrant: Entrant) -> Turn:
        """Its turn, which fails alone; an error of the start is everybody's."""
        if trial.choice == self.space.start:
            return entrant.turn

        def turn() -> float:
            try:
                return entrant.turn()
            except TrialError as error:
                self._failed(trial, error)
                return math.nan

        return turn

    def _failed(self, trial: Trial, error: TrialError) -> None:
        trial.problem = str(error)
        self._proposals.tell(trial.choice, None)


class _Noise:
    """How much turns of one choice differ: the spread of the logarithm of a rate, pooled.

    What a round has in common is taken out wherever it holds two choices.
    """

    def __init__(self) -> None:
        self._squares, self._degrees = 0.0, 0

    def start(self, rates: np.ndarray) -> None:
        """Count the turns of one choice alone: (rounds,)."""
        logs = np.log(rates)
        self._squares += float(((logs - logs.mean()) ** 2).sum())
        self._degrees += len(logs) - 1

    def add(self, rates: np.ndarray) -> None:
        """Count a race: (rounds, choices)."""
        squares, degrees = _residuals(rates)
        self._squares += squares
        self._degrees += degrees

    def of_difference(self, rates: np.ndarray) -> float:
        """The standard error of the logarithm of a ratio of two that ran in all of its rounds."""
        squares, degrees = _residuals(rates)
        spread = math.sqrt((self._squares + squares) / (self._degrees + degrees))
        return spread * math.sqrt(2 / len(rates))


def _residuals(rates: np.ndarray) -> tuple[float, int]:
    """The sum of squares of logarithms without the means of choices and rounds, and its degrees."""
    logs = np.log(rates)
    squares, degrees = 0.0, 0
    for k in range(1, logs.shape[1]):
        difference = logs[:, k] - logs[:, 0]
        difference = difference[np.isfinite(difference)]
        if len(difference) > 1:
            # The difference of two turns has twice the variance of one.
            squares += float(((difference - difference.mean()) ** 2).sum()) / 2
            degrees += len(difference) - 1
    return squares, degrees


def _log_ratio(rates: np.ndarray, racer: int, other: int) -> float:
    """The logarithm of the ratio of their rates, over the rounds that hold both."""
    if racer == other:
        return 0.0
    value = ratio_of(rates, racer, other).value
    return math.log(value) if value > 0 else -math.inf


@contextlib.contextmanager
def _opened(bench: Bench, choice: Choice) -> Iterator[Entrant]:
    entrant = bench.open(choice)
    try:
        yield entrant
    finally:
        entrant.close()
