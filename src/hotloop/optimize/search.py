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
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from hotloop.loop.figures import Interval
from hotloop.loop.race import Race, Turn, ratio_of
from hotloop.optimize.bench import Bench, Entrant, TrialError
from hotloop.optimize.proposals import Proposals
from hotloop.optimize.response import Response
from hotloop.optimize.space import Choice, Space, written
from hotloop.optimize.turn_noise import TurnNoise

# Of the budget without its last part, in which the winner is measured against the start: so long
# choices are tried; then the best of them race once more.
TRIED = 0.85
# A race with choices that are new has so many rounds, and more where making them ready took long:
# such a share of that time.
NEW_ROUNDS, RACING_SHARE = 2, 0.25
AT_ONCE = 0.05  # of the longest opening; what took less was open already
DROPPED = 2.5  # standard errors below the fastest: it runs no more
TAKEN = 1.0  # standard errors above the fastest so far: it takes its place
CLOSE = 0.45  # below the best, as a logarithm: it does not race again
BUDGET_USED = "the budget was used"
START_ALONE = "the budget was used by the start alone; a longer --budget leaves time to try others"
ALIKE = 0.005  # once differences are known so exactly, more rounds do not matter


@dataclass
class Trial:
    """A choice with what came of it.

    ratio: how many times faster than the start; problem: why it is not known.
    """

    choice: Choice
    ratio: float = math.nan
    rounds: int = 0
    problem: str | None = None


Racer = tuple[Trial, Entrant]


@dataclass
class Search:
    """One search; what it has found so far stays when it is cut short.

    order, whole: names of levers, as `Proposals` has them.
    worth: the gain, as a share, that another choice must have. best: the fastest choice. gain: how
    many times faster than the start it was in the last part, None as long as that has not been
    measured. over: why the search ended.
    """

    space: Space
    bench: Bench
    budget_s: float
    clock: Callable[[], float]
    order: Sequence[str] = ()
    whole: Collection[str] = ()
    seed: int = 0
    worth: float = 0.0
    trials: list[Trial] = field(default_factory=list)
    gain: Interval | None = None
    over: str = ""

    def __post_init__(self) -> None:
        self.best = self.space.start
        self._best_log = 0.0  # the logarithm of its ratio to the start
        self._response = Response(self.space)
        self._proposals = Proposals(self.space, self.order, self.seed, self._response, self.whole)
        self._noise = TurnNoise(self.bench.usual_noise)
        self._openings_s: list[float] = []  # what making a choice ready has taken
        self._leader: Racer | None = None  # the fastest choice, if not the start

    def run(self, observe: Callable[[str], None] = lambda _what: None) -> None:
        """Search until the budget is used or everything was tried.

        observe: told what happens next.
        Raises: TrialError if the start itself does not run.
        """
        begin = self.clock()
        observe("as it is")
        with (
            contextlib.closing(self._open(self.space.start)) as start,
            contextlib.ExitStack() as stack,
        ):
            stack.callback(self._lead, None)
            warm = Race([start.turn])
            for _ in range(self.bench.warm_rounds):
                self._round(warm)
            self._noise.start(warm.rates[:, 0])
            race_s = (1 - self.bench.judging_share) * self.budget_s
            self._search(start, begin + TRIED * race_s, observe)
            if not self._promising():
                self._search(start, begin + race_s, observe)
            while True:
                observe("the best once more")
                with contextlib.ExitStack() as opened:
                    best = self._race_again(begin + race_s, opened)
                    if best is None:
                        self.best, self.gain = self.space.start, Interval(1.0, 1.0, 1.0)
                        return
                    observe("the best against the start")
                    self._judge(start, self._guarded(*best), begin + self.budget_s)
                if best[0].problem is None:
                    return  # else it has failed only now, and the next best is judged

    def _search(self, start: Entrant, until: float, observe: Callable[[str], None]) -> None:
        """Race what is proposed with the fastest so far, until the time is over."""
        while self._has_time(until):
            racing: list[Racer] = []
            try:
                begin = self.clock()
                if self._gather(racing, until, observe) and not racing:
                    self.over = self.over or "every choice was tried"
                    return
                if not racing:
                    break
                leader = self._leader or (Trial(self.space.start), start)
                race_s = RACING_SHARE * (self.clock() - begin)
                winner = self._race(leader, racing, race_s, until)
                if winner is not None:
                    self._lead(racing.pop(winner))
                elif self._leader is not None and self._leader[0].problem is not None:
                    self._lead(None)
                    self.best, self._best_log = self.space.start, 0.0
            finally:
                for _, entrant in racing:
                    entrant.close()
        self.over = BUDGET_USED if self.trials else START_ALONE

    def _lead(self, leader: Racer | None) -> None:
        """Let another choice be the fastest so far, which stays open; None: it is the start."""
        before, self._leader = self._leader, leader
        if before is not None:
            before[1].close()

    def _gather(self, racing: list[Racer], until: float, observe: Callable[[str], None]) -> bool:
        """Open what is proposed, as many as there are places for; returns whether that was all."""
        while True:
            proposed: list[Choice] = []
            is_all = False
            while len(racing) + len(proposed) < self.bench.places:
                if not self._has_time(until, len(proposed) + 1):
                    break
                choice = self._proposals.next()
                if choice is None:
                    is_all = True
                    break
                proposed.append(choice)
            self.bench.begin(proposed)
            for choice in proposed:
                self._join(racing, choice, observe)
            if is_all or not proposed:
                break
        # What can be set in them besides costs no opening, and may only help there.
        for trial, _ in tuple(racing):
            for choice in self._proposals.beside(trial.choice, self.bench.free):
                self._join(racing, choice, observe)
        return is_all

    def _join(self, racing: list[Racer], choice: Choice, observe: Callable[[str], None]) -> None:
        """Open a choice for a race, or note why that cannot be."""
        trial = Trial(choice)
        self.trials.append(trial)
        observe(written(self.space.changes(choice), ", "))
        try:
            racing.append((trial, self._open(choice)))
        except TrialError as error:
            self._failed(trial, error)

    def _race(self, leader: Racer, racing: list[Racer], race_s: float, until: float) -> int | None:
        """Let them race against the fastest so far; returns which of them takes its place."""
        enough = self.clock() + race_s
        racers = [leader, *racing]
        race = Race([self._guarded(*each) for each in racers], self.seed + len(self.trials))
        self._eliminate(
            race,
            racers,
            lambda rounds: self.clock() >= (enough if rounds >= NEW_ROUNDS else max(enough, until)),
        )
        self._note(race, racers)
        return self._take(self._settle(race, racers), racing)

    def _race_again(self, until: float, stack: contextlib.ExitStack) -> Racer | None:
        """Let the best few race until one is left, or differences do not matter any more.

        stack: closes them. Returns the winner, None if there is none.
        """
        waiting = deque(self._promising())
        racing: list[Racer] = []
        while True:
            self._open_best(waiting, racing, until, stack)
            if not racing:
                return None
            race = Race([self._guarded(*each) for each in racing], self.seed)
            self._eliminate(race, racing, lambda _rounds: self.clock() > until)
            self._note(race, racing)
            if race.running:
                fastest = self._by_promise([racing[k][0] for k in race.running])[0][1]
                self.best = fastest.choice
                return next(each for each in racing if each[0] is fastest)
            # Those that led have failed; some that had dropped out, or waited, may be well.
            racing = [each for each in racing if each[0].problem is None]

    def _open_best(
        self,
        waiting: deque[Trial],
        racing: list[Racer],
        until: float,
        stack: contextlib.ExitStack,
    ) -> None:
        """Open the best of those that wait, and those that come close to it."""
        while waiting and (
            not racing
            or (
                len(racing) <= self.bench.places
                and self._expected(waiting[0]) > self._expected(racing[0][0]) - CLOSE
                and self._has_time(until)
            )
        ):
            trial = waiting.popleft()
            try:
                entrant = self._open(trial.choice, checked=True)
            except TrialError as error:
                self._failed(trial, error)
                continue
            stack.callback(entrant.close)
            racing.append((trial, entrant))

    def _eliminate(self, race: Race, racers: Sequence[Racer], over: Callable[[int], bool]) -> None:
        """Run rounds, and drop what is behind, until one is left or it is over.

        over: asked after each round, with how many there were.
        """
        while len(race.running) > 1:
            self._round(race)
            if not race.running:
                break
            if len(race.rates) < self.bench.least_rounds:
                continue
            if over(len(race.rates)):
                break
            logs = {k: self._log_ratio(race.rates, k, race.running[0]) for k in race.running}
            lead = max(logs, key=lambda k: logs[k])
            errors = {k: self._error(race, racers, k, lead) for k in race.running}
            if max(errors.values()) < ALIKE:
                break
            for k in [k for k in race.running if logs[k] < logs[lead] - DROPPED * errors[k]]:
                race.drop(k)
        self._noise.add(race.rates)

    def _error(self, race: Race, racers: Sequence[Racer], one: int, other: int) -> float:
        """The standard error of the logarithm of a ratio of two."""
        parts = (
            self._noise.of_difference(race.rates),
            racers[one][1].granularity,
            racers[other][1].granularity,
        )
        return math.hypot(*parts)

    def _settle(self, race: Race, racers: Sequence[Racer]) -> dict[int, float]:
        """Note what the race with the fastest so far, which is the first of them, has shown.

        Returns those that are faster than the fastest so far, the fastest of them first, with the
        logarithms of their ratios to the start.
        """
        faster: dict[int, float] = {}
        for k, (trial, _) in enumerate(racers[1:]):
            trial.rounds = int(np.isfinite(race.rates[:, k + 1]).sum())
            found = self._log_ratio(race.rates, k + 1, 0)
            # Nothing is known of what has shared no round with the fastest so far.
            if trial.problem is not None or not math.isfinite(found):
                continue
            log = self._best_log + found
            trial.ratio = math.exp(log)
            self._proposals.tell(trial.choice, log)
            if k + 1 in race.running and found > TAKEN * self._error(race, racers, k + 1, 0):
                faster[k] = log
        return dict(sorted(faster.items(), key=lambda each: each[1], reverse=True))

    def _take(self, faster: dict[int, float], racing: list[Racer]) -> int | None:
        """Take the fastest that keeps what the loop computes: all further ones race against it."""
        for k, log in faster.items():
            trial, entrant = racing[k]
            try:
                checked = self._open(trial.choice, checked=True)
            except TrialError as error:
                self._failed(trial, error)
                continue
            entrant.close()
            racing[k] = trial, checked
            self.best, self._best_log = trial.choice, log
            return k
        return None

    def _note(self, race: Race, racers: Sequence[Racer]) -> None:
        """Take in what a race has shown of all levers."""
        found = {}
        finite = np.isfinite(race.rates)
        reference = int(finite.sum(axis=0).argmax())
        for k, (trial, entrant) in enumerate(racers):
            rounds = int((finite[:, k] & finite[:, reference]).sum())
            if trial.problem is None and rounds:
                log = self._log_ratio(race.rates, k, reference)
                found[trial.choice] = (log, rounds, entrant.granularity)
        if len(found) > 1:
            self._response.add(found, self._noise.of_turn)

    def _expected(self, trial: Trial) -> float:
        return float(self._response.of([trial.choice])[0][0])

    def _promising(self) -> list[Trial]:
        """Those that are expected to be faster than the start, the fastest first."""
        known = [each for each in self.trials if each.problem is None and each.rounds]
        return [each for log, each in self._by_promise(known) if log > 0]

    def _by_promise(self, trials: Sequence[Trial]) -> list[tuple[float, Trial]]:
        """Trials by the logarithm of their expected ratio to the start, the fastest first."""
        if not trials:
            return []
        means, _ = self._response.of([each.choice for each in trials])
        pairs = zip(means.tolist(), trials, strict=True)
        return sorted(pairs, key=lambda each: each[0], reverse=True)

    def _judge(self, start: Entrant, best: Turn, until: float) -> None:
        """Measure the best against the start with turns of their own; keep the start in doubt."""
        race, least = Race([start.turn, best], self.seed), self.bench.final_rounds
        while len(race.running) > 1 and (len(race.rates) < least or self.clock() < until):
            self._round(race)
            self.gain = self._ratio(race.rates, 1, 0)
            if len(race.rates) >= least and self.gain.half_width < ALIKE:
                break
        gain, runs = self.gain, len(race.running) > 1
        if gain is None or not (runs and gain.low > 1 and gain.value >= 1 + self.worth):
            self.best, self.gain = self.space.start, Interval(1.0, 1.0, 1.0)

    def _ratio(self, rates: np.ndarray, racer: int, other: int) -> Interval:
        """How many times faster one is than another, over the rounds that hold both."""
        if self.bench.same_work:
            return ratio_of(1 / rates, other, racer)
        return ratio_of(rates, racer, other)

    def _log_ratio(self, rates: np.ndarray, racer: int, other: int) -> float:
        if racer == other:
            return 0.0
        value = self._ratio(rates, racer, other).value
        return math.log(value) if value > 0 else -math.inf

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

    def _open(self, choice: Choice, *, checked: bool = False) -> Entrant:
        """Make a choice ready, and note how long that takes. Raises: TrialError."""
        begin = self.clock()
        try:
            return self.bench.open(choice, checked=checked)
        finally:
            taken_s = self.clock() - begin
            # What is open already says nothing of how long another one would take.
            if taken_s > AT_ONCE * max(self._openings_s, default=0.0):
                self._openings_s.append(taken_s)

    def _has_time(self, until: float, choices: int = 1) -> bool:
        """Whether so many more choices would be ready, and would have raced, by then."""
        opening_s = sum(self._openings_s) / max(len(self._openings_s), 1)
        return self.clock() + choices * (1 + RACING_SHARE) * opening_s < until

    def _failed(self, trial: Trial, error: TrialError) -> None:
        trial.problem = str(error)
        self._proposals.tell(trial.choice, None)
