"""Rank 0 of a job: it measures, and the other ranks change their arms at the same iterations.

A stage may hold a collective, such as the sum of the gradients within a backward pass. Where it is
replaced on one rank and not on another, the other one waits for ever. So the number of each
iteration at which an arm begins is known before any rank gets there, and a rank that gets there
waits for all: every request is turned into one of a fixed number of iterations.
"""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

from hotloop.errors import LoopError
from hotloop.loop.arm import Kind, kind_of
from hotloop.loop.conduct import MOST_DRAINED, Block, Measurement, Request
from hotloop.loop.control import ArmMessage, SharedControl
from hotloop.loop.ranks.schedule import LOOK_S, Meeting, RankSchedule
from hotloop.loop.worker_reports import RemoteReports

T = TypeVar("T")
# Ranks that do not wait for each other yet are no more than so many iterations apart.
APART = 2
# So many iterations back rank 0 knows how many collectives it had called.
REMEMBERED = 1000


class LeadRank:
    """What rank 0 tells the others, and knows of them."""

    def __init__(self, schedule: RankSchedule, control: SharedControl) -> None:
        self.schedule = schedule
        self.control = control
        self.iteration = 0  # the one that begins or runs
        self._collectives: dict[int, int] = {}  # called before each of the last iterations
        self._alike: set[int] = set()  # ranks that were seen to count as this one does
        self._reports = {rank: RemoteReports() for rank in range(1, schedule.ranks)}
        for reports in self._reports.values():
            control.workers.remote.add(reports)
        self._typical_ns = 0.0  # of an iteration in which nothing is changed

    def reach(self, iteration: int, collectives: int) -> None:
        """Note that an iteration begins. collectives: called by then, since the script began."""
        self.iteration = iteration
        self._collectives[iteration] = collectives
        self._collectives.pop(iteration - REMEMBERED, None)
        self.schedule.reach(0, iteration, collectives)

    def agreed_start(self) -> int | None:
        """The iteration from which on all ranks wait for each other; None: it is not known yet.

        Before, every rank is seen to count the iterations as this one does. It may be asked again;
        the answer stays.
        Raises: LoopError if a rank counts otherwise.
        """
        schedule = self.schedule
        with schedule.held():
            if not schedule.limit:
                others = range(1, schedule.ranks)
                self._alike.update(rank for rank in others if self._counts_alike(rank))
                if len(self._alike) < len(others):
                    return None
                reached = [schedule.reached(rank) for rank in range(schedule.ranks)]
                schedule.limit = max(reached) + APART
            return schedule.limit

    def in_step(self, measurement: Measurement[T], iteration_s: float) -> Measurement[T]:
        """Run a measurement whose arms begin on all ranks at the same iterations.

        iteration_s: about how long an iteration takes. A time that a request gives is turned into
        the iterations that it usually holds. Where a block ends, rank 0 waits for the others within
        the block's time: it lasts until the slowest has done its iterations.
        """
        self._typical_ns = iteration_s * 1e9
        self.control.state_operations = []
        self.control.obeyed_in_step = True
        try:
            request = next(measurement)
            while True:
                block: Block = yield self._fixed(request)
                if not request.arm.modes and request.arm.rest.kind == Kind.REAL:
                    self._typical_ns = block.ns_per_iteration if block.duration_ns else 0.0
                request = measurement.send(block)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            measurement.close()
            self.control.state_operations = None
            self.control.obeyed_in_step = False

    # --- one request -----------------------------------------------------------------------------

    def _fixed(self, request: Request) -> Request:
        """The request with numbers for times, which all ranks follow."""
        iterations, drain = request.iterations, request.drain
        if request.seconds is not None:
            within = max(1, self._iterations_in(request.seconds))
            iterations = within if iterations is None else min(iterations, within)
        if request.drain_s:
            drain = min(max(drain, self._iterations_in(request.drain_s) + 1), MOST_DRAINED)
        assert iterations is not None
        calls = [(0, request.at_start), (drain, request.before)]
        if drain:
            calls.insert(1, (drain - 1, request.before_last_drained))
        ends = [after for after, _ in calls[1:]] + [drain + iterations]
        hooks = [
            self._hook(call, end - after) for (after, call), end in zip(calls, ends, strict=True)
        ]
        return dataclasses.replace(
            request,
            iterations=iterations,
            seconds=None,
            drain=drain,
            drain_s=0.0,
            at_start=hooks[0],
            before_last_drained=hooks[1] if drain else None,
            before=hooks[-1],
            at_end=self._await_others,
        )

    def _iterations_in(self, seconds: float) -> int:
        return math.ceil(seconds * 1e9 / max(self._typical_ns, 1.0))

    def _hook(self, call: Callable[[], None] | None, iterations: int) -> Callable[[], None]:
        """What is called at the start of an iteration, and lets all run so many iterations."""

        def hook() -> None:
            if call is not None:
                call()
            if iterations:
                self._let_run(iterations)

        return hook

    def _let_run(self, iterations: int) -> None:
        self._await_others()
        operations, self.control.state_operations = self.control.state_operations, []
        self.schedule.meeting = Meeting(self.control.message(), tuple(operations or ()))
        self.schedule.limit = self.iteration + iterations

    def _await_others(self) -> None:
        """Wait until every rank is at the start of this iteration. Raises: LoopError."""
        schedule = self.schedule
        for rank, reports in self._reports.items():
            while schedule.reached(rank) < self.iteration:
                if schedule.ended(rank):
                    raise LoopError(
                        f"rank {rank} ended before iteration {self.iteration}, which rank 0 has "
                        "reached: expected all ranks to do as many iterations"
                    )
                time.sleep(LOOK_S)
            self._counts_alike(rank)
            reply = schedule.reply_of(rank)
            if reply is not None:
                index = self.control.index
                reports.tapes = [(index(name), *tape) for name, tape in reply.tapes.items()]

    def _counts_alike(self, rank: int) -> bool:
        """Whether a rank is seen to number the iterations as this one does.

        By the collectives that both have called before the same iteration.
        Raises: LoopError if it numbers them otherwise.
        """
        reached, collectives = self.schedule.reached(rank), self.schedule.collectives(rank)
        if reached not in self._collectives:
            return False
        if collectives != self._collectives[reached]:
            raise LoopError(
                f"before iteration {reached} rank {rank} has called {collectives} collectives, "
                f"rank 0 {self._collectives[reached]}: expected ranks that do the same iterations "
                "from the start. Name a stage that every rank calls once in each, such as "
                '--iteration "optimiser step"'
            )
        return True


def is_unchanged(arm: ArmMessage) -> bool:
    """Whether every stage runs as it is."""
    words: list[Any] = [*arm.words.values(), arm.rest]
    return all(kind_of(word) in (Kind.REAL, Kind.OFF) for word in words)
