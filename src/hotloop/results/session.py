"""The run of a target under a measurement: what benchmark and simplify share."""

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from hotloop.benchmark.meters import Meters
from hotloop.errors import LoopError, SettingError
from hotloop.loop.alone import measuring_alone
from hotloop.loop.arm import OFF, REAL, Arm
from hotloop.loop.chosen import Chosen
from hotloop.loop.conduct import Conductor, Measurement, Observer, drive
from hotloop.loop.control import SharedControl
from hotloop.loop.event import MAX_STAGES
from hotloop.loop.host import usable_cores
from hotloop.loop.loop import Loop
from hotloop.loop.ranks.lead import LeadRank
from hotloop.loop.scripts.marks import Marks
from hotloop.loop.scripts.place import ScriptPlace
from hotloop.loop.scripts.session import Session, current_session, drive_script
from hotloop.loop.scripts.start import StartLimits
from hotloop.optimize.libraries import Libraries
from hotloop.recognise.found_iterations import FoundIterations
from hotloop.recognise.places import PLACES
from hotloop.recognise.rank_iterations import LeadIterations
from hotloop.recognise.rank_log import RankLog
from hotloop.recognise.recognition import Recognition
from hotloop.recognise.settings import RecogniseSettings
from hotloop.redirect.redirect import Redirect
from hotloop.repeat.afterwards import removed_if_killed
from hotloop.results.mentions import Mentions, mentions
from hotloop.results.targets import resolve, search_path

Announce = Callable[[Sequence[str]], None]
Measure = Callable[[Loop], Measurement[Any]]
# Seconds that a script with stages may take before it makes or calls the first one.
SLOW_START_S = 300.0
# Seconds that recognising the parts and the iterations of a script may take at least.
LEAST_RECOGNISED_S = 60.0
# Seconds, apart from imports, after which it must have imported a library that is known.
NO_LIBRARY_S = 30.0


@dataclass(frozen=True)
class AsRank:
    """How rank 0 of several measures: together with the others.

    folder: where what the ranks write goes, removed by whoever started them. log: makes the log of
    this rank. in_step: whether the measurement replaces calls, which all ranks must do together.
    """

    lead: LeadRank
    folder: Path
    log: Callable[[Recognition], RankLog]
    in_step: bool


@dataclass(frozen=True)
class AsItStands:
    """How a script is run that nobody prepared: its parts are recognised, its files thrown away."""

    settings: RecogniseSettings
    announce: Announce
    as_rank: AsRank | None = None

    @property
    def is_asked_for(self) -> bool:
        """Whether the user said how, so that it must be such a script."""
        return self.settings != type(self.settings)()


@dataclass
class Outcome:
    """How the run of a target ended, with the facts of the whole process."""

    facts: dict[str, Any] = field(default_factory=dict)
    meters: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    error: BaseException | None = None  # what cut the run short: an error or an interrupt
    loop: Loop | None = None


def run_target(
    target: Loop | str,
    measure: Measure,
    *,
    arguments: Sequence[str] = (),
    chosen: Chosen | None = None,
    libraries: Libraries | None = None,
    recognise: RecogniseSettings | None = None,
    announce: Announce | None = None,
    observer: Observer | None = None,
    start_limits: Callable[[bool], StartLimits],
    whole_process: bool = False,
    as_rank: AsRank | None = None,
) -> Outcome:
    """Resolve and run a target; an error is part of the outcome, so that what was measured stays.

    target: a loop, which stays open for its owner, or what the command line takes, which is
    closed. arguments: of a script. chosen: the settings that a target is made with, and options of
    levers, which are set before the first iteration. libraries: those that offer the levers; made
    here if levers are set and it is None. recognise: how the parts of a script are found that has
    no stages of its own. announce: called with what is said before such a script starts.
    start_limits: with a script without iterations, by whether it makes stages of its own.
    whole_process: count the time from the start of this process, not from this call.
    as_rank: of a script that this process runs as rank 0 of several.
    Raises: LoopError if this process is measuring already, or is a worker of a measurement.
    """
    chosen = chosen or Chosen()
    with ExitStack() as stack:
        if chosen.levers and libraries is None:
            libraries = stack.enter_context(Libraries(chosen.levers))
        running = stack.enter_context(_alone(measure, libraries, observer, whole_process))
        with Meters() as meters:
            running.outcome.facts |= {
                "gpu_problem": meters.gpu.problem,
                "gpu_activity_problem": meters.gpu.activity_problem,
                "gpu_name": meters.gpu.name,
                "whole_process": whole_process,
            }
            if whole_process:
                # A collector's pause grows with the objects alive: ours are not the loop's.
                gc.collect()
                gc.freeze()
            running.target(
                target,
                arguments,
                chosen.settings,
                AsItStands(recognise or RecogniseSettings(), announce or _say_nothing, as_rank),
                start_limits,
            )
            meters.read()
        running.outcome.meters = meters.samples()
        return running.outcome


@contextmanager
def _alone(
    measure: Measure,
    libraries: Libraries | None,
    observer: Observer | None,
    whole_process: bool,
) -> Iterator["_Running"]:
    """One measurement of this process, and no other beside it. Raises: LoopError."""
    with measuring_alone() as control:
        control.in_own_process = whole_process
        begin = _process_start_ns() if whole_process else time.perf_counter_ns()
        yield _Running(control, measure, libraries, observer, begin)


def patient_start(_has_stages: bool) -> StartLimits:
    """The limits of a script that is known to iterate sooner or later."""
    return StartLimits(
        first_stage=SLOW_START_S, first_call=SLOW_START_S, first_iteration=SLOW_START_S
    )


def recognised_start(seconds: float) -> StartLimits:
    """The limits of a script whose parts are recognised, to be measured for so long."""
    watched = max(seconds, LEAST_RECOGNISED_S)
    return StartLimits(first_stage=NO_LIBRARY_S, first_call=watched, first_iteration=watched)


def found_iteration_s() -> float | None:
    """How long an iteration of the script takes whose iterations were found, or None."""
    session = current_session()
    return None if session is None or session.marks is None else session.marks.duration_s


def found_iterations() -> FoundIterations | None:
    """What has found the iterations of the script that is measured; None where it marks them."""
    session = current_session()
    if session is None or session.is_marked or not isinstance(session.marks, FoundIterations):
        return None
    return session.marks


def not_put_back() -> list[str]:
    """Say what the measured script changes and does not declare, or cannot be put back."""
    session = current_session()
    if session is None:
        return []
    marks = session.marks
    if isinstance(marks, FoundIterations):
        return [f"goes on from experimental steps: {name}" for name in marks.not_put_back()]
    undeclared = [] if marks is not None else session.undeclared()
    return [
        f"not declared as state, so it will go on from experimental steps: {name}"
        for name in undeclared
    ]


_NO_INPUT = (
    "where the script reads its input, there is none: run it on a terminal, or give it what it "
    "reads, as with < FILE"
)
_MARK = "wrap its loop as `for x in hotloop.iterations(…)`"


class _Running:
    """One target while it runs: it notes when the first iteration began and ended."""

    def __init__(
        self,
        control: SharedControl,
        measure: Measure,
        libraries: Libraries | None,
        observer: Observer | None,
        begin_ns: int,
    ) -> None:
        self.outcome = Outcome({"usable_cores": usable_cores()})
        self._control = control
        self._measure = measure
        self._libraries = libraries
        self._observer = observer
        self._begin_ns = begin_ns

    def target(
        self,
        target: Loop | str,
        arguments: Sequence[str],
        settings: Mapping[str, str],
        as_it_stands: "AsItStands",
        start_limits: Callable[[bool], StartLimits],
    ) -> None:
        """Run it; what it raises becomes the outcome's error."""
        outcome = self.outcome
        # Counts of an earlier measurement of this process are not part of this one.
        self._control.drain_events()
        self._control.calls = [0] * MAX_STAGES
        # From the very first call, so that what is in flight can be counted.
        self._control.set(Arm("starting", rest=REAL))
        made: Loop | ScriptPlace | None = None
        try:
            made = resolve(target, settings)
            if as_it_stands.is_asked_for and not isinstance(made, ScriptPlace):
                raise SettingError(
                    f"{target}: --iteration, --stage and --may-go-on are for scripts; this target "
                    "says itself what its stages, iterations and state are"
                )
            if isinstance(made, ScriptPlace):
                self._script(made, arguments, as_it_stands, start_limits)
            else:
                self._loop(made, close=made is not target)
        except SystemExit as stop:
            outcome.error = LoopError(
                f"{target} exited with {stop.code!r} in the middle of measuring"
            )
        except BaseException as raised:
            if isinstance(raised, EOFError) and isinstance(made, ScriptPlace):
                raised.add_note(_NO_INPUT)
            outcome.error = raised
        finally:
            self._control.set(Arm("off", rest=OFF))
        outcome.facts["seconds"] = self._since_begin(time.perf_counter_ns())

    def _script(
        self,
        script: ScriptPlace,
        arguments: Sequence[str],
        as_it_stands: "AsItStands",
        start_limits: Callable[[bool], StartLimits],
    ) -> None:
        facts = self.outcome.facts
        used = mentions(script.path, search_path())
        _expect_nothing_to_act_twice(script, used, as_it_stands)
        limits = start_limits(used.stages or used.iterations)
        with ExitStack() as stack:
            marks: Marks | None = None
            own, may_go_on = as_it_stands.settings.stage, as_it_stands.settings.may_go_on
            recognition = Recognition(self._control, own, may_go_on=may_go_on)
            if used.stages:  # it knows best what its parts are
                recognition.leave_out(PLACES.values())
            stack.enter_context(recognition)
            if not used.stages:
                found = FoundIterations(recognition, as_it_stands.settings.iteration)
                marks = self._marks(found, recognition, as_it_stands.as_rank)
                redirect = stack.enter_context(_thrown_away(as_it_stands.as_rank))
                facts["redirected"], recognition.folder = redirect.notices, redirect.folder
                as_it_stands.announce(facts["redirected"])
            session = Session(
                script,
                self._control,
                partial(self._measured_script, recognition),
                marks=marks,
                decorators=recognition.main_stages(),
                observer=self._observed,
            )
            drive_script(session, arguments, limits)
        facts["iterations_marked_by"] = session.mark
        if session.conductor is None:
            facts["no_iterations"] = (
                f"the script marks no iterations: {_MARK}"
                if marks is None
                else f"{marks.why_not()}; or {_MARK}"
            )
            facts["stopped"] = session.stopped
        elif session.cut_short:
            facts["script_ended"] = True

    def _measured_script(self, recognition: Recognition, loop: Loop) -> Measurement[Any]:
        session = current_session()
        if session is not None and session.is_marked:
            recognition.drop_unused()
        return self._measured(loop)

    def _marks(
        self, found: FoundIterations, recognition: Recognition, as_rank: AsRank | None
    ) -> Marks:
        """What finds the iterations: on one rank of several, together with the others."""
        if as_rank is None:
            return found
        lead, measure = as_rank.lead, self._measure
        if as_rank.in_step:
            self._measure = lambda loop: lead.in_step(measure(loop), found.duration_s or 0.0)
        log = as_rank.log(recognition)
        return LeadIterations(found, lead, log, in_step=as_rank.in_step)

    def _loop(self, loop: Loop, *, close: bool) -> None:
        try:
            drive(loop, self._measured(loop), self._control, self._observed)
        finally:
            if close and loop.close is not None:
                loop.close()

    def _measured(self, loop: Loop) -> Measurement[Any]:
        self.outcome.loop = loop
        if self._libraries is not None:
            self._libraries.set(loop)
        self.outcome.facts["start_up_s"] = self._since_begin(self._control.clock.now_ns())
        return self._measure(loop)

    def _observed(self, conductor: Conductor) -> None:
        facts = self.outcome.facts
        if "first_batch_s" not in facts and conductor.first_iteration_end_ns is not None:
            facts["first_batch_s"] = self._since_begin(conductor.first_iteration_end_ns)
        if self._observer is not None:
            self._observer(conductor)

    def _since_begin(self, now_ns: int) -> float:
        return (now_ns - self._begin_ns) * 1e-9


def _expect_nothing_to_act_twice(
    script: ScriptPlace, used: Mentions, as_it_stands: AsItStands
) -> None:
    """Raises: SettingError for a choice of iterations or state that the script makes itself."""
    settings = as_it_stands.settings
    if used.stages and (settings.iteration is not None or settings.may_go_on):
        raise SettingError(
            f"{script.name}: --iteration and --may-go-on are for scripts without stages of their "
            "own; this one uses those of hotloop"
        )
    if used.iterations and settings.iteration is not None:
        raise SettingError(
            f"{script.name}: --iteration is for scripts that mark no iterations; this one uses "
            "hotloop.iterations"
        )


@contextmanager
def _thrown_away(as_rank: AsRank | None) -> Iterator[Redirect]:
    """Let a script change nothing that its user has."""
    if as_rank is not None:
        with Redirect(as_rank.folder) as redirect:
            yield redirect
        return
    folder = Path(tempfile.mkdtemp(prefix="hotloop-run-"))
    try:
        with removed_if_killed(folder), Redirect(folder) as redirect:
            yield redirect
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _say_nothing(_notices: Sequence[str]) -> None:
    pass


def _process_start_ns() -> int:
    """When this process began, on the monotonic clock: its start-up is the user's wait too."""
    age_s = time.time() - psutil.Process(os.getpid()).create_time()
    return time.perf_counter_ns() - round(max(age_s, 0.0) * 1e9)
