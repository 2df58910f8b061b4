"""Scripts that do unusual things to their process: there are figures, or one clear sentence."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.wait import wait_until

BRIEFLY = ("--seconds", "0.5")
ENDLESSLY = ("--seconds", "1000")


@pytest.fixture
def told(hotloop: Callable, project: Path) -> Callable[..., Any]:
    """Benchmarks the script that does what it is told."""

    def run(*words: str, seconds: tuple[str, str] = BRIEFLY, **more: Any) -> Any:
        done = hotloop("benchmark", "as_told.py", *seconds, "--", *words, cwd=project, **more)
        assert "hotloop/cli" not in done.err
        return done

    return run


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ["fork_that_ends:20"],
        ["fork_that_exits", "fork_that_exits:20"],
        ["fork_that_goes_on:20"],
        ["replace_output"],
        ["close_output"],
        ["close_descriptor"],
        ["close_all_descriptors"],
        ["close_errors"],
        ["alarm"],
        ["few_frames", "forget_modules", "leave_folder"],
    ],
    ids=lambda words: words[0],
)
def test_there_are_figures_whatever_a_script_does_to_its_process(
    told: Callable, words: list[str]
) -> None:
    done = told(*words)
    assert done.code == 0, done.err
    assert done.out.count("env steps/s") == 1  # a forked child reports nothing
    assert "Traceback" not in done.err


@pytest.mark.long
def test_an_error_of_a_forked_child_is_the_child_s_alone(told: Callable) -> None:
    done = told("fork_that_fails:20")
    assert done.code == 0, done.err
    assert "env steps/s" in done.out
    assert "ValueError: planted in a child" in done.err
    assert "script.py" not in done.err  # its traceback begins with the script


@pytest.mark.slow
def test_workers_find_their_function_in_a_script(told: Callable) -> None:
    done = told("workers")
    assert done.code == 0, done.err
    assert "worked by fork" in done.out
    assert "worked by spawn" in done.out
    assert "env steps/s" in done.out


@pytest.mark.long
@pytest.mark.parametrize("word", ["exit_at_once:2000", "exit_at_once_in_a_thread:2000"])
def test_a_script_that_ends_its_process_at_once_is_reported_all_the_same(
    told: Callable, word: str
) -> None:
    done = told(word, seconds=ENDLESSLY)
    assert done.code == 0, done.err
    assert "env steps/s" in done.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("exit_3", "as_told.py exited with 3 before an iteration of it was measured"),
        ("exit_3:5", "as_told.py exited with 3 before an iteration of it was measured"),
        ("exit_at_once_5:5", "as_told.py exited with 5 before an iteration of it was measured"),
        ("exit_3:2000", "as_told.py exited with 3 after "),
    ],
)
def test_an_early_exit_with_an_error_is_said_in_one_sentence(
    told: Callable, word: str, says: str
) -> None:
    done = told(word, seconds=ENDLESSLY)
    assert done.code == 1
    (message,) = done.messages
    assert says in message
    assert "run it alone" in message


@pytest.mark.long
def test_what_is_no_usual_error_is_shown_as_one(told: Callable) -> None:
    done = told("raise_unusual:2000", seconds=ENDLESSLY)
    assert done.code == 1
    assert done.messages == ["hotloop: the loop raised Unusual: planted"]
    assert "env steps/s" in done.out


def test_a_script_that_reads_what_is_not_there_is_told_what_to_do(told: Callable) -> None:
    done = told("ask")
    assert done.code == 1
    assert "the loop raised EOFError" in done.messages[0]
    assert "run it on a terminal" in done.err


@pytest.mark.long
def test_a_script_on_a_terminal_may_ask(on_terminal: Callable) -> None:
    terminal = on_terminal("benchmark", "as_told.py", *BRIEFLY, "--", "ask")
    terminal.read_until(lambda: b"name?" in terminal.screen)
    terminal.type(b"you\n")
    terminal.read_to_the_end()
    assert terminal.process.returncode == 0
    assert b"hello you" in terminal.screen
    assert b"env steps/s" in terminal.screen


@pytest.mark.slow
def test_a_script_that_catches_what_stops_it_is_stopped(told: Callable) -> None:
    done = told("for_ever")
    assert done.code == 0, done.err
    assert "caught StoppedByMeasurement" in done.out
    assert "env steps/s" in done.out


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder for a command; the script makes the file `measured` there."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("SIGN", str(folder / "measured"))
    return folder


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_handler_of_the_script_s_does_not_keep_the_measurement_going(
    start: Callable, project: Path, temporary: Path, number: int
) -> None:
    words = ("handle_signals", "sign:400")
    command = start("benchmark", "as_told.py", *ENDLESSLY, "--", *words, cwd=project)
    command.wait_for(temporary / "measured")
    command.process.send_signal(number)
    done = command.end()
    assert done.code == 130
    assert "handled" in done.out
    assert done.messages == ["hotloop: interrupted"]


@pytest.mark.long
def test_nothing_of_a_killed_measurement_stays(
    start: Callable, project: Path, temporary: Path
) -> None:
    words = ("fork_that_stays", "program_that_stays", "sign:400")
    command = start("benchmark", "as_told.py", *ENDLESSLY, "--", *words, cwd=project)
    command.wait_for(temporary / "measured")
    assert len(command.children) >= 2
    assert any(each.name.startswith("hotloop-run-") for each in temporary.iterdir())
    command.process.kill()
    command.process.wait()
    assert command.alive() == []
    left = [temporary / "measured"]
    wait_until(lambda: list(temporary.iterdir()) == left, "the run's folder is gone")


def test_a_script_that_python_cannot_read_is_shown_its_line(
    hotloop: Callable, project: Path
) -> None:
    (project / "unreadable.py").write_text("import os\nfor x in range(3)\n    pass\n")
    done = hotloop("benchmark", "unreadable.py", cwd=project)
    assert done.code == 1
    (message,) = done.messages
    assert "line 2: expected a script that this Python can read" in message


def test_a_module_that_is_not_there_is_answered_with_the_nearest(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("benchmark", "-m", "as_tolt", cwd=project)
    assert "did you mean 'as_told'?" in done.messages[0]
    done = hotloop("benchmark", "-m", "json.toll", cwd=project)
    assert "did you mean 'json.tool'?" in done.messages[0]
    done = hotloop("benchmark", "torchrunn", cwd=project)
    assert "there is no console script" in done.messages[0]
    assert len(done.messages) == 1
