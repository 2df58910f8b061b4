"""Describing an exception in an experimental arm, in one sentence for the report."""

import linecache
import traceback
from pathlib import Path

_HERE = str(Path(__file__).parents[1])


def raised_by(arm: str, error: BaseException) -> str:
    """Say where an arm raised, and what; without a text, give the line that raised it."""
    text = str(error).strip()
    where = ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_foreign(f.filename)]
    if frames:
        last = frames[-1]
        where = f" in {Path(last.filename).name}, line {last.lineno}"
        if not text and last.lineno is not None:
            text = linecache.getline(last.filename, last.lineno).strip()
    quoted = f": {text}" if text else ""
    sentence = f"{arm} raised {type(error).__name__}{where}{quoted}"
    if isinstance(error, AssertionError):
        sentence += (
            "; a library checks its own course there, and the state had been put back in the "
            "middle of it: mark iterations where the library starts anew, or declare the stage "
            "effectful"
        )
    return sentence


def _is_foreign(filename: str) -> bool:
    return not filename.startswith(_HERE)
