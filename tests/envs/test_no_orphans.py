"""Nothing is left behind: no process, no shared memory, no descriptor, however the driver ends."""

import contextlib
import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from hotloop.envs.process import ProcessVectorEnv
from hotloop.testing.synthetic import synthetic_fns
from support.wait import DEADLINE_S, wait_until

DRIVER = """
import os, signal, sys, time
import numpy as np
from hotloop.envs.process import ProcessVectorEnv
from hotloop.testing.synthetic import Failure, SyntheticSettings, synthetic_fns

def make(context="fork", failure=None, **kwargs):
    marker = os.path.join(os.path.dirname(__file__), "failed")
    failures = () if failure is None else (Failure(failure, 3, env_id=0, once_marker=marker),)
    fns = synthetic_fns(4, SyntheticSettings(failures=failures))
    envs = ProcessVectorEnv(fns, num_workers=2, context=context, **kwargs)
    envs.reset(seed=0)
    print(*[handle.process.pid for handle in envs._workers.handles], flush=True)
    return envs

def work(envs):
    while True:
        envs.step(np.zeros(4, np.int64))

"""


def shared_memory():
    """Names of shared memory, but for what other processes use: those of another program's."""
    used = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it has ended, or is not ours to look into
            if int(maps.parent.name) != os.getpid():
                used |= set(re.findall(r"/dev/shm/(\S+)", maps.read_text()))
    found = Path("/dev/shm").iterdir() if Path("/dev/shm").exists() else ()
    return {path.name for path in found} - used


def alive(pids):
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            pass
    return found


def expect_gone(pids):
    wait_until(lambda: not alive(pids), f"the end of {pids}")


@pytest.fixture
def driver(tmp_path):
    """Runs a script as a driver in a process group of its own; gives it and its workers' ids."""
    started, before = [], shared_memory()

    def run(script):
        path = tmp_path / "driver.py"
        path.write_text(DRIVER + textwrap.dedent(script))
        process = subprocess.Popen(
            [sys.executable, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        pids = [int(pid) for pid in process.stdout.readline().split()]
        started.append((process, pids))
        assert len(pids) == 2, process.stderr.read()
        return process, pids

    yield run
    for process, pids in started:
        process.kill()
        process.communicate()
        for pid in alive(pids):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: shared_memory() <= before, "no shared memory is left")


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_a_killed_driver(driver, context):
    process, pids = driver(
        f"""
        if __name__ == "__main__":
            work(make({context!r}))
        """
    )
    children = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    process.kill()
    process.wait()
    expect_gone([*pids, *children])


@pytest.mark.parametrize("thread", [False, True])
def test_a_killed_driver_whose_env_hangs(driver, thread, tmp_path):
    begin = "work(make(failure='hang'))"
    if thread:
        begin = (
            "import threading; threading.Thread(target=lambda: work(make(failure='hang'))).start()"
        )
    process, pids = driver(begin)
    wait_until((tmp_path / "failed").exists, "env 0 hangs")
    process.kill()
    process.wait()
    expect_gone(pids)


def test_ctrl_c_reaches_the_whole_group(driver):
    process, pids = driver("work(make())")
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == -signal.SIGINT
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert err.count("Traceback") == 1, err  # none of the workers'
    expect_gone(pids)


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit(7)",
        "raise SystemExit(7)",
        "del envs; import gc; gc.collect(); sys.exit(7)",
        "envs.close(); envs.close(); sys.exit(7)",
        "envs.send(np.zeros(4, np.int64), np.arange(4)); sys.exit(7)",
        "os._exit(7)",
        "globals().clear(); import sys; sys.exit(7)",
        "import atexit; atexit.register(envs.step, np.zeros(4, np.int64)); sys.exit(7)",
    ],
)
@pytest.mark.parametrize("daemon", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_driver_that_ends_by_itself(driver, ending, daemon):
    process, pids = driver(f"envs = make(daemon={daemon})\n{ending}")
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (7, "")
    expect_gone(pids)


def test_an_error_in_the_driver(driver):
    process, pids = driver("envs = make()\nraise ValueError('of its own')")
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert err.rstrip().endswith("ValueError: of its own")
    expect_gone(pids)


@pytest.mark.parametrize("ending", ["sys.exit(0)", "os._exit(0)", "envs.close(); sys.exit(0)"])
def test_a_forked_childs_end_does_not_end_its_parents_workers(driver, ending):
    process, pids = driver(
        f"""
        envs = make(restarts=0)
        child = os.fork()
        if child == 0:
            {ending}
        assert os.waitpid(child, 0)[1] == 0
        time.sleep(0.1)
        for _ in range(5):
            envs.step(np.zeros(4, np.int64))
        envs.close()
        sys.exit(7)
        """
    )
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (7, "")
    expect_gone(pids)


def test_a_pool_that_could_not_be_made_leaves_nothing():
    def fails():
        raise ValueError("planned")

    gc.collect()  # of what other tests left
    before = psutil.Process().num_fds()
    for _ in range(3):
        with pytest.raises(ValueError, match="planned"):
            ProcessVectorEnv([*synthetic_fns(3), fails], num_workers=2, context="fork")
    gc.collect()
    assert psutil.Process().num_fds() == before
    assert not multiprocessing.active_children()


@pytest.mark.long
def test_opening_and_closing_leaves_nothing():
    process, shm = psutil.Process(), shared_memory()
    ProcessVectorEnv(synthetic_fns(4), num_workers=2).close()
    seen = []
    for number in range(10):
        envs = ProcessVectorEnv(synthetic_fns(4), num_workers=2)
        envs.reset(seed=0)
        envs.step(np.zeros(4, np.int64))
        if number % 2:
            envs.close()
        del envs
        gc.collect()
        assert not multiprocessing.active_children()
        seen.append((process.num_fds(), process.memory_info().rss))
    descriptors, memory = zip(*seen, strict=True)
    assert set(descriptors) == {descriptors[0]}
    assert memory[-1] - memory[4] < 4 * 2**20
    assert shared_memory() <= shm
