"""A process that tries something, with a limit for what takes too long."""

import textwrap
from pathlib import Path

import psutil
import pytest

from hotloop.optimize.bench import TrialError
from hotloop.optimize.guarded_process import GuardedProcess
from hotloop.repeat.sides import LOOP, Place, Side
from support.wait import wait_until

HANGS = """
    import threading
    import hotloop

    def make():
        return hotloop.Loop(body=threading.Event().wait, unit="turns")
"""


def test_what_hangs_is_ended_and_said(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(textwrap.dedent(HANGS))
    target = f"{tmp_path / 'hangs.py'}:make"
    side = Side(name="x", text=target, kind=LOOP, words=(target,), place=Place(tmp_path))
    before = set(psutil.Process().children(recursive=True))
    process = GuardedProcess(side, seed=0)
    try:
        process.begin()
        process.limit_s = 0.5
        with pytest.raises(TrialError, match=r"was not done after 0\.5 s, so it was ended"):
            process.ask({"seconds": 0.1})
        assert process.ended
        assert process.longest_s >= 0.5
    finally:
        process.close()
    wait_until(lambda: set(psutil.Process().children(recursive=True)) <= before, "it has ended")
