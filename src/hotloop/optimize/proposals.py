"""What to try next: single changes, and what all that was measured so far speaks for.

The two take turns: one change of each lever, then a second one of each, until none is left and
Optuna proposes; and what the response of the levers expects to be faster than the best so far.
Where all choices are few they are all proposed, and Optuna is not asked.
"""

import importlib.util
import random
import warnings
from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from hotloop.errors import HotloopError
from hotloop.loop.lever import Lever, same_option
from hotloop.optimize.response import Response, in_order, is_numeric, place
from hotloop.optimize.space import Choice, Space, keyed

if TYPE_CHECKING:
    import optuna

FEW = 24  # choices that are all tried
ASKED = 3  # times that Optuna may propose what was tried before
DRAWN = 100  # and a drawn choice
FURTHER = 8  # neighbours whose own ones are looked at too
LISTED = 1000  # combinations of which all are known; of more some are drawn
BOLD = (0.0, 1.0, 0.5)  # standard deviations that a choice may be better than expected, in turns
FAILED = -3.0  # the logarithm of a ratio of rates that Optuna is told of what failed


class Proposals:
    """The choices to try, in order; none twice.

    order: names of the levers that promise most, which are tried first. whole: those of which all
    options are. seed: of what is drawn.
    response: what turns have shown of the levers so far.
    Raises: HotloopError where Optuna is needed and not installed.
    """

    def __init__(
        self,
        space: Space,
        order: Sequence[str] = (),
        seed: int = 0,
        response: Response | None = None,
        whole: Collection[str] = (),
    ) -> None:
        self._space = space
        self._response = Response(space) if response is None else response
        self._seen = {keyed(space.start)}
        self._random = random.Random(seed)
        self._best, self._best_log = space.start, 0.0
        self._under_way: dict[Choice, optuna.Trial] = {}  # what Optuna proposed and was not told of
        self._singles = deque(space.neighbours(space.start, order, whole))
        self._asked_for = 0
        self._failed: set[tuple[str, str]] = set()  # options that failed alone
        self._all = [*space.all()] if space.most <= LISTED else None
        self._study: optuna.Study | None = None
        self._distributions: dict[str, Any] = {}
        if space.most > FEW and len(space.levers) > 1:
            self._study = _study(seed)
            self._distributions = {
                name: _distribution(lever) for name, lever in space.levers.items()
            }
        self.tell(space.start, 0.0)

    def next(self) -> Choice | None:
        """The next choice; None if there is none left."""
        self._asked_for += 1
        ways = [self._single, self._asked, self._promising]
        if not self._asked_for % 2:
            ways = [self._faster, self._single, self._promising, self._asked]
        choice = next((found for way in ways if (found := way()) is not None), None)
        if choice is None and self._failed:
            self._failed.clear()  # nothing else is left
            choice = self._promising()
        if choice is not None:
            self._seen.add(keyed(choice))
        return choice

    def beside(self, choice: Choice, free: Collection[str]) -> list[Choice]:
        """What was not tried yet of a choice with one of these levers changed, once each."""
        options, found = self._space.options(choice), []
        for name in free:
            for option in self._space.levers[name].options:
                other = self._space.choice(options | {name: option})
                if self._is_new(other):
                    self._seen.add(keyed(other))
                    found.append(other)
                    break
        return found

    def tell(self, choice: Choice, log_ratio: float | None) -> None:
        """Learn how many times faster than the start it is, as a logarithm; None: it failed."""
        self._seen.add(keyed(choice))
        changed = self._changed(choice)
        if log_ratio is None and len(changed) == 1:
            self._failed |= changed
        if log_ratio is None and keyed(choice) == keyed(self._best):
            self._best, self._best_log = self._space.start, 0.0
        if log_ratio is not None and log_ratio > self._best_log:
            self._best, self._best_log = choice, log_ratio
        if self._study is None:
            return
        value = FAILED if log_ratio is None else log_ratio
        asked = self._under_way.pop(keyed(choice), None)
        if asked is not None:
            self._study.tell(asked, value)
            return
        import optuna

        options = self._space.options(choice)
        parameters = {
            n: place(lever.options, options[n]) for n, lever in self._space.levers.items()
        }
        self._study.add_trial(
            optuna.trial.create_trial(
                params=parameters, distributions=self._distributions, value=value
            )
        )

    def _is_new(self, choice: Choice) -> bool:
        return keyed(choice) not in self._seen and not self._failed & self._changed(choice)

    def _changed(self, choice: Choice) -> set[tuple[str, str]]:
        """The options that a choice has in place of those of the start."""
        options = self._space.options(choice)
        return {
            (name, repr(options[name]))
            for name, lever in self._space.levers.items()
            if not same_option(options[name], lever.now)
        }

    def _single(self) -> Choice | None:
        """The next change of one lever."""
        while self._singles:
            choice = self._singles.popleft()
            if self._is_new(choice):
                return choice
        return None

    def _promising(self) -> Choice | None:
        """What the response of the levers promises most, at times with what it does not know."""
        choices = [each for each in self._candidates() if self._is_new(each)]
        if not choices:
            return None
        means, errors = self._response.of(choices)
        return choices[int((means + BOLD[self._asked_for // 2 % len(BOLD)] * errors).argmax())]

    def _faster(self) -> Choice | None:
        """What is expected to be faster than the best so far, while single changes are left."""
        choices = [each for each in self._candidates() if self._is_new(each)]
        if not choices or not self._singles:
            return None
        means, _ = self._response.of([self._best, *choices])
        best = int(means.argmax())
        return choices[best - 1] if best else None

    def _candidates(self) -> Sequence[Choice]:
        """All choices, or where they are many, neighbours of the best and some that are drawn."""
        if self._all is not None:
            return self._all
        levers = self._space.levers
        drawn = [
            self._space.choice({n: self._random.choice(v.options) for n, v in levers.items()})
            for _ in range(DRAWN)
        ]
        near = [*self._space.neighbours(self._best)]
        some = self._random.sample(near, min(len(near), FURTHER))
        further = [choice for each in some for choice in self._space.neighbours(each)]
        return [*near, *further, *drawn]

    def _asked(self) -> Choice | None:
        """What Optuna proposes; None where it repeats itself."""
        if self._study is None:
            return None
        import optuna

        for _ in range(ASKED):
            trial = self._study.ask(self._distributions)
            choice = self._chosen(trial.params)
            if self._is_new(choice):
                self._under_way[keyed(choice)] = trial
                return choice
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)  # it is known already
        return None

    def _chosen(self, parameters: dict[str, int]) -> Choice:
        return self._space.choice(
            {n: in_order(each.options)[parameters[n]] for n, each in self._space.levers.items()}
        )


def expect_optuna() -> None:
    """Say what is missing before the work begins. Raises: HotloopError without Optuna."""
    if importlib.util.find_spec("optuna") is None:
        raise HotloopError("optimize needs optuna: pip install 'hotloop[optimize]'")


def _study(seed: int) -> "optuna.Study":
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        # Proposing all levers together, as they interact, is an experiment to Optuna.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=8, multivariate=True)
    return optuna.create_study(direction="maximize", sampler=sampler)


def _distribution(lever: Lever) -> Any:
    import optuna

    count = len(lever.options)
    if is_numeric(lever.options) and count > 1:
        return optuna.distributions.IntDistribution(0, count - 1)
    return optuna.distributions.CategoricalDistribution(list(range(count)))
