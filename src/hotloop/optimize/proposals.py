"""What to try next: each single change first, then what Optuna proposes from all that was measured.

Where Optuna repeats itself, the neighbours of the best choice follow, then any. Where all choices
are few they are all proposed, and Optuna is not asked.
"""

import random
import warnings
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hotloop.errors import HotloopError
from hotloop.loop.lever import Lever, Option
from hotloop.optimize.space import Choice, Space, keyed

if TYPE_CHECKING:
    import optuna

FEW = 24  # choices that are all tried
ASKED = 3  # times that Optuna may propose what was tried before
DRAWN = 100  # and a drawn choice
FAILED = -3.0  # the logarithm of a ratio of rates that Optuna is told of what failed


class Proposals:
    """The choices to try, in order; none twice.

    order: names of the levers that promise most, which are tried first. seed: of what is drawn.
    Raises: HotloopError where Optuna is needed and not installed.
    """

    def __init__(self, space: Space, order: Sequence[str] = (), seed: int = 0) -> None:
        self._space = space
        self._seen = {keyed(space.start)}
        self._random = random.Random(seed)
        self._best, self._best_log = space.start, 0.0
        self._under_way: dict[Choice, optuna.Trial] = {}  # what Optuna proposed and was not told of
        self._first = deque(space.neighbours(space.start, order))
        self._rest: deque[Choice] | None = None
        self._study: optuna.Study | None = None
        self._distributions: dict[str, Any] = {}
        if space.most <= FEW:
            singles = {keyed(choice) for choice in self._first}
            others = [each for each in space.all() if keyed(each) not in singles]
            self._rest = deque(self._random.sample(others, len(others)))
        elif len(space.levers) > 1:
            self._study = _study(seed)
            self._distributions = {
                name: _distribution(lever) for name, lever in space.levers.items()
            }
        self.tell(space.start, 0.0)

    def next(self) -> Choice | None:
        """The next choice; None if there is none left."""
        for queue in (self._first, self._rest):
            while queue:
                choice = queue.popleft()
                if self._is_new(choice):
                    return choice
        if self._study is None:
            return None
        asked = self._asked(self._study)
        if asked is not None:
            return asked
        for choice in self._space.neighbours(self._best):
            if self._is_new(choice):
                return choice
        return self._drawn()

    def tell(self, choice: Choice, log_ratio: float | None) -> None:
        """Learn how many times faster than the start it is, as a logarithm; None: it failed."""
        self._seen.add(keyed(choice))
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
        parameters = {n: _number(lever, options[n]) for n, lever in self._space.levers.items()}
        self._study.add_trial(
            optuna.trial.create_trial(
                params=parameters, distributions=self._distributions, value=value
            )
        )

    def _is_new(self, choice: Choice) -> bool:
        if keyed(choice) in self._seen:
            return False
        self._seen.add(keyed(choice))
        return True

    def _asked(self, study: "optuna.Study") -> Choice | None:
        """What Optuna proposes; None where it repeats itself."""
        import optuna

        for _ in range(ASKED):
            trial = study.ask(self._distributions)
            choice = self._chosen(trial.params)
            if self._is_new(choice):
                self._under_way[keyed(choice)] = trial
                return choice
            study.tell(trial, state=optuna.trial.TrialState.FAIL)  # it is known already
        return None

    def _drawn(self) -> Choice | None:
        """Any choice that is new."""
        for _ in range(DRAWN):
            choice = self._space.choice(
                {n: self._random.choice(each.options) for n, each in self._space.levers.items()}
            )
            if self._is_new(choice):
                return choice
        return None

    def _chosen(self, parameters: dict[str, int]) -> Choice:
        return self._space.choice(
            {n: _in_order(each)[parameters[n]] for n, each in self._space.levers.items()}
        )


def _study(seed: int) -> "optuna.Study":
    try:
        import optuna
    except ModuleNotFoundError:
        raise HotloopError(
            "searching many choices needs optuna: pip install 'hotloop[optimize]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        # Proposing all levers together, as they interact, is an experiment to Optuna.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=8, multivariate=True)
    return optuna.create_study(direction="maximize", sampler=sampler)


def _in_order(lever: Lever) -> list[Option]:
    """Its options, numbers in rising order: what lies between two good ones may be good."""
    options = list(lever.options)
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in options):
        options.sort(key=float)  # type: ignore[arg-type]
    return options


def _number(lever: Lever, option: Option) -> int:
    matches = [k for k, each in enumerate(_in_order(lever)) if type(each) is type(option)]
    return next(k for k in matches if _in_order(lever)[k] == option)


def _distribution(lever: Lever) -> Any:
    import optuna

    count = len(lever.options)
    ordered = all(type(each) in (int, float) for each in lever.options)
    if ordered and count > 1:
        return optuna.distributions.IntDistribution(0, count - 1)
    return optuna.distributions.CategoricalDistribution(list(range(count)))
