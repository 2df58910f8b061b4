"""The iterations of the ranks of one job: found by rank 0, counted by every rank for itself.

The number of an iteration is how often the calls of a rank have matched since its script began.
"""

from collections.abc import Sequence

from hotloop.errors import LoopError
from hotloop.loop.arm import SUBSTITUTES, Kind, kind_of
from hotloop.loop.ranks.lead import LeadRank, is_unchanged
from hotloop.loop.ranks.schedule import LOOK_S, Meeting, RankSchedule, Reply
from hotloop.loop.stage_types import StageView
from hotloop.loop.state import Snapshot
from hotloop.recognise.found_iterations import FoundIterations
from hotloop.recognise.period import Iteration, Matcher
from hotloop.recognise.rank_log import RankLog
from hotloop.recognise.recognition import Recognition

_SUBSTITUTES = frozenset(int(kind) for kind in SUBSTITUTES)


class _Counted:
    """Counts iterations, also those that were over before it was known how they are told."""

    def __init__(self) -> None:
        self.number = 0
        self._calls: list[tuple[str, int]] = []
        self._matcher: Matcher | None = None

    @property
    def is_known(self) -> bool:
        return self._matcher is not None

    def know(self, iteration: Iteration) -> None:
        """Take over how iterations are told."""
        self._matcher = matcher = Matcher(iteration)
        self.number = sum(matcher.starts(*call) for call in self._calls)
        self._calls = []

    def starts(self, name: str, turn: int) -> bool:
        """Whether an iteration begins with this call. To be asked for every call, in order."""
        if self._matcher is None:
            self._calls.append((name, turn))
            return False
        if not self._matcher.starts(name, turn):
            return False
        self.number += 1
        return True


class LeadIterations:
    """Finds the iterations of rank 0, and begins to measure where all ranks are ready.

    in_step: whether the measurement changes arms, which all ranks must do together.
    """

    away = False  # every part of an iteration is measured

    def __init__(
        self, found: FoundIterations, lead: LeadRank, log: RankLog, *, in_step: bool
    ) -> None:
        self._found = found
        self._lead = lead
        self._log = log
        self._in_step = in_step
        self._counted = _Counted()
        self._epoch, self._arm_is_unchanged = -1, True

    @property
    def unit(self) -> str:
        """What is counted on this rank."""
        unit = self._found.unit
        return unit if unit == "iterations" else f"{unit} of rank 0"

    @property
    def duration_s(self) -> float | None:
        """How long an iteration takes, once they are found."""
        return self._found.duration_s

    def look(self, called: StageView, now_ns: int) -> str | None:
        """Look on; return what marks an iteration if all ranks know, and one begins here."""
        begins = self._follow(called, now_ns)
        if not self._counted.is_known:
            self._found.look(called, now_ns)
            if self._found.found is not None:
                self._counted.know(self._found.found)
                self._lead.schedule.rule = self._found.found
            return None
        if not begins:
            return None
        if self._in_step and self._counted.number != self._lead.agreed_start():
            return None
        return str(self._found.found)

    def starts(self, called: StageView) -> bool:
        """Whether an iteration begins with this call."""
        return self._follow(called, self._lead.control.clock.now_ns())

    def units(self) -> float:
        """The units of this rank since the last time this was asked."""
        return self._found.units()

    def why_not(self) -> str:
        """Why no iterations were found so far."""
        if self._found.found is not None:
            return "rank 0 has found its iterations, and another rank has not shown the same ones"
        return self._found.why_not()

    def state(self) -> Sequence[object]:
        """What the iterations of this rank change, and can be put back."""
        return self._found.state()

    def _follow(self, called: StageView, now_ns: int) -> bool:
        begins = self._counted.starts(called.name, self._found.turn_of(called))
        if begins:
            control = self._lead.control
            if control.epoch != self._epoch:
                self._epoch, self._arm_is_unchanged = control.epoch, is_unchanged(control.message())
            self._log.begin(self._counted.number, now_ns, self._arm_is_unchanged)
            self._lead.reach(self._counted.number, self._log.collectives)
        self._log.called(called, now_ns)
        return begins


class FollowedIterations:
    """The iterations of a rank that does not measure: it changes its arms where rank 0 says."""

    unit = "iterations"
    duration_s = None
    away = False

    def __init__(
        self, schedule: RankSchedule, rank: int, recognition: Recognition, log: RankLog
    ) -> None:
        self._schedule = schedule
        self._rank = rank
        self._control = recognition.control
        self._found = FoundIterations(recognition)  # for the state that can be put back
        self._log = log
        self._counted = _Counted()
        self._arm_is_unchanged = True
        self._limit = 0
        self._kept: Snapshot | None = None
        self._taken: Snapshot | None = None

    def look(self, called: StageView, now_ns: int) -> None:
        """Follow; no iteration of this rank is ever one that is measured here."""
        begins = self._counted.starts(called.name, self._found.turn_of(called))
        if not self._counted.is_known:
            rule = self._schedule.rule
            if rule is not None:
                self._counted.know(rule)
        elif begins:
            self._log.begin(self._counted.number, now_ns, self._arm_is_unchanged)
            if not self._limit:
                self._join()
                self._control.drain_events()
            else:
                self._obey()
        self._log.called(called, now_ns)

    def starts(self, _called: StageView) -> bool:
        """Nothing begins here: see `look`."""
        return False

    def units(self) -> float:
        """Nothing is measured here."""
        return 0.0

    def why_not(self) -> str:
        """Nothing is measured here."""
        return "another rank measures"

    def state(self) -> Sequence[object]:
        """Nothing is measured here."""
        return ()

    # --- in step ---------------------------------------------------------------------------------

    def _join(self) -> None:
        """Say how far this rank is, and learn whether the ranks wait for each other by now."""
        schedule, number = self._schedule, self._counted.number
        with schedule.held():
            schedule.reach(self._rank, number, self._log.collectives)
            self._limit = schedule.limit
        if self._limit:
            self._obey()

    def _obey(self) -> None:
        """Wait where the next arm begins, and take it over."""
        schedule, number = self._schedule, self._counted.number
        if number == self._limit:
            stages = self._control.stages.values()
            schedule.reply(
                self._rank,
                Reply({s.name: (len(s.tape), s.tape.faults) for s in stages}),
            )
        schedule.reach(self._rank, number, self._log.collectives)
        if number < self._limit:
            return
        if number > self._limit:
            raise LoopError(
                f"rank {self._rank} has begun iteration {number}, while rank 0 has allowed "
                f"{self._limit}: expected ranks that wait for each other in every iteration"
            )
        while schedule.limit == self._limit:
            self._control.clock.sleep_ns(round(LOOK_S * 1e9))
        self._limit = schedule.limit
        self._take_over(schedule.meeting)

    def _take_over(self, meeting: Meeting) -> None:
        control, arm = self._control, meeting.arm
        control.drain_events()
        recorded = [kind_of(word) == Kind.RECORD for word in control.words]
        control.follow(arm)
        for stage in list(control.stages.values()):
            kind = kind_of(control.words[stage.index])
            if kind in _SUBSTITUTES:
                stage.tape.rewind(arm.replay_phase)
            elif kind == Kind.RECORD and not recorded[stage.index]:
                stage.tape.clear()
        for operation in meeting.operations:
            self._operate(operation)
        self._arm_is_unchanged = is_unchanged(arm)

    def _operate(self, operation: str) -> None:
        """Do with the state of this rank what rank 0 has done with its own."""
        if operation == "take":
            self._taken = Snapshot(self._found.state())
        elif operation == "keep":
            self._kept = self._taken or self._kept
        elif self._kept is not None:
            self._kept.restore()
