"""Methods whose calls may be only counted, which a training hardly feels."""

from collections.abc import Callable
from threading import get_ident
from typing import Any

from hotloop.recognise.place_stage import Inside, PlaceStage


def counted_first(
    function: Callable[..., Any],
    measured: Callable[..., Any],
    holder: Any,
    stage: PlaceStage,
    inside: Inside,
) -> Callable[..., Any]:
    """Return a method that counts, leaves the call alone, or has it measured.

    measured: what it does then. holder: what has the modes of all stages. Counting is written out
    here, and first: every function, and every object, that a training has pushed out of the
    processor's caches since the last call takes a part of a microsecond.
    """
    counting, index = stage.counting, stage.index

    def staged(self: Any, *args: Any, **kwargs: Any) -> Any:
        if counting.is_on:
            if counting.is_under_way or get_ident() != counting.thread:
                return function(self, *args, **kwargs)
            counting.number += 1
            counting.is_under_way = True
            try:
                return function(self, *args, **kwargs)
            finally:
                counting.is_under_way = False
        if not holder.modes[index] or inside.now:
            return function(self, *args, **kwargs)
        return measured(self, *args, **kwargs)

    return staged
