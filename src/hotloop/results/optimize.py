"""A search for the fastest settings, for Python and for the command."""

import dataclasses
import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from hotloop.built_in import BUILT_IN
from hotloop.errors import HotloopError, JournalError, TargetError
from hotloop.learn.algorithms import ALGORITHMS
from hotloop.loop.chosen import Chosen
from hotloop.loop.conduct import drive
from hotloop.loop.control import SharedControl, process_control
from hotloop.loop.figures import Interval, Unknown
from hotloop.loop.lever import Lever
from hotloop.loop.loop import Loop
from hotloop.loop.run import Run
from hotloop.loop.target import settings_of
from hotloop.optimize.advice import Advice
from hotloop.optimize.bench import Bench
from hotloop.optimize.detect import DEFAULT_S, Detection
from hotloop.optimize.libraries import Libraries
from hotloop.optimize.live_bench import LiveBench
from hotloop.optimize.outcome import (
    NOT_KNOWN,
    RATE,
    TIME_TO_TARGET,
    Gains,
    Outcome,
    advice_facts,
    facts_of,
)
from hotloop.optimize.process_bench import ProcessBench
from hotloop.optimize.proposals import expect_optuna
from hotloop.optimize.search import Search
from hotloop.optimize.settings import OptimizeSettings
from hotloop.optimize.space import Space, written
from hotloop.optimize.training_bench import TrainingBench
from hotloop.repeat.entries import KEPT, REVERTED, Metric, TryEntry
from hotloop.repeat.journal import Journal
from hotloop.repeat.overview import newest_experiment
from hotloop.repeat.sides import LOOP, Side
from hotloop.report.optimize import OPTIMIZE
from hotloop.results.noted import now
from hotloop.results.repeat import metrics_now
from hotloop.results.result import Ending, Result
from hotloop.results.session import patient_start, run_target
from hotloop.results.signature import takes_settings
from hotloop.results.simplify import measure_simplify
from hotloop.results.targets import target_name
from hotloop.simplify.settings import SimplifySettings

EXPERIMENT_SHARE = 0.15  # of the budget, for finding what holds the loop back
LEAST_EXPERIMENT_S, MOST_EXPERIMENT_S = 10.0, 30.0
ADVICE_SHARE, WARM_UP_S = 0.15, 2.0
FIRST_TRAINING_SHARE = 0.25  # of the budget, for a training with the settings at the start
SEARCH_SHARE = 0.7  # of the budget, at least, is for trying
MOST_OF_THE_TIME = 0.5  # a stage that would gain so much is what to speed up: every option counts
CHANGES_LEARNING = "it changes learning, which needs --allow-learning-changes"
MADE_WITH = "the loop is made with it: optimize the target that makes it"
NO_TARGET = "it changes learning, and this loop has no target whose time could be compared"

Observe = Callable[[str], None]


class OptimizeResult(Result[Outcome]):
    """The fastest settings that were found, and what was tried."""

    kind = OPTIMIZE

    @property
    def outcome(self) -> Outcome:
        """The answer."""
        return self.found

    @property
    def chosen(self) -> Chosen:
        """The best settings, as a file keeps them."""
        return Chosen(**self.run.facts["chosen"])


@takes_settings(OptimizeSettings)
def run_optimize(
    loop: Loop | str,
    *,
    arguments: Sequence[str] = (),
    start: Mapping[str, Any] | None = None,
    **settings: Any,
) -> OptimizeResult:
    """Try the levers of a loop, and find the fastest way to set them.

    loop: a `hotloop.Loop`, whose levers must have an `apply`, and which is set to the best of them
    and not closed; or a target as the command line takes it. arguments: of a script. start: the
    settings that a target is made with. The settings are the fields of `OptimizeSettings`.

    Raises: SettingError; TargetError for a loop without levers; TrialError if it does not run as
    it is; KeyboardInterrupt. If something was tried before, it is the attribute `result` of the
    exception.
    """
    chosen: OptimizeSettings = settings_of(OptimizeSettings, settings)
    before = Chosen(target_name(loop), {k: str(v) for k, v in (start or {}).items()})
    return measure_optimize(loop, chosen, before, arguments=arguments).completed()


def measure_optimize(
    target: Loop | str,
    settings: OptimizeSettings,
    start: Chosen,
    *,
    arguments: Sequence[str] = (),
    observe: Observe = lambda _what: None,
) -> Ending[OptimizeResult]:
    """Search; an error is part of what is returned.

    start: what the target has before the search.
    """
    begin = time.monotonic()
    trying = _Trying(target, settings, start, arguments, begin)
    error: BaseException | None = None
    try:
        trying.run(observe)
    except (Exception, KeyboardInterrupt) as raised:
        error = raised
    run = Run(
        verb="optimize",
        target=target_name(target),
        settings=dataclasses.asdict(settings),
        facts=trying.facts(time.monotonic() - begin),
        complete=error is None,
    )
    return Ending(OptimizeResult(run), error)


def tried_entry(result: OptimizeResult) -> TryEntry | None:
    """The entry of a search for the journal: the change that it made, predicted and achieved."""
    outcome, target = result.outcome, result.run.target
    if not outcome.best or not isinstance(outcome.saved, Interval):
        return None
    changed = written(outcome.best)
    return TryEntry(
        at=now(),
        hypothesis=f"optimize: {changed}",
        target=target,
        before=target,
        after=f"{target} {changed}",
        verdict="faster",
        decision=KEPT if outcome.saved.low > 0 else REVERTED,
        predicted=_metric(outcome.predicted),
        achieved=_metric(outcome.saved),
    )


class _Trying:
    """One search on one target, from what holds it back to the fastest settings."""

    def __init__(
        self,
        target: Loop | str,
        settings: OptimizeSettings,
        start: Chosen,
        arguments: Sequence[str],
        begin: float,
    ) -> None:
        self._target, self._settings, self._start = target, settings, start
        self._arguments, self._begin = arguments, begin
        self._search: Search | None = None
        self._advice: list[Advice] = []
        self._levers: list[Lever] = []
        self._left_out: dict[str, str] = {}
        self._gains: Gains = {}
        self._experiment = ""
        self._shares: dict[str, float] = {}  # of the time, where no gain is known
        self._bench: LiveBench | ProcessBench | None = None
        self._unit, self._judged_by, self._over = "", RATE, ""

    def run(self, observe: Observe) -> None:
        """Find what holds the loop back, then try its levers."""
        expect_optuna()
        if isinstance(self._target, Loop):
            self._live(self._target, observe)
        else:
            self._in_processes(self._target, observe)

    def facts(self, seconds: float) -> dict[str, Any]:
        """Everything that was found so far."""
        bench, search = self._bench, self._search
        known = {
            "unit": self._unit,
            "unchecked": "" if bench is None else bench.unchecked,
            "judged_by": self._judged_by,
            "experiment": self._experiment,
            "advice": advice_facts(self._advice),
            "seconds": seconds,
        }
        if search is None or bench is None:
            return {**known, "levers": [], "gains": {}, "trials": [], "best": {}, "gain": None} | {
                "over": self._over,
                "chosen": dataclasses.asdict(self._start),
            }
        facts = facts_of(search, self._levers, self._left_out, self._gains, **known)
        return facts | {"chosen": dataclasses.asdict(self._chosen(search, bench))}

    def _chosen(self, search: Search, bench: LiveBench | ProcessBench) -> Chosen:
        if isinstance(bench, LiveBench):
            return Chosen(self._start.target, {}, search.space.changes(search.best))
        side = bench.side_of(search.best)
        return Chosen(self._start.target, dict(side.settings), dict(side.levers))

    def _advise(self, target: Loop | str, observe: Observe) -> None:
        """Look for common faults in a loop's own code."""
        own = isinstance(target, str) and target.partition(":")[0] in BUILT_IN
        if own or not self._settings.advice:
            return
        observe("common faults in its code")
        watched_s = min(DEFAULT_S, ADVICE_SHARE * self._settings.budget)
        detection = Detection(seconds=watched_s, warm_up_s=WARM_UP_S)
        if isinstance(target, Loop):
            self._advice = drive(target, detection.run(target), SharedControl())
            return
        run_target(
            target,
            detection.run,
            arguments=self._arguments,
            chosen=self._start,
            start_limits=patient_start,
        )
        self._advice = detection.advice

    def _live(self, loop: Loop, observe: Observe) -> None:
        self._unit = loop.unit
        self._advise(loop, observe)
        with Libraries({}, own_process=False) as libraries:
            self._levers = libraries.levers(loop)
            made = [lever.name for lever in self._levers if lever.apply is None]
            self._left_out |= dict.fromkeys(made, MADE_WITH)
            if not self._sort_out(observe, loop):
                return
            space = Space([lever for lever in self._levers if lever.name not in self._left_out])
            self._bench = bench = LiveBench(loop, space, process_control())
            try:
                self._run_search(bench, space, observe)
            finally:
                bench.set_to(self._search.best if self._search is not None else space.start)

    def _in_processes(self, target: str, observe: Observe) -> None:
        side = Side(
            name="the loop",
            text=target,
            kind=LOOP,
            words=(target, *self._arguments),
            settings=self._start.settings,
            levers=self._start.levers,
        )
        observe("starting it")
        processes = ProcessBench(side, self._settings.seed)
        try:
            self._unit, self._levers = processes.unit, processes.levers
            by_time = self._settings.allow_learning_changes and _is_learner(target)
            self._advise(target, observe)
            if not self._sort_out(observe, target, learning=by_time):
                return
            processes.allow([each for each in self._levers if each.name not in self._left_out])
            self._bench = processes
            if not by_time:
                self._run_search(processes, processes.space, observe)
                return
            self._judged_by, processes.unchecked = TIME_TO_TARGET, TrainingBench.unchecked
            limit_s = FIRST_TRAINING_SHARE * self._settings.budget
            seed = self._settings.seed
            with closing(
                TrainingBench(processes.space, processes.side_of, limit_s, seed)
            ) as trainings:
                self._run_search(trainings, processes.space, observe)
        finally:
            processes.close()

    def _sort_out(self, observe: Observe, target: Loop | str, *, learning: bool = False) -> bool:
        """Leave out what may not be tried, and find what holds the loop back.

        learning: whether what changes learning may be tried. Returns whether anything is left.
        Raises: TargetError if nothing is, and there is no advice either.
        """
        for lever in self._levers:
            if lever.missing:
                self._left_out[lever.name] = f"it needs {lever.missing}"
            if lever.keeps_result is False and not learning and lever.name not in self._left_out:
                allowed = self._settings.allow_learning_changes
                self._left_out[lever.name] = NO_TARGET if allowed else CHANGES_LEARNING
        if len(self._left_out) == len(self._levers):
            self._over = _nothing(self._levers, self._left_out)
            if not self._advice:
                raise TargetError(f"{target_name(target)}: {self._over}")
            return False
        observe("what holds it back")
        self._gains, self._experiment = self._what_holds_back(target)
        return True

    def _run_search(self, bench: Bench, space: Space, observe: Observe) -> None:
        """Try what may be tried, until the budget is used."""
        # What changes learning alone is known by no experiment on stages, and may gain the most;
        # then what changes learning and the rate, and last what only changes the rate.
        order = sorted(
            space.levers.values(),
            key=lambda lever: (
                lever.keeps_result is False and not lever.stages,
                lever.keeps_result is False,
                self._promise(lever),
            ),
            reverse=True,
        )
        spent = time.monotonic() - self._begin
        self._search = Search(
            space,
            bench,
            max(self._settings.budget - spent, SEARCH_SHARE * self._settings.budget),
            time.monotonic,
            order=[lever.name for lever in order],
            whole={
                lever.name
                for lever in order
                if lever.keeps_result is not False and self._promise(lever) >= MOST_OF_THE_TIME
            },
            seed=self._settings.seed,
            worth=self._settings.worth,
        )
        self._search.run(observe)

    def _promise(self, lever: Lever) -> float:
        """The share of the time that it can save at most; what nobody knows comes before little."""
        known = [self._gains[stage].value for stage in lever.stages if stage in self._gains]
        known = known or [self._shares[each] for each in lever.stages if each in self._shares]
        return max(known) if known else self._settings.worth

    def _what_holds_back(self, target: Loop | str) -> tuple[Gains, str]:
        """The gain of each stage if it were free, and where that is known from."""
        name = target_name(target)
        try:
            noted = newest_experiment(name, Journal().contents(), metrics_now)
        except JournalError:
            noted = None
        if noted is not None and not noted.before_change and not self._start.settings:
            found = {each.name: _interval(each.gain) for each in noted.levers}
            return found, f"the experiment of {noted.at}"
        share = EXPERIMENT_SHARE * self._settings.budget
        budget = min(max(LEAST_EXPERIMENT_S, share), MOST_EXPERIMENT_S)
        if budget > (1 - SEARCH_SHARE) * self._settings.budget:
            return {}, (
                f"{NOT_KNOWN}an experiment takes {LEAST_EXPERIMENT_S:.0f} s and more of the "
                f"budget; `hotloop simplify {shlex.quote(name)}` makes one"
            )
        try:
            result = measure_simplify(
                target,
                SimplifySettings(budget=budget, seed=self._settings.seed),
                arguments=self._arguments,
                chosen=self._start,
            ).completed()
        except HotloopError as error:
            return {}, f"{NOT_KNOWN}{str(error).splitlines()[0]}"
        verdict = result.verdict
        if verdict.refused is not None:
            # What takes most of the time is still what to try first.
            self._shares = {row.name: row.share for row in verdict.rows if math.isfinite(row.share)}
            return {}, f"{NOT_KNOWN}{verdict.refused}"
        rows = {row.name: row.gain for row in verdict.rows if isinstance(row.gain, Interval)}
        return rows, f"an experiment of {verdict.seconds:.0f} s before the search"


def _nothing(levers: Sequence[Lever], left_out: Mapping[str, str]) -> str:
    """Why nothing can be tried, and what would apply."""
    if levers:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        return f"none of its levers may be tried ({reasons})"
    return (
        "it has no levers. Learners (ppo:CartPole-v1) and models (covid:astoria) have levers of "
        "their own, scripts those of torch, DataLoader and make_vec where they use them; a loop of "
        "yours declares them, as in `hotloop.Loop(..., levers=[hotloop.Lever('chunk', (1, 2, 4), "
        "now=1, apply=loop.set_chunk)])`"
    )


def _is_learner(target: str) -> bool:
    """Whether `hotloop train` takes a target."""
    return target.partition(":")[0] in ALGORITHMS


def _interval(gain: Metric) -> Interval:
    low = gain.value if gain.low is None else gain.low
    high = gain.value if gain.high is None else gain.high
    return Interval(gain.value, low, high)


def _metric(figure: Any) -> Metric | None:
    if isinstance(figure, Unknown):
        return None
    return Metric(figure.value, figure.low, figure.high)
