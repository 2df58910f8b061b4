"""Which stages are under way, in each thread and each asyncio task; entered around NAMED calls."""

from collections.abc import Sequence
from contextvars import ContextVar

from hotloop.profile.stacks import REST

_UNDER_WAY: ContextVar[tuple[str, ...]] = ContextVar("hotloop stages under way", default=())


def stages_under_way() -> tuple[str, ...]:
    """The names of the caller's stages, the outermost first."""
    return _UNDER_WAY.get()


def innermost(stages: Sequence[str]) -> str:
    """The last of the stages under way, or the rest."""
    return stages[-1] if stages else REST


class UnderWay:
    """Holds a stage under way within a `with` block.

    It puts back what was before instead of resetting a token: a block of an asyncio task may be
    left in another context than it was entered in.
    """

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._before: tuple[str, ...] = ()

    def __enter__(self) -> None:
        self._before = _UNDER_WAY.get()
        _UNDER_WAY.set((*self._before, self._stage))

    def __exit__(self, *_error: object) -> None:
        _UNDER_WAY.set(self._before)
