"""Checking every stage against what it declares of its effects, before anything is replaced."""

import dataclasses

from hotloop.loop.arm import CHECK, REAL, Arm
from hotloop.loop.conduct import Measurement, Request
from hotloop.loop.control import SharedControl
from hotloop.loop.declared_state import DeclaredState
from hotloop.simplify.record import Record

MOST_CHECKED = 200  # iterations, at most: rare stages may not be called in them


def check_effects(
    control: SharedControl, record: Record, state: DeclaredState, deadline_ns: int
) -> Measurement[None]:
    """Compare for two calls of each stage what they change with what the stage declares.

    state: what the loop declares. Puts what was found into the record.
    """
    control.state, control.violations, control.checks = state, [], {}
    checked: set[str] = set()
    for _ in range(MOST_CHECKED):
        called = [
            name
            for name, stage in control.stages.items()
            if control.calls[stage.index] and not stage.effect_is_known
        ]
        left = [name for name in called if name not in checked]
        if not left:
            break
        arm = Arm("checking", dict.fromkeys(left, CHECK), rest=REAL)
        block = yield Request(arm, iterations=1, phase="checking what the stages change")
        record.iterations_kept += 1
        names = control.names()
        checked |= {names[event.stage] for event in block.events}
        if control.clock.now_ns() > deadline_ns:
            break
    found = {(broken.stage, broken.what): broken for broken in control.violations}
    record.broken = [dataclasses.asdict(broken) for broken in found.values()]
    control.state = DeclaredState()
