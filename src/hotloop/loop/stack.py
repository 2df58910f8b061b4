"""The stack of another thread, taken as a whole."""

import gc
import itertools
import operator
import sys
import types

DEEPEST = 2_000  # frames; deeper ones are left out, at the outer end


def stack_of(thread: int) -> list[types.FrameType]:
    """The frames of a thread, the innermost first; none for one that has ended.

    A thread that goes on while its frames are followed one by one leaves some of them with links to
    frames that are gone: with CPython 3.11 such a link was once a function, and a few times the end
    of the process. So the frames are found in one call that never gives the interpreter lock away:
    neither does the interpreter run in between, nor the collector, which may call functions.
    """
    innermost = map(operator.methodcaller("get", thread), map(operator.call, [sys._current_frames]))
    outwards = itertools.chain(innermost, itertools.repeat("f_back", DEEPEST))
    found: list[types.FrameType | None] = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        found.extend(itertools.accumulate(outwards, getattr))
    except AttributeError:
        pass  # beyond the outermost frame there is None, which has no frame behind it
    finally:
        if collecting:
            gc.enable()
    return [frame for frame in found if frame is not None]
