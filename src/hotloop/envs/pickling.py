"""Makers of envs, messages and errors on their way between processes."""

import pickle
import traceback
from typing import Any

import cloudpickle

from hotloop.errors import TargetError, WorkerError


def pickle_makers(makers: Any) -> bytes:
    """Makers of envs, or what goes with them, as bytes for another process.

    Raises: TargetError for what cannot be pickled.
    """
    try:
        return cloudpickle.dumps(makers, protocol=5)  # type: ignore[no-any-return]
    except Exception as error:
        raise TargetError(
            "vector env: expected makers of envs that can be sent to another process, got one "
            f"that cannot be pickled: {error}; make what it holds (a lock, a file, a simulator) "
            "inside of the function, or fork worker processes: context='fork'"
        ) from error


def pickle_message(message: Any) -> bytes:
    """A message as bytes for another process.

    Plain pickle is the faster; classes of a script and functions, which it cannot name, are sent
    by value.
    """
    try:
        return pickle.dumps(message, protocol=5)
    except Exception:
        return cloudpickle.dumps(message, protocol=5)  # type: ignore[no-any-return]


def portable_error(error: BaseException) -> BaseException:
    """A copy of the error for another process: of its own type if that can be pickled.

    Its traceback becomes a note.
    """
    text = "".join(traceback.format_exception(error))
    notes = getattr(error, "__notes__", [])
    try:
        copy = pickle.loads(cloudpickle.dumps(error.with_traceback(None)))
        same = type(copy) is type(error) and str(copy) == str(error)
    except Exception:
        same = False
    sent = error if same else WorkerError(f"{type(error).__qualname__}: {error}")
    sent.__cause__ = sent.__context__ = None
    sent.__dict__["__notes__"] = [*notes, f"\nIn the worker:\n{text}"]
    return sent
