"""Loops against each other: two live processes that take turns, block by block.

A launch starts a process for each side. Both warm up at once; then blocks of either side follow
each other in random order, and the process whose turn it is not is stopped.
"""

import contextlib
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hotloop.errors import SideError
from hotloop.loop.host import usable_cpus
from hotloop.repeat.estimate import spreads
from hotloop.repeat.record import Record
from hotloop.repeat.side_process import EndedEarly, SideProcess
from hotloop.repeat.sides import Side

# How fast a shared machine is changes within tenths of a second: blocks that follow each other
# after 5 ms have four fifths of that in common, and what they have not is halved with their length.
BLOCK_S = 0.005
MEASURED_S = 1.0  # in the first launches, at least
WARM_UP_S = 3.0  # at most, in the first launch; the others do as many iterations
WARM_UP_SHARE = 0.1  # of the budget, at most
ALIKE = 3.0  # sides whose iterations take as long, or this many times longer, do as many a block
SHORT_S = 0.002  # an iteration; the caches that the other side has used matter only to such
ROUNDS_ON_A_CORE = 8
PLANNED_LAUNCHES = 10  # that should fit into the budget


@dataclass(frozen=True)
class Plan:
    """How a launch runs. Of A and of B: iterations of a block, before the first one, and left out.

    one_thread: whether neither uses more than one.
    """

    iterations: tuple[int, int]
    warm_up: tuple[int, int]
    drain: tuple[int, int]
    one_thread: bool


class LoopLauncher:
    """Launches two loops. The first launch finds out how long their iterations are."""

    def __init__(self, sides: Sequence[Side], budget_s: float, seed: int) -> None:
        self.unit = "iterations"
        self._sides = sides
        self._budget_s = budget_s
        self._random = random.Random(seed)
        self._plan: Plan | None = None
        self._start_s: list[float] = []
        self._turns_s = 0.0  # of the next launch

    def launch(self, number: int, record: Record, on_round: Callable[[], None]) -> None:
        """Start both sides, measure them in turn, and end them.

        Raises: SideError for a side that crashes, ends before its first round, or counts in
        another unit than the other one.
        """
        begin = time.perf_counter()
        done = 0
        # Cores differ by what else runs on them: both sides of a round use the same one.
        cores = sorted(usable_cpus())
        with self._started() as processes:
            try:
                self._check_units([process.begin() for process in processes])
                if self._plan is None:
                    self._plan = self._planned(processes, begin)
                else:
                    _together(processes, [{"iterations": n} for n in self._plan.warm_up])
                turns = time.perf_counter()
                while not done or time.perf_counter() < turns + self._turns_s:
                    if self._plan.one_thread and done % ROUNDS_ON_A_CORE == 0:
                        for process in processes:
                            process.pin(cores[done // ROUNDS_ON_A_CORE % len(cores)])
                    for side, block in self._round(processes, self._plan).items():
                        record.add(number, done, side, block)
                    done += 1
                    on_round()
            except EndedEarly as early:
                # A script that ends is started again, unless it is too short for a single round.
                if not done:
                    raise _too_short(early) from None
            turns_s = time.perf_counter() - turns
        self._start_s.append(time.perf_counter() - begin - turns_s)
        self._turns_s = self._best_seconds(record, turns_s / done)

    def _best_seconds(self, record: Record, round_s: float) -> float:
        """How long a launch takes turns so that it says most for its time.

        The variance of a launch is b + w/rounds, b from launch to launch and w from round to round;
        for a given time √(w/b · start/round) rounds are best (Cochran 1977, 10.6).
        """
        between, within = spreads(record)
        if between is None:
            return self._turns_s
        start_s = statistics.median(self._start_s)
        best_s = math.sqrt(within / between * start_s * round_s) if between > 0 else math.inf
        return max(0.5 * start_s, min(best_s, max(start_s, MEASURED_S)))

    @contextlib.contextmanager
    def _started(self) -> Iterator[list[SideProcess]]:
        processes: list[SideProcess] = []
        seed = self._random.randrange(1, 2**32)
        try:
            for side in self._sides:
                processes.append(SideProcess(side, seed))
            yield processes
        finally:
            for process in processes:
                process.end()
            for process in processes:
                process.close()

    def _check_units(self, began: Sequence[dict[str, Any]]) -> None:
        first, second = (each["unit"] for each in began)
        if first != second:
            raise SideError(
                f"A counts {first} and B counts {second}: expected the same unit on both sides, as "
                "only then their times for one can be compared"
            )
        self.unit = first

    def _planned(self, processes: Sequence[SideProcess], begin: float) -> Plan:
        """Warm both up, and lay out this launch and all that follow."""
        warm_up_s = min(WARM_UP_S, WARM_UP_SHARE * self._budget_s)
        found = _together(processes, [{"warm_up_s": warm_up_s}] * 2)
        started_s = time.perf_counter() - begin
        iteration_s = [max(each["ns"], 1.0) * 1e-9 for each in found]
        warm_up = [each["iterations"] for each in found]
        counts = [max(1, round(BLOCK_S / each)) for each in iteration_s]
        if max(counts) <= ALIKE * min(counts):
            # Equal numbers: both sides then do the same part of the same work.
            counts, warm_up = [max(counts)] * 2, [max(warm_up)] * 2
        # About as long as the start takes: neither of the two is then most of the cost.
        self._turns_s = max(MEASURED_S, min(started_s, self._budget_s / PLANNED_LAUNCHES))
        return Plan(
            iterations=(counts[0], counts[1]),
            warm_up=(warm_up[0], warm_up[1]),
            drain=(int(iteration_s[0] < SHORT_S), int(iteration_s[1] < SHORT_S)),
            one_thread=all(each["one_thread"] for each in found),
        )

    def _round(self, processes: Sequence[SideProcess], plan: Plan) -> dict[int, dict[str, Any]]:
        blocks = {}
        for side in self._random.sample((0, 1), 2):
            message = {"iterations": plan.iterations[side], "drain": plan.drain[side]}
            processes[side].order(message)
            blocks[side] = processes[side].answer()
        return blocks


def _together(
    processes: Sequence[SideProcess], messages: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Let both work at once; returns their answers."""
    for process, message in zip(processes, messages, strict=True):
        process.order(message)
    return [process.answer() for process in processes]


def _too_short(early: EndedEarly) -> SideError:
    why = "" if early.why is None else f" ({early.why})"
    return SideError(
        f"{early.side} ended before one block of it was measured{why}. Let it run longer, or "
        'compare whole commands, as in "python script.py"'
    )
