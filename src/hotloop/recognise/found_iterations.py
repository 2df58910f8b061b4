"""The iterations of a script that marks none, found from the order of its recognised calls."""

import threading
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from hotloop.errors import SettingError, nearest
from hotloop.loop.code import name_of_class
from hotloop.loop.figures import Unknown
from hotloop.loop.stage_types import StageView
from hotloop.loop.state import unsupported_parts
from hotloop.loop.values import torch_if_loaded
from hotloop.recognise.calls import COUNTED_SOURCES, SIDE_WORK, TOO_MANY_OF_A_SOURCE
from hotloop.recognise.period import Call, Iteration, Matcher, find_iteration
from hotloop.recognise.phases import InnerPhase, inner_phases
from hotloop.recognise.places import (
    ACT,
    DATA,
    ENV_STEP,
    FORWARD,
    OPTIMISER_STEP,
    TRANSFORMED,
    UPDATES,
    WAIT,
)
from hotloop.recognise.recognition import ENV_STEPS, SAMPLES, Recognition

# So many iterations are seen, or so few where each takes long, before they are believed.
ENOUGH, FEW, LONG_S = 4, 3, 5.0
# The confidence that ends the search after so many seconds of a training: what is drawn at random,
# such as the exploring steps of a policy, makes iterations unlike each other for ever.
SURE = ((0.0, 0.8), (5.0, 0.65), (15.0, 0.5), (30.0, 0.35))
# Iterations longer than this are measured phase by phase, where the periods of their phases are so
# much shorter, and the phases together have so much of the time.
LONG_ITERATION_S, SHORT, COVERED = 0.1, 0.125, 0.7
# An optimiser was made, but it is not used: so long a first rollout may last.
UNUSED_OPTIMISER_S = 30.0
# Where stages with more than this share of the time are not in what repeats now, it must have
# repeated for so many times as long as what was before.
LEFT_OUT, PATIENCE = 0.05, 6
# An iteration with so many times the calls of the others also holds something else, such as an
# evaluation, and is left out; the others' number follows what they become, each with this weight.
TOO_MANY, WEIGHT = 10, 0.1
FIRST_LOOK_NS = 500_000_000
# From one look to the next the time grows by this, as what is looked through does.
NEXT_LOOK = 1.3
MOST_CALLS = 200_000
# The stages whose calls count something, and what; the one that says most about a training first.
UNITS = {ENV_STEP: ENV_STEPS, DATA: SAMPLES}


class FoundIterations:
    """Watches the calls of recognised stages until their period is known, then says where it ends.

    stage: the user's choice of what begins an iteration; None: what repeats.
    """

    def __init__(
        self,
        recognition: Recognition,
        stage: str | None = None,
        *,
        expects_updates: bool = False,
    ) -> None:
        """expects_updates: whether an optimiser is known to be there, though none was seen."""
        self.iteration: Iteration | Unknown = Unknown("nothing was called yet")
        self.unit = "iterations"
        self._recognition = recognition
        self._stage = stage
        self._expects_updates = expects_updates
        self._calls: list[Call] = []
        self._steps: deque[tuple[int, int]] = deque(maxlen=MOST_CALLS)  # when, whose turn
        self._matcher: Matcher | None = None
        self._begin_ns = 0
        self._next_look_ns = 0
        self._counted = 0.0
        self._thread = threading.get_ident()
        self._elsewhere = 0  # calls of other threads
        self._within_until_ns = 0  # the end of the last call of a function of the user's
        self._usual_calls = 0.0  # in an iteration
        self._begun_calls = 0  # in the iteration that has begun
        self._begun_of: Counter[str] = Counter()  # of each source
        # Calls of sources that all iterations have equally many of.
        self._steady: dict[str, int] = {}
        self._had_too_many_of: set[str] = set()  # the iteration before the one that has begun
        self._phase: Iteration | None = None
        self.away = False  # outside of the phase that was entered

    @property
    def found(self) -> Iteration | None:
        """The iteration, once it is believed."""
        return self.iteration if self._matcher and isinstance(self.iteration, Iteration) else None

    @property
    def duration_s(self) -> float | None:
        """How long an iteration takes, once they are found."""
        return self.iteration.duration_s if isinstance(self.iteration, Iteration) else None

    def look(self, called: StageView, now_ns: int) -> str | None:
        """Look for the period; return what marks an iteration if one begins with this call."""
        if self._recognition.is_within_own(called.name):
            return None
        turn = self.turn_of(called)
        if self._matcher is not None:
            return str(self.iteration) if self._matcher.starts(called.name, turn) else None
        if turn:
            self._steps.append((now_ns, turn))
        if not self._begin_ns:
            self._begin_ns, self._next_look_ns = now_ns, now_ns + FIRST_LOOK_NS
        if now_ns < self._next_look_ns:
            return None
        self._take_calls()
        found = self.iteration = self._find()
        clock = self._recognition.control.clock
        self._next_look_ns = self._begin_ns + round((clock.now_ns() - self._begin_ns) * NEXT_LOOK)
        watched_s = (now_ns - self._begin_ns) * 1e-9
        if isinstance(found, Iteration) and self._is_believed(found, watched_s):
            self._matcher = Matcher(found)
            self._recognition.control.marking = _seen_by(self._matcher)
            self._usual_calls = sum(found.calls.values())
            self._steady = dict(found.steady)
            self._choose_unit(found)
            # The step of an env within ten others is a part of theirs: it need not pay for a place.
            self._recognition.drop_unused()
        return None

    def _is_believed(self, found: Iteration, watched_s: float) -> bool:
        """Whether what repeats now is the loop, and not the first of its phases.

        A rollout repeats its steps until the first update begins, and an update its minibatches.
        """
        if self._stage is not None:
            return found.count >= FEW
        update = self._update()
        trains = update in found.calls
        updates = self._expects_updates or self._recognition.objects.get(OPTIMISER_STEP)
        # Where something is learned, what repeats without it is a phase at most, however long.
        known_s = watched_s if trains or not updates else 0.0
        if found.confidence < min(sure for after_s, sure in SURE if known_s >= after_s):
            return False
        # Waits that iterations have not are for processes that were started before them.
        calls = [c for c in self._calls if c.name != WAIT or WAIT in found.calls]
        steady_s = found.count * found.duration_s
        # What comes between them now and then, as an evaluation, says nothing against them.
        before_s = max(found.begin_ns - calls[0].start_ns, 0) * 1e-9
        if updates and not trains:
            return watched_s >= UNUSED_OPTIMISER_S
        time_ns: dict[str, int] = {}
        for call in calls:
            time_ns[call.name] = time_ns.get(call.name, 0) + call.end_ns - call.start_ns
        left_out = sum(ns for name, ns in time_ns.items() if not found.calls.get(name))
        is_whole = left_out <= LEFT_OUT * sum(time_ns.values())
        enough = FEW if found.duration_s >= LONG_S else ENOUGH
        return found.count >= enough and steady_s >= (1 if is_whole else PATIENCE) * before_s

    def begins(self, called: StageView) -> bool:
        """Whether an iteration begins with this call; to be asked for every call, in order.

        But for those within functions of the user's, of which a watch has none.
        """
        assert self._matcher is not None
        return self._matcher.starts(called.name, self.turn_of(called))

    def starts(self, called: StageView) -> bool:
        """The same, and follow what is usual: one of the phase, if one was entered."""
        name = called.name
        if self._recognition.is_within_own(name):
            return False  # while that is replaced, it is not called
        starts = self.begins(called)
        if self._phase is not None:
            # What the phase has no calls of is not a part of it, apart from logs and the like.
            if starts:
                self.away = False
            elif name not in self._phase.calls and name not in SIDE_WORK:
                self.away = True
        else:
            self._leave_out_the_unusual(name, starts)
        return starts

    def _leave_out_the_unusual(self, name: str, starts: bool) -> None:
        """Be away from when an iteration has far too many calls, until the next one starts."""
        if self._recognition.control.marks_only:
            self._begun_calls = 0
            self._begun_of.clear()
            return
        most = TOO_MANY * self._usual_calls
        if starts:
            self._usual_calls += WEIGHT * (min(self._begun_calls, most) - self._usual_calls)
            self._follow_sources()
            self._begun_calls, self.away = 0, False
        self._begun_calls += 1
        if self._begun_calls > most:
            self.away = True
        if name in self._steady:
            self._begun_of[name] += 1
            if self._has_too_many_of(name):
                self.away = True

    def _has_too_many_of(self, source: str) -> bool:
        return self._begun_of[source] > TOO_MANY_OF_A_SOURCE * self._steady[source]

    def _follow_sources(self) -> None:
        """Note that an iteration is over: two in turn that have too many calls are no exception."""
        many = {name for name in self._steady if self._has_too_many_of(name)}
        for name in many & self._had_too_many_of:
            self._steady[name] = self._begun_of[name]
        self._had_too_many_of = many
        self._begun_of.clear()

    def turn_of(self, called: StageView) -> int:
        """Which optimiser steps, by its number, if a call is its step; else 0."""
        return self._recognition.turn if called.name == OPTIMISER_STEP else 0

    def inner_phases(self) -> list[InnerPhase]:
        """The phases of an iteration, if it is long and they are nearly all of it; else none."""
        found = self.iteration
        if not isinstance(found, Iteration) or found.duration_s < LONG_ITERATION_S:
            return []
        phases = inner_phases(self._calls, found)
        held = {name for phase in phases for name in phase.period.calls}
        if not set(COUNTED_SOURCES) & set(found.calls) <= held:
            return []  # what is counted would be in none of them
        short = all(phase.period.duration_s <= SHORT * found.duration_s for phase in phases)
        covered = sum(phase.share_of_time for phase in phases)
        return phases if short and covered >= COVERED else []

    def enter(self, phase: InnerPhase) -> None:
        """Take the period of a phase as an iteration from now on, and leave out all else."""
        self._phase = phase.period
        self._matcher = Matcher(phase.period)
        self._recognition.control.marking = None  # calls of other stages say when it is left
        self.away = True

    def units(self) -> float:
        """The units that were counted since the last time; 1 where nothing is counted."""
        if self.unit == "iterations":
            return 1.0
        total = self._recognition.units.get(self.unit, 0.0)
        since, self._counted = total - self._counted, total
        return 1.0 if self._recognition.control.marks_only else since

    def why_not(self) -> str:
        """Why no iterations were found so far."""
        if isinstance(self.iteration, Iteration):
            seen = f"{self.iteration} was seen {self.iteration.count} times"
            return (
                f"no iterations were found for sure: {seen}, and alike by "
                f"{self.iteration.confidence:.0%}; say what begins one with --iteration"
            )
        if threading.get_ident() == self._thread:  # also those since the last look
            self._take_calls()
        found = self._find()
        if isinstance(found, Unknown) and self._recognition.kept.get(TRANSFORMED):
            return (
                "no iterations were found: the script works in torch.func (functional_call, grad, "
                "vmap), whose calls are neither of a module nor a backward pass; name the function "
                "that does one step of its training, as --stage __main__:train_step"
            )
        if not self._calls and (elsewhere := self._calls_elsewhere()):
            return (
                f"no iterations were found: all of the {elsewhere} calls that were seen of stages "
                "came from another thread than the script's own, and only that one is measured; "
                "run the training on it"
            )
        if isinstance(found, Unknown):
            return (
                f"no iterations were found by the calls of the libraries that it uses: {found.why}"
            )
        return f"{found} was seen {found.count} times, and then it ended: let it run for longer"

    def _calls_elsewhere(self) -> int:
        """The calls of other threads, also those since the last look."""
        control = self._recognition.control
        new = list(control.events)  # other threads go on appending
        return self._elsewhere + sum(event[3] != control.main_thread for event in new)

    def state(self) -> Sequence[object]:
        """What can be put back of the objects that the calls work on.

        A stage that works on what cannot be put back is not replaced, unless that may go on; why is
        noted there. Raises: SettingError if a stage that may is none of the script's.
        """
        self._expect_known(self._recognition.may_go_on)
        kept: dict[int, object] = {}
        for name, objects in self._recognition.objects.items():
            for each in objects:
                tensors = _tensors_of(each)
                if tensors is not None:
                    kept |= {id(tensor): tensor for tensor in tensors}
                    continue
                faults = unsupported_parts([each])
                if not faults:
                    kept[id(each)] = each
                    continue
                what = name_of_class(type(each))
                stage = self._recognition.stages.get(name)  # a scheduler is of none
                if stage is None or name in self._recognition.may_go_on:
                    self._recognition.not_put_back[what] = None
                else:
                    kind, reason = type(each).__qualname__, faults[0].reason
                    stage.cannot_replace = (
                        f"its state cannot be put back: {kind}, {reason}; see --may-go-on"
                    )
        return list(kept.values())

    def _expect_known(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self._recognition.stages:
                stages = list(self._recognition.stages)
                raise SettingError(
                    f"--may-go-on {name!r}: the script has no such stage{nearest(name, stages)}; "
                    f"it has {', '.join(stages)}"
                )

    def not_put_back(self) -> list[str]:
        """Name what the loop changes, belongs to no stage, and cannot be put back."""
        return list(self._recognition.not_put_back)

    def _turn_at(self, start_ns: int) -> int:
        """Which optimiser steps at a time: the last that was noted before it."""
        turn = 0
        while self._steps and self._steps[0][0] <= start_ns:
            turn = self._steps.popleft()[1]
        return turn

    def _find(self) -> Iteration | Unknown:
        return find_iteration(list(self._calls), stage=self._stage, update=self._update())

    def _update(self) -> str:
        """The stage that changes what is learned: the optimiser's step, or a compiled function.

        Of several such functions the one that is called least often; envs may be compiled too.
        """
        compiled = self._recognition.kept.get(UPDATES, ())
        called = Counter(call.name for call in self._calls if call.name in compiled)
        return min(called, key=called.__getitem__, default=OPTIMISER_STEP)

    def _leave_out_within(self, start_ns: int) -> None:
        """Leave out the calls within one that had not ended when they were taken."""
        while self._calls and self._calls[-1].start_ns >= start_ns:
            self._calls.pop()

    def _choose_unit(self, found: Iteration) -> None:
        """Take the unit that iterations have: a policy that is tried now and then steps, too."""
        counted = self._recognition.units
        calls = found.calls.keys() - found.rare
        within = not calls.isdisjoint(self._recognition.own_names)  # calls there are not seen
        units = [unit for stage, unit in UNITS.items() if within or stage in calls]
        self.unit = next((unit for unit in units if counted.get(unit)), "iterations")
        self._counted = counted.get(self.unit, 0.0)

    def _take_calls(self) -> None:
        """Take the calls of the script's own thread, those within others left out."""
        control = self._recognition.control
        names, mine = control.names(), threading.get_ident()
        known = {name for name, stage in self._recognition.stages.items() if not stage.is_whole}
        known.update(self._recognition.own_names)
        for event in control.drain_events():
            name = names[event.stage]
            self._elsewhere += event.lane != mine
            if event.lane == mine and name in known and event.start_ns >= self._within_until_ns:
                # Calls are noted as they end: those within this one came before it.
                self._leave_out_within(event.start_ns)
                if name in self._recognition.own_names:
                    self._within_until_ns = event.end_ns
                turn = self._turn_at(event.start_ns) if name == OPTIMISER_STEP else 0
                self._calls.append(Call(name, event.start_ns, event.end_ns, turn))
        del self._calls[:-MOST_CALLS]
        if self._stage is not None and self._calls and self._stage not in known:
            hint = nearest(self._stage, known)
            raise SettingError(f"--iteration: there is no stage {self._stage!r}{hint}")


def _seen_by(matcher: Matcher) -> frozenset[str] | None:
    """The stages that must be timed for iterations to be seen; None: all of them."""
    marking = matcher.marking(OPTIMISER_STEP)
    # Both are calls of modules, and none is looked at where acting is not timed.
    return marking | {ACT} if marking is not None and FORWARD in marking else marking


def _tensors_of(worked_on: Any) -> list[Any] | None:
    """The parameters and buffers of a module; None for anything else.

    Its other attributes stay: they say in which mode it is, such as evaluation or a step of a
    trainer, and arms begin in any of these.
    """
    torch = torch_if_loaded()
    if torch is None or not isinstance(worked_on, torch.nn.Module):
        return None
    return [*worked_on.parameters(), *worked_on.buffers()]
