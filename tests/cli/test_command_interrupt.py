"""Ctrl-C and other ends: the partial run is saved, the terminal is itself again, nothing stays."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from hotloop.loop.run import load
from support.wait import DEADLINE_S, PATIENCE_S, wait_until

INTERRUPTED = 130
# A warm-up that ends soon, and a measurement that does not.
ENDLESSLY = ("--seconds", "1", "--iterations", 10**9)
SHARED = Path("/dev/shm")


def segments_left(project: Path, patience_s: float = PATIENCE_S) -> list[str]:
    """The loop's own segments, and anything of ours, that stay in shared memory."""
    listed = project / "segments"
    own = listed.read_text().split() if listed.exists() else []
    deadline = time.monotonic() + patience_s
    while True:
        left = [p.name for p in SHARED.iterdir() if p.name in own or "hotloop" in p.name]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def check_partial(project: Path, samples: str) -> Path:
    (path,) = (project / ".hotloop").glob("*.run")
    run = load(path)
    assert not run.complete
    assert len(run.arrays[samples]) > 0
    assert {other.name for other in path.parent.iterdir()} == {path.name, "journal.db"}
    return path


class Crowded:
    """A loop with workers, a program and a producer, interrupted in the middle of measuring."""

    def __init__(self, start: Callable, project: Path, number: int) -> None:
        self.project = project
        command = start("benchmark", "worker_loops.py:crowded", *ENDLESSLY, cwd=project)
        command.wait_for("measuring")
        self.children = len(command.children)
        command.process.send_signal(number)
        self.done = command.end()
        self.alive = command.alive()


@pytest.fixture(scope="module", params=[signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def crowded(
    start: Callable,
    make_project: Callable[[Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Crowded:
    return Crowded(start, make_project(tmp_path_factory.mktemp("project")), request.param)


@pytest.mark.long
def test_an_interrupt_is_said_in_one_message(crowded: Crowded) -> None:
    assert crowded.done.code == INTERRUPTED
    assert crowded.done.messages == ["hotloop: interrupted"]


def test_an_interrupted_run_is_shown_and_saved(crowded: Crowded, hotloop: Callable) -> None:
    assert "partial run saved" in crowded.done.err
    assert "iterations/s" in crowded.done.out
    path = check_partial(crowded.project, "duration_ns")
    again = hotloop("report", path, cwd=crowded.project)
    assert again.code == 0
    assert again.out == crowded.done.out


def test_an_interrupted_loop_is_closed(crowded: Crowded) -> None:
    assert (crowded.project / "closed").exists()


def test_no_process_of_an_interrupted_loop_stays(crowded: Crowded) -> None:
    assert crowded.children >= 3
    assert crowded.alive == []


def test_nothing_of_an_interrupted_loop_stays_in_shared_memory(crowded: Crowded) -> None:
    assert segments_left(crowded.project) == []


def test_ending_the_workers_of_an_interrupted_loop_is_silent(crowded: Crowded) -> None:
    assert "Traceback" not in crowded.done.err


def test_workers_are_ended_silently_when_all_went_well(hotloop: Callable, project: Path) -> None:
    done = hotloop("benchmark", "worker_loops.py:crowded", "--seconds", "0.5", cwd=project)
    assert done.code == 0
    pids = [int(pid) for pid in (project / "pids").read_text().split()]
    assert len(pids) == 3
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), "the loop's processes are gone")
    assert "Traceback" not in done.err


@pytest.mark.long
def test_a_worker_that_does_not_listen_is_ended_too(start: Callable, project: Path) -> None:
    command = start("benchmark", "worker_loops.py:with_deaf_worker", *ENDLESSLY, cwd=project)
    command.wait_for("measuring")
    assert len(command.children) == 1
    command.process.send_signal(signal.SIGINT)
    assert command.end().code == INTERRUPTED
    assert command.alive() == []


@pytest.mark.long
def test_a_thread_that_python_waits_for_does_not_hold_up_an_interrupt(
    start: Callable, project: Path
) -> None:
    command = start("benchmark", "worker_loops.py:with_waiting_thread", *ENDLESSLY, cwd=project)
    command.wait_for("measuring")
    command.process.send_signal(signal.SIGINT)
    assert command.end().code == INTERRUPTED
    assert command.alive() == []


@pytest.mark.long
def test_a_thread_that_python_waits_for_does_not_hold_up_the_end(
    start: Callable, project: Path
) -> None:
    target = "worker_loops.py:with_waiting_thread"
    command = start("benchmark", target, "--seconds", "0.5", cwd=project)
    assert command.end().code == 0


@pytest.mark.long
def test_shared_memory_of_the_loop_goes_with_it(start: Callable, project: Path) -> None:
    command = start("benchmark", "worker_loops.py:with_shared_memory", *ENDLESSLY, cwd=project)
    command.wait_for("measuring")
    assert len(segments_left(project, patience_s=0)) == 2
    command.process.send_signal(signal.SIGINT)
    assert command.end().code == INTERRUPTED
    left = segments_left(project)
    for name in left:
        (SHARED / name).unlink()
    assert left == []
    assert command.alive() == []


@pytest.mark.long
def test_nothing_is_left_in_shared_memory_when_the_command_is_killed(
    start: Callable, project: Path
) -> None:
    command = start("benchmark", "worker_loops.py:with_shared_memory", *ENDLESSLY, cwd=project)
    command.wait_for("measuring")
    command.process.kill()
    command.process.wait(DEADLINE_S)
    assert segments_left(project) == []


@pytest.mark.slow
def test_a_simplification_is_interrupted(start: Callable, hotloop: Callable, project: Path) -> None:
    command = start("simplify", "worker_loops.py:serial", "--budget", "120", cwd=project)
    command.wait_for("measuring")
    command.process.send_signal(signal.SIGINT)
    done = command.end()
    assert done.code == INTERRUPTED
    assert done.messages == ["hotloop: interrupted"]
    again = hotloop("report", check_partial(project, "ns"), cwd=project)
    assert again.code == 0
    assert again.out == done.out


@pytest.mark.long
def test_a_first_iteration_that_does_not_end_is_interrupted(start: Callable, project: Path) -> None:
    command = start("benchmark", "worker_loops.py:still_warming_up", *ENDLESSLY, cwd=project)
    command.wait_for("measuring")
    command.process.send_signal(signal.SIGINT)
    done = command.end()
    assert done.code == INTERRUPTED
    assert done.messages == ["hotloop: interrupted"]
    assert "Traceback" not in done.err


@pytest.mark.long
def test_a_script_is_interrupted(start: Callable, project: Path) -> None:
    command = start("benchmark", "worker_script.py", *ENDLESSLY, cwd=project)
    command.wait_for("measuring")
    command.process.send_signal(signal.SIGINT)
    done = command.end()
    assert done.code == INTERRUPTED
    assert done.messages == ["hotloop: interrupted"]
    check_partial(project, "duration_ns")
    assert (project / "closed").exists()


@pytest.mark.long
@pytest.mark.parametrize("how", ["typed", "terminated"])
def test_the_terminal_is_itself_again(
    on_terminal: Callable[..., Any], project: Path, how: str
) -> None:
    terminal = on_terminal("benchmark", "worker_loops.py:crowded", *ENDLESSLY)
    # The live view is on: it has hidden the cursor and drawn. When it draws the steady state for
    # the second time, a first block of it has been measured.
    terminal.read_until(lambda: terminal.screen.count(b"steady state") >= 2)
    assert (project / "measuring").exists()
    assert terminal.screen.rfind(b"\x1b[?25l") > terminal.screen.rfind(b"\x1b[?25h")
    children = psutil.Process(terminal.process.pid).children(recursive=True)
    assert len(children) >= 3
    if how == "typed":
        terminal.type(b"\x03")  # the terminal makes it a signal for all of them
    else:
        terminal.process.terminate()
    terminal.read_to_the_end()
    assert terminal.process.returncode == INTERRUPTED
    assert b"hotloop: interrupted" in terminal.screen
    assert b"partial run saved" in terminal.screen
    assert terminal.screen.rfind(b"\x1b[?25h") > terminal.screen.rfind(b"\x1b[?25l")
    assert b"\x1b[?1049h" not in terminal.screen  # what was on the screen stays there
    assert terminal.settings_now() == terminal.settings
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert alive == []
    check_partial(project, "duration_ns")


def test_no_time_at_all_on_a_terminal_is_no_error_of_the_loop(
    on_terminal: Callable[..., Any],
) -> None:
    terminal = on_terminal("benchmark", "loops.py:two_stages", "--seconds", "0")
    terminal.read_to_the_end()
    assert b"ZeroDivisionError" not in terminal.screen
