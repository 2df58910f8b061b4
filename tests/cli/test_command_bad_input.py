"""Bad input: one clear message, an exit code that says so, and nothing lost."""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import hotloop as package
from hotloop.loop.run import load

BRIEFLY = ("--seconds", "0.5")
OURS = str(Path(package.__file__).parent)


def saved_in(folder: Path) -> list[Path]:
    return sorted((folder / ".hotloop").glob("*.run"))


WORDS = {
    "nosuch.py": ["nosuch.py", "no such script"],
    "stagd.py": ["stagd.py", "did you mean staged.py"],
    "nosuch.py:make": ["nosuch.py", "no such file"],
    "nosuch:make": ["no module 'nosuch'"],
    "loops.py:two_stage": ["has no function 'two_stage'", "did you mean 'two_stages'"],
    "broken.py:not_a_function": ["has no function 'not_a_function'"],
    "loops": ["'loops' is no target", "file.py:function"],
    ":make": ["is no target"],
    "broken.py:a_number": ["returned int", "expected a hotloop.Loop"],
    "broken.py:no_units": ["returned no units", "env steps"],
    "broken.py:nan_units": ["nan units", "finite number"],
    "broken.py:word_units": ["returned str", "expected the number"],
    "broken.py:ends_early": ["five batches ended after 5 iterations"],
}


@pytest.fixture(scope="module")
def answers(hotloop: Callable, shared_project: Path) -> dict[str, Any]:
    """What is said to each bad target; two at a time, as most of it is starting Python."""

    def ask(target: str) -> Any:
        return hotloop("benchmark", target, *BRIEFLY, cwd=shared_project)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(WORDS, pool.map(ask, WORDS), strict=True))


@pytest.mark.parametrize("target", WORDS)
def test_it_is_said_in_one_message(answers: dict[str, Any], target: str) -> None:
    done = answers[target]
    assert done.code == 1
    assert len(done.messages) == 1
    for word in WORDS[target]:
        assert word in done.messages[0]
    assert "Traceback" not in done.err
    assert OURS not in done.err
    assert done.out == ""


def test_a_target_that_never_ran_leaves_no_run(hotloop: Callable, project: Path) -> None:
    done = hotloop("benchmark", "nosuch.py", cwd=project)
    assert saved_in(project) == []
    assert "saved" not in done.err


def check_users_error(err: str) -> None:
    """It keeps its type and message, names the stage, and shows where in the user's code."""
    assert "ValueError: shard 7 is empty" in err
    assert "in stage 'read'" in err
    assert 'raise ValueError("shard 7 is empty")' in err
    assert "in read_shard" in err
    assert OURS not in err
    assert "runpy" not in err


def test_a_stage_that_raises_in_warm_up_is_shown_in_the_users_code(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("benchmark", "broken.py:fails_in_a_stage", *BRIEFLY, cwd=project)
    assert done.code == 1
    check_users_error(done.err)
    assert "broken.py" in done.err
    assert len(done.messages) == 1
    assert (project / "closed").exists()


def test_a_stage_that_raises_in_a_script_is_shown_in_the_users_code(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("benchmark", "failing_script.py", *BRIEFLY, cwd=project)
    assert done.code == 1
    check_users_error(done.err)
    assert "failing_script.py" in done.err


def test_a_stage_that_raises_under_simplify_is_shown_in_the_users_code(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("simplify", "broken.py:fails_in_a_stage", "--budget", "1", cwd=project)
    assert done.code == 1
    check_users_error(done.err)


def test_an_error_in_a_worker_is_shown_where_it_was_raised(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("benchmark", "in_worker.py:make", *BRIEFLY, cwd=project)
    assert done.code == 1
    assert "KeyError: 'frame 12'" in done.err
    assert "in stage 'decode'" in done.err
    assert "in decode_frame" in done.err
    # Ending the worker is our business, and nothing to report.
    assert "KeyboardInterrupt" not in done.err


def test_an_error_in_the_middle_keeps_what_was_measured(hotloop: Callable, project: Path) -> None:
    done = hotloop(
        "benchmark", "broken.py:fails_midway", "--seconds", "1", "--iterations", 10**6, cwd=project
    )
    assert done.code == 1
    assert "ValueError: shard 7 is empty" in done.err
    assert "iterations/s" in done.out
    assert "partial run saved" in done.err
    (path,) = saved_in(project)
    run = load(path)
    assert not run.complete
    assert len(run.arrays["duration_ns"]) > 0


def test_a_body_that_exits_keeps_what_was_measured(hotloop: Callable, project: Path) -> None:
    done = hotloop(
        "benchmark", "broken.py:exits_midway", "--seconds", "1", "--iterations", 10**6, cwd=project
    )
    assert done.code == 1
    assert len(done.messages) == 1
    (path,) = saved_in(project)
    assert not load(path).complete


def test_a_function_that_raises_is_shown_in_the_users_code(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("benchmark", "broken.py:fails_when_made", *BRIEFLY, cwd=project)
    assert done.code == 1
    assert "FileNotFoundError: no data in ./data" in done.err
    assert "in fails_when_made" in done.err
    assert OURS not in done.err


@pytest.mark.parametrize("target", ["needs_more:make", "needs_more.py"])
def test_an_import_that_fails_in_the_users_module_is_theirs(
    hotloop: Callable, project: Path, target: str
) -> None:
    done = hotloop("benchmark", target, *BRIEFLY, cwd=project)
    assert done.code == 1
    assert "ModuleNotFoundError: No module named 'not_installed_anywhere'" in done.err
    assert "needs_more.py" in done.err
    assert "no module 'needs_more'" not in done.err


def test_a_missing_module_with_a_like_name_is_told_from_the_target(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("benchmark", "loops_of_others:make", *BRIEFLY, cwd=project)
    assert done.code == 1
    assert "No module named 'loops_of'" in done.err
    assert "no module 'loops_of_others'" not in done.err


def test_a_script_that_does_not_parse_is_named_with_the_line(
    hotloop: Callable, project: Path
) -> None:
    (project / "typo.py").write_text("x = 1\nfor = 2\n")
    done = hotloop("benchmark", "typo.py", cwd=project)
    assert done.code == 1
    assert "SyntaxError" in done.err
    assert "typo.py, line 2" in done.err


def test_a_script_that_exits_with_an_error_code_is_an_error(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("benchmark", "plain.py", "--", "--code", "3", cwd=project)
    assert done.code == 1
    assert done.messages == ["hotloop: plain.py exited with 3"]


def test_a_script_that_exits_with_0_has_just_ended(hotloop: Callable, project: Path) -> None:
    done = hotloop("benchmark", "plain.py", "--", "--code", "0", cwd=project)
    assert done.code == 0, done.err


def test_a_script_that_ends_before_a_rate_is_known_says_so(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("benchmark", "marked.py", *BRIEFLY, "--", "--batches", "3", cwd=project)
    assert done.code == 1
    assert len(done.messages) == 1
    assert "too few for a rate" in done.messages[0]


def test_a_script_that_ends_before_the_experiment_says_so(hotloop: Callable, project: Path) -> None:
    done = hotloop("simplify", "marked.py", "--budget", "1", "--", "--batches", "1", cwd=project)
    assert done.code == 1
    assert len(done.messages) == 1
    assert "ended before" in done.messages[0]


def test_a_loop_without_stages_cannot_be_simplified(hotloop: Callable, project: Path) -> None:
    done = hotloop("simplify", "loops.py:without_stages", "--budget", "1", cwd=project)
    assert done.code == 1
    assert len(done.messages) == 1
    assert "no stage was called" in done.messages[0]
    assert "hotloop.stage(" in done.messages[0]


def test_a_script_without_iterations_cannot_be_simplified(hotloop: Callable, project: Path) -> None:
    done = hotloop("simplify", "plain.py", "--budget", "1", cwd=project)
    assert done.code == 1
    assert len(done.messages) == 1
    assert "hotloop.iterations" in done.messages[0]


def test_a_verdict_that_cannot_be_had_is_refused(hotloop: Callable, project: Path) -> None:
    done = hotloop("simplify", "loops.py:two_stages", "--budget", "0.001", "--json", cwd=project)
    assert done.code == 1
    assert len(done.messages) == 1
    assert "no verdict" in done.messages[0]
    assert "--budget" in done.messages[0]
    assert json.loads(done.out)["refused"] in done.messages[0]
    (path,) = saved_in(project)
    assert load(path).complete


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.fixture
def full_device() -> Iterator[int]:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    opened = os.open("/dev/full", os.O_WRONLY)
    yield opened
    os.close(opened)


@pytest.mark.parametrize("where", ["closed_pipe", "full_device"])
def test_a_report_that_nobody_can_read_does_not_lose_the_run(
    hotloop: Callable, project: Path, where: str, request: pytest.FixtureRequest
) -> None:
    done = hotloop(
        "benchmark",
        "loops.py:two_stages",
        *BRIEFLY,
        cwd=project,
        stdout=request.getfixturevalue(where),
    )
    assert "Traceback" not in done.err
    (path,) = saved_in(project)
    assert load(path).complete
    assert done.code != 0


def test_a_terminal_without_our_characters_does_not_lose_the_run(
    hotloop: Callable, project: Path
) -> None:
    hotloop("benchmark", "loops.py:two_stages", *BRIEFLY, cwd=project, PYTHONIOENCODING="ascii")
    (path,) = saved_in(project)
    assert load(path).complete
