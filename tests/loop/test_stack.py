"""The stack of another thread is whole, also while the thread goes on."""

import gc
import sys
import threading
import types

from hotloop.loop.stack import stack_of


def own_frames() -> list[types.FrameType]:
    frame: types.FrameType | None = sys._getframe(1)
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def test_the_stack_of_this_thread_is_found() -> None:
    assert stack_of(threading.get_ident())[1:] == own_frames()


def test_a_waiting_thread_has_its_functions_in_order() -> None:
    ready, done = threading.Event(), threading.Event()

    def inner() -> None:
        ready.set()
        done.wait()

    def outer() -> None:
        inner()

    thread = threading.Thread(target=outer)
    thread.start()
    ready.wait()
    names = [frame.f_code.co_name for frame in stack_of(thread.ident or 0)]
    done.set()
    thread.join()
    assert names.index("inner") + 1 == names.index("outer")
    assert stack_of(thread.ident or 0) == []


def test_a_thread_that_goes_on_is_followed_and_the_collector_stays_as_it_was() -> None:
    stop = threading.Event()

    def descend(depth: int) -> int:
        return descend(depth - 1) if depth else 0

    def go_on() -> None:
        while not stop.is_set():
            descend(20)

    thread = threading.Thread(target=go_on)
    thread.start()
    before = gc.isenabled()
    try:
        for _ in range(2_000):
            stack = stack_of(thread.ident or 0)
            assert all(type(frame) is types.FrameType for frame in stack)
            # No frame is missing between the innermost and the outermost one.
            assert stack[-1].f_code.co_name == "_bootstrap"
    finally:
        stop.set()
        thread.join()
    assert gc.isenabled() == before
