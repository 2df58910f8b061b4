"""What a loop declares as its state, by what becomes of it between the arms of an experiment."""

from collections.abc import Sequence
from typing import NamedTuple

from hotloop.loop.state import by_reason, faults_in


class DeclaredState(NamedTuple):
    """Declared objects, sorted.

    put_back: can be saved, and is put back before every arm.
    going_on: cannot be, and may go on from where an arm left it.
    stuck: cannot be, and may not: a stage that works on it is never replaced.
    """

    put_back: Sequence[object] = ()
    going_on: Sequence[object] = ()
    stuck: Sequence[object] = ()


def sort_state(
    state: Sequence[object], may_go_on: Sequence[object] = ()
) -> tuple[DeclaredState, list[str]]:
    """Sort declared objects; also say of those that cannot be put back why, and what follows.

    may_go_on: those of `state` that may.
    """
    put_back, going_on, stuck = list[object](), list[object](), list[object]()
    notices: list[str] = []
    may = set(map(id, may_go_on))
    for position, declared in enumerate(state):
        reasons = by_reason(faults_in(declared, position))
        if not reasons:
            put_back.append(declared)
        elif id(declared) in may:
            going_on.append(declared)
            notices += [f"goes on from experimental steps: {reason}" for reason in reasons]
        else:
            stuck.append(declared)
            notices += [f"cannot be saved and put back: {reason}" for reason in reasons]
    return DeclaredState(put_back, going_on, stuck), notices
