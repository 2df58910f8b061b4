"""What processes may ask of the kernel about each other: their end, and to be read."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER, _PR_SET_PTRACER_ANY = 0x59616D61, ctypes.c_ulong(-1)


def kill_with_parent() -> None:
    """Have the kernel end this process when the thread that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def allow_tracing() -> None:
    """Let a process that this one starts read its memory, where the kernel asks (Yama)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)
