"""Sentences about what a call did that its stage's declared effect rules out."""

import inspect
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hotloop.loop.compare import Difference
from hotloop.loop.stage_types import Effect

# Of more violations by one call than this only the number is said.
MAX_LISTED = 8


@dataclass(frozen=True)
class Violation:
    """What a call did that its stage's declared effect rules out, and what to do about it."""

    stage: str
    what: str
    remedy: str
    blocks: bool = True  # whether replaying the stage would change what the loop does

    def __str__(self) -> str:
        return f"stage {self.stage!r} {self.what}; {self.remedy}"


class _Call(NamedTuple):
    name: str
    effect: Effect
    function: Callable[..., Any]


def violations_of(
    name: str, effect: Effect, function: Callable[..., Any], found: Sequence[Difference]
) -> list[Violation]:
    """Describe what a call of a stage changed; beyond `MAX_LISTED` only how many more there are."""
    call = _Call(name, effect, function)
    listed = [_violation(call, difference) for difference in found[:MAX_LISTED]]
    if len(found) > MAX_LISTED:
        more = f"changes {len(found) - MAX_LISTED} more objects"
        listed.append(Violation(name, more, "see the first ones"))
    return listed


REPEATABLE = (
    'declare it effect="stateful" and put everything that its output depends on into the loop\'s '
    'state, or declare it effect="effectful"'
)


def _violation(call: _Call, difference: Difference) -> Violation:
    where, owner = (_with_name(call, path) for path in (difference.path, difference.owner))
    uncovered = ", which is not in the loop's state" if call.effect == "stateful" else ""
    if difference.style == "generator":
        what, remedy = f"draws random numbers from {where}", _declare(call, "")
        return Violation(call.name, what, remedy, blocks=call.effect != "pure")
    if difference.drawn:
        what = f"draws random numbers from `{where}`{uncovered}"
        remedy = _declare(call, f"put `{where}` into")
        return Violation(call.name, what, remedy, blocks=call.effect != "pure")
    if difference.style == "argument":
        what = f"changes its {where}{uncovered}"
        remedy = (
            "return a new object, or name the buffer in writes= if it is an array or a tensor, "
            'or declare it effect="effectful"'
        )
        return Violation(call.name, what, remedy)
    if issubclass(difference.kind, types.FunctionType):  # a variable, not a part of an object
        what = f"changes `{where}`{uncovered}"
        return Violation(call.name, what, _declare(call, f"keep `{where}` in an object of"))
    kind = "" if owner == where else f" (in a {difference.kind.__qualname__})"
    what = f"changes `{where}`{kind}{uncovered}"
    return Violation(call.name, what, _declare(call, f"put `{owner or where}` into"))


def _declare(call: _Call, action: str) -> str:
    """What to declare: `action` is what to do with the loop's state, if anything."""
    steps = [] if call.effect == "stateful" else ['declare it effect="stateful"']
    if action:
        steps.append(f"{action} the loop's state")
    return " and ".join(steps)


def _with_name(call: _Call, path: str) -> str:
    """`argument 1` with the name that the function gives it."""
    found = re.match(r"argument (\d+)", path)
    if found is None:
        return path
    try:
        names = list(inspect.signature(call.function).parameters.values())
    except (TypeError, ValueError):
        return path
    number = int(found[1])
    if number >= len(names) or names[number].kind is inspect.Parameter.VAR_POSITIONAL:
        return path
    return f"{found[0]} ({names[number].name}){path[found.end() :]}"
