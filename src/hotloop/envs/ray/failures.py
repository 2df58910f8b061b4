"""What Ray and its actors report of errors, as errors of the driver."""

import pickle
import re

from ray.exceptions import RayError, RayTaskError

from hotloop.envs.ray.worker import Failure
from hotloop.errors import WorkerError


def error_of(failure: Failure) -> BaseException:
    """The error of a worker, of its own type where that can be loaded here."""
    try:
        return pickle.loads(failure.error)  # type: ignore[no-any-return]
    except Exception as error:
        lost = WorkerError(f"{failure.text} (its type cannot be loaded here: {error})")
        lost.__cause__ = error
        return lost


def unwrapped(error: RayTaskError, actor: object) -> BaseException:
    """What Ray reports of a message that a worker could not answer at all."""
    cause = error.cause if isinstance(error.cause, BaseException) else error
    cause.add_note(f"in {actor}")
    cause.add_note(f"\nIn the worker:\n{error.traceback_str}")
    return cause


def death(error: RayError) -> str:
    """Why a worker died: the sentence of Ray's message that says it."""
    if said := re.search(r"is dead because ([^.\n]+)", str(error)):
        return f"died: {said[1]}"
    return f"died: {first_lines(error)}"


def first_lines(error: BaseException) -> str:
    """The first lines of a message, as one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:8])
