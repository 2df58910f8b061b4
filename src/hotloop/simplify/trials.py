"""Single blocks of an experiment: from the saved state, and ended at the limit.

An arm with replaced stages may make the loop raise. Then it is found out whether the loop raises
without any replay too; if not, the arm is given up, and the experiment goes on.
"""

import dataclasses
from collections.abc import Generator, Sequence
from typing import TypeVar

from hotloop.loop.arm import Arm
from hotloop.loop.conduct import Block, Measurement, Request
from hotloop.loop.control import SharedControl
from hotloop.loop.malloc import HeldMalloc
from hotloop.loop.state import Snapshot
from hotloop.loop.tape import MUTATED
from hotloop.simplify.arm_error import raised_by
from hotloop.simplify.arm_names import BASELINE, free_name
from hotloop.simplify.arms import delays, only_and_all, replaced_in
from hotloop.simplify.record import Record

KEPT_DURATIONS = 200_000

T = TypeVar("T")


class OutOfTimeError(Exception):
    """The limit has passed in the middle of something; what is measured by then is judged."""


class Trials:
    """What runs one block at a time: the loop's state, and the arms that are still measured."""

    def __init__(self, control: SharedControl, record: Record) -> None:
        self.control = control
        self.record = record
        self.malloc = HeldMalloc(control.in_own_process)
        self.limit_ns = 0  # when to end whatever is still missing
        self.arms: dict[str, Arm] = {}
        self.state: list[object] = []  # what the loop declares and can be put back
        self.snapshot: Snapshot | None = None  # from which the next block starts
        self.durations: list[int] = []  # of iterations in which nothing was changed
        self._running: Arm | None = None
        self._began = False  # whether the first iteration is over

    def ask(self, request: Request) -> Generator[Request, Block, Block]:
        """Run one block, ended at the limit at the latest.

        Raises: OutOfTimeError if it was.
        """
        block = yield dataclasses.replace(request, until_ns=self.limit_ns)
        if block.cut:
            raise OutOfTimeError
        return block

    def forward(self, measurement: Measurement[T], *, keep: bool = True) -> Measurement[T]:
        """Run another measurement, ended at the limit; keep the durations of its iterations."""
        try:
            request = next(measurement)
            while True:
                block = yield from self.ask(request)
                # The first iteration compiles and fills caches: it says nothing of the others.
                if keep and self._began:
                    self.durations += block.duration_ns
                    del self.durations[:-KEPT_DURATIONS]
                self._began = True
                request = measurement.send(block)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            measurement.close()

    def attempt(self, request: Request, phase: float) -> Generator[Request, Block, Block | None]:
        """Run one block, replayed from a share `phase` of the tapes on; None if the arm raised."""
        arm = request.arm
        replaced = replaced_in(arm)
        self._rewind(replaced, phase)
        self._running = arm
        try:
            block = yield from self.ask(request)
        except OutOfTimeError:
            raise
        except Exception as error:
            if not replaced:
                raise
            yield from self._give_up(arm, error, request)
            return None
        self._running = None
        self._look_for_mutations(replaced)
        return block

    def save_state(self) -> None:
        """Start the next blocks from the state as it is now."""
        self.keep(self.taken())

    def taken(self) -> Snapshot:
        """The state as it is now."""
        self.control.note_state("take")
        return Snapshot(self.state)

    def keep(self, snapshot: Snapshot | None) -> None:
        """Start the next blocks from the state that was taken last."""
        self.control.note_state("keep")
        self.snapshot = snapshot

    def put_back(self) -> None:
        """Put the loop's state back to where the next block starts."""
        assert self.snapshot is not None
        self.control.note_state("restore")
        self.snapshot.restore()

    def explain(self, error: BaseException) -> str | None:
        """Say what to know of an exception that ended a script in an arm with a replaced stage.

        A function that is called for each iteration is tried again without the replay; a script
        is gone.
        """
        arm = self._running
        if arm is None or not replaced_in(arm) or not isinstance(error, Exception):
            return None
        names = " and ".join(replaced_in(arm))
        return (
            f"{raised_by(arm.name, error)}. In this block {names} returned what had been recorded "
            "before, and the declared state had been put back at its start. If the script does not "
            "raise this by itself, declare the stage effectful, or all that it changes as state"
        )

    def _rewind(self, replaced: Sequence[str], phase: float) -> None:
        self.control.replay_phase[0] = phase
        for name in replaced:
            known = self.control.stages.get(name)
            if known is not None:
                known.tape.rewind(phase)

    def _look_for_mutations(self, replaced: Sequence[str]) -> None:
        for name in replaced:
            known = self.control.stages.get(name)
            if known is None:
                continue
            known.tape.rewind()
            in_workers = any(f & MUTATED for _, f in self.control.workers.tapes(known.index))
            if (known.tape.mutated or in_workers) and name not in self.record.mutated:
                self.record.mutated.append(name)

    def _give_up(self, arm: Arm, error: Exception, request: Request) -> Measurement[None]:
        """Drop an arm that raised; if the loop raises without any replay too, so does this."""
        self.put_back()
        yield from self.ask(
            dataclasses.replace(request, arm=Arm(BASELINE), phase="trying without a replay")
        )
        self.put_back()
        reason = raised_by(arm.name, error)
        stages = replaced_in(arm)
        self.arms.pop(arm.name, None)
        self.record.dropped[arm.name] = reason
        if arm.name == free_name(stages[0]) and len(stages) == 1:
            stage = self.record.stage(stages[0])
            stage.not_replaced = f"a replayed output does not fit the loop ({reason})"
            for name, other in list(self.arms.items()):
                if stage.name in replaced_in(other):
                    self.arms.pop(name)
                    self.record.dropped[name] = f"{stage.name} cannot be replaced"
            self.arms |= delays(self.record, stage)
            if not self.record.focus:
                self.arms |= only_and_all(self.record)
