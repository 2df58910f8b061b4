"""Watching a loop or a script: nothing stays patched, and places are the user's own."""

import gc
import multiprocessing.reduction
import queue
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotloop.errors import SettingError
from hotloop.loop.scripts.start import StartLimits
from hotloop.optimize.detect import Detection, detect
from hotloop.optimize.detectors import DETECTORS
from hotloop.optimize.operations import Operation, Operations
from hotloop.optimize.places import function_at, is_passed_over, is_users
from hotloop.results.session import run_target
from support.loops import busy

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import _get_current_dispatch_mode_stack  # noqa: E402
from torch.utils.data import dataloader  # noqa: E402


def everything_patched() -> list[Any]:
    """What an instrument may change in this process."""
    pickler = multiprocessing.reduction.ForkingPickler
    return [
        sys.gettrace(),
        sys.getprofile(),
        sys.getswitchinterval(),
        gc.get_debug(),
        list(gc.callbacks),
        tracemalloc.is_tracing(),
        vars(queue.Queue)["get"],
        vars(pickler)["dumps"],
        vars(pickler)["loads"],
        vars(dataloader._BaseDataLoaderIter)["__next__"],
        vars(dataloader.DataLoader)["__iter__"],
        torch.cuda.synchronize,
        _get_current_dispatch_mode_stack(),
    ]


X = np.random.default_rng(0).random((100, 8), dtype=np.float32)


def ordinary() -> None:
    out = np.zeros(100)
    for i in range(100):
        out[i] = X[i].sum()
    torch.ones(8).sum()


def test_nothing_stays_patched() -> None:
    before, threads = everything_patched(), set(threading.enumerate())
    detect(ordinary, seconds=1.0)
    assert everything_patched() == before
    started = set(threading.enumerate()) - threads
    assert not [thread.name for thread in started if "hotloop" in thread.name]


@pytest.mark.parametrize(
    ("error", "after"),
    [(RuntimeError, after) for after in (1, 40, 90, 150)] + [(KeyboardInterrupt, 20)],
)
def test_nothing_stays_patched_after_an_error(error: type[BaseException], after: int) -> None:
    before = everything_patched()
    calls = [0]

    def body() -> None:
        ordinary()
        calls[0] += 1
        if calls[0] == after:
            raise error

    def go_on() -> None:
        while True:
            detect(body, seconds=0.2)

    with pytest.raises(error):
        go_on()
    assert everything_patched() == before


def test_whole_iterations_are_watched_and_at_least_one_in_each_phase() -> None:
    calls = [0]

    def body() -> None:
        busy(0.1)
        calls[0] += 1

    detect(body, seconds=0.01, detectors=["python loop", "synchronisation", "growing container"])
    # Times, operations, and eight looks at what grows; no loop of Python takes time here but busy.
    assert 10 <= calls[0] <= 11


def test_an_unknown_detector_and_impossible_seconds_are_refused() -> None:
    with pytest.raises(SettingError, match="python loop"):
        detect(ordinary, detectors=["python lop"])
    with pytest.raises(SettingError, match="seconds"):
        detect(ordinary, seconds=0)
    with pytest.raises(SettingError, match="warm_up_s"):
        Detection(warm_up_s=-1)


def test_every_detector_of_the_table_can_be_made() -> None:
    for make in DETECTORS.values():
        assert make().phases


SCRIPT = """
import numpy as np
import hotloop

x = np.random.default_rng(0).random((100, 16), dtype=np.float32)
half = np.float64(0.5)


def main():
    for _ in hotloop.iterations(range(1_000_000)):
        out = np.zeros(100)
        for i in range(100):
            out[i] = np.tanh(x[i]).sum()
        y = np.tile(x, (20, 1)) * half
        np.tanh(y)


main()
"""


@pytest.mark.long
def test_a_script_is_watched_between_its_own_iterations(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    wanted = {("python loop", 12, "main"), ("float64", 14, "main")}
    before = everything_patched()
    for seconds in (1.5, 10.0):  # on a busy machine there are too few samples in the first
        detection = Detection(seconds=seconds, warm_up_s=0.5)
        outcome = run_target(str(path), detection.run, start_limits=lambda _path: StartLimits())
        assert outcome.error is None
        assert everything_patched() == before
        found = {(each.detector, each.line, each.function) for each in detection.advice}
        if wanted <= found:
            break
    assert wanted <= found


STAGED = """
import numpy as np
import hotloop

x = np.random.default_rng(0).random((400, 8), dtype=np.float32)


@hotloop.stage("load")
def load():
    return x


@hotloop.stage("work")
def work(batch):
    return [np.tanh(row).sum() for row in batch]


while True:
    work(load())
"""


@pytest.mark.long
def test_a_script_with_stages_is_watched_by_their_calls(tmp_path: Path) -> None:
    path = tmp_path / "staged.py"
    path.write_text(STAGED)
    detection = Detection(seconds=1.5, detectors=["python loop"])
    outcome = run_target(str(path), detection.run, start_limits=lambda _path: StartLimits())
    assert outcome.error is None
    assert [(each.line, each.function) for each in detection.advice] == [(15, "work")]


def test_advice_is_sorted_by_the_share_of_time() -> None:
    found = detect(ordinary, seconds=1.0)
    shares = [getattr(each.at_most, "value", each.at_most) for each in found]
    assert shares == sorted(shares, key=lambda x: x if isinstance(x, float) else -1, reverse=True)


def test_files_are_of_the_user_or_of_a_library() -> None:
    assert is_users(__file__)
    for library in (np.__file__, torch.__file__, threading.__file__, "<string>"):
        assert not is_users(library)
        assert is_passed_over(library)
    assert not is_users(sys.modules["hotloop.optimize.detect"].__file__ or "")
    assert not is_passed_over(pytest.__file__)
    assert function_at(__file__, everything_patched.__code__.co_firstlineno) == "everything_patched"


def test_an_iteration_that_computes_for_long_is_not_watched_to_its_end() -> None:
    operations, noted, ran = Operations(), [0], 0

    def note(_operation: Operation) -> None:
        noted[0] += 1

    operations.listeners.append(note)
    x = torch.zeros(1)
    with operations.watching(0.02):
        until_s = time.thread_time() + 1.0
        while time.thread_time() < until_s:
            x.add(1)
            ran += 1
    assert 0 < noted[0] < ran / 2
