"""Bad input: one clear message, an exit code that says so, and nothing lost."""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import hotloop as package
from hotloop.loop.run import Run, load

BRIEFLY = ("--seconds", "0.5")
# A warm-up that ends soon, and a measurement that does not.
ENDLESSLY = ("--seconds", "1", "--iterations", 10**9)
OURS = str(Path(package.__file__).parent)

# What is said to each bad target.
WORDS = {
    "nosuch.py": ["nosuch.py", "no such script"],
    "stagd.py": ["stagd.py", "did you mean 'staged.py'"],
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
COMMANDS: dict[str, tuple[object, ...]] = {
    **{target: ("benchmark", target, *BRIEFLY) for target in WORDS},
    "fails in a stage": ("benchmark", "broken.py:fails_in_a_stage", *BRIEFLY),
    "fails in a script": ("benchmark", "failing_script.py", *BRIEFLY),
    "fails under simplify": ("simplify", "broken.py:fails_in_a_stage", "--budget", "1"),
    "fails in a worker": ("benchmark", "in_worker.py:make", *BRIEFLY),
    "fails midway": ("benchmark", "broken.py:fails_midway", *ENDLESSLY),
    "exits midway": ("benchmark", "broken.py:exits_midway", *ENDLESSLY),
    "fails when made": ("benchmark", "broken.py:fails_when_made", *BRIEFLY),
    "module needs more": ("benchmark", "needs_more:make", *BRIEFLY),
    "script needs more": ("benchmark", "needs_more.py", *BRIEFLY),
    "like name": ("benchmark", "loops_of_others:make", *BRIEFLY),
    "does not parse": ("benchmark", "typo.py"),
    "exits with 3": ("benchmark", "plain.py", "--", "--code", "3"),
    "exits with 0": ("benchmark", "plain.py", "--", "--code", "0"),
    "too few": ("benchmark", "marked.py", *BRIEFLY, "--", "--batches", "3"),
    "too few to simplify": ("simplify", "marked.py", "--budget", "1", "--", "--batches", "1"),
    "no stages": ("simplify", "loops.py:without_stages", "--budget", "1"),
    "no iterations": ("simplify", "plain.py", "--budget", "1"),
    "refused": ("simplify", "loops.py:two_stages", "--budget", "0.001", "--json"),
}


class Case(NamedTuple):
    """A command that has ended, and the folder that it ran in."""

    done: Any
    folder: Path

    @property
    def saved(self) -> list[Path]:
        return sorted((self.folder / ".hotloop").glob("*.run"))

    @property
    def run(self) -> Run:
        (path,) = self.saved
        return load(path)


@pytest.fixture(scope="module")
def cases(
    hotloop: Callable, make_project: Callable, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Case]:
    """All commands, two at a time: most of each is the start of Python."""

    def ask(command: tuple[object, ...]) -> Case:
        folder = make_project(tmp_path_factory.mktemp("project"))
        (folder / "typo.py").write_text("x = 1\nfor = 2\n")
        return Case(hotloop(*command, cwd=folder), folder)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(COMMANDS, pool.map(ask, COMMANDS.values()), strict=True))


@pytest.mark.parametrize("target", WORDS)
def test_it_is_said_in_one_message(cases: dict[str, Case], target: str) -> None:
    done = cases[target].done
    assert done.code == 1
    assert len(done.messages) == 1
    for word in WORDS[target]:
        assert word in done.messages[0]
    assert "Traceback" not in done.err
    assert OURS not in done.err
    assert done.out == ""


def test_a_target_that_never_ran_leaves_no_run(cases: dict[str, Case]) -> None:
    assert cases["nosuch.py"].saved == []
    assert "saved" not in cases["nosuch.py"].done.err


@pytest.mark.parametrize(
    ("case", "file"),
    [
        ("fails in a stage", "broken.py"),
        ("fails in a script", "failing_script.py"),
        ("fails under simplify", "broken.py"),
    ],
)
def test_a_stage_that_raises_is_shown_in_the_users_code(
    cases: dict[str, Case], case: str, file: str
) -> None:
    done = cases[case].done
    assert done.code == 1
    assert len(done.messages) == 1
    assert "ValueError: shard 7 is empty" in done.err
    assert "in stage 'read'" in done.err
    assert f'{file}", line' in done.err
    assert "in read_shard" in done.err
    assert 'raise ValueError("shard 7 is empty")' in done.err
    assert OURS not in done.err
    assert "runpy" not in done.err


def test_a_loop_is_closed_after_an_error(cases: dict[str, Case]) -> None:
    assert (cases["fails in a stage"].folder / "closed").exists()


def test_an_error_in_a_worker_is_shown_where_it_was_raised(cases: dict[str, Case]) -> None:
    done = cases["fails in a worker"].done
    assert done.code == 1
    assert "KeyError: 'frame 12'" in done.err
    assert "in stage 'decode'" in done.err
    assert "in decode_frame" in done.err
    # Ending the worker is our business, and nothing to report.
    assert "KeyboardInterrupt" not in done.err


def test_an_error_in_the_middle_keeps_what_was_measured(cases: dict[str, Case]) -> None:
    done = cases["fails midway"].done
    assert done.code == 1
    assert "ValueError: shard 7 is empty" in done.err
    assert "iterations/s" in done.out
    assert "partial run saved" in done.err
    run = cases["fails midway"].run
    assert not run.complete
    assert len(run.arrays["duration_ns"]) > 0


def test_a_body_that_exits_keeps_what_was_measured(cases: dict[str, Case]) -> None:
    done = cases["exits midway"].done
    assert done.code == 1
    assert len(done.messages) == 1
    run = cases["exits midway"].run
    assert not run.complete
    assert len(run.arrays["duration_ns"]) > 0


def test_a_function_that_raises_is_shown_in_the_users_code(cases: dict[str, Case]) -> None:
    done = cases["fails when made"].done
    assert done.code == 1
    assert "FileNotFoundError: no data in ./data" in done.err
    assert "in fails_when_made" in done.err
    assert OURS not in done.err


@pytest.mark.parametrize("case", ["module needs more", "script needs more"])
def test_an_import_that_fails_in_the_users_module_is_theirs(
    cases: dict[str, Case], case: str
) -> None:
    done = cases[case].done
    assert done.code == 1
    assert "ModuleNotFoundError: No module named 'not_installed_anywhere'" in done.err
    assert "needs_more.py" in done.err
    assert "no module 'needs_more'" not in done.err


def test_a_missing_module_with_a_like_name_is_told_from_the_target(cases: dict[str, Case]) -> None:
    done = cases["like name"].done
    assert done.code == 1
    assert "No module named 'loops_of'" in done.err
    assert "no module 'loops_of_others'" not in done.err


def test_a_script_that_does_not_parse_is_named_with_the_line(cases: dict[str, Case]) -> None:
    done = cases["does not parse"].done
    assert done.code == 1
    assert "SyntaxError" in done.err
    assert "typo.py, line 2" in done.err


def test_a_script_that_exits_with_an_error_code_is_an_error(cases: dict[str, Case]) -> None:
    done = cases["exits with 3"].done
    assert done.code == 1
    (message,) = done.messages
    assert message.startswith("hotloop: plain.py exited with 3 before an iteration")


def test_a_script_that_exits_with_0_has_just_ended(cases: dict[str, Case]) -> None:
    assert cases["exits with 0"].done.code == 0


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("too few", ["ended", "too few for a rate"]),
        ("too few to simplify", ["ended before"]),
        ("no stages", ["no stage was called", "hotloop.stage("]),
        ("no iterations", ["hotloop.iterations"]),
    ],
)
def test_a_loop_that_gives_too_little_is_told_what_it_lacks(
    cases: dict[str, Case], case: str, words: list[str]
) -> None:
    done = cases[case].done
    assert done.code == 1
    assert len(done.messages) == 1
    for word in words:
        assert word in done.messages[0]
    assert "Traceback" not in done.err


def test_a_verdict_that_cannot_be_had_is_refused(cases: dict[str, Case]) -> None:
    done = cases["refused"].done
    assert done.code == 1
    assert len(done.messages) == 1
    assert "no verdict" in done.messages[0]
    assert "--budget" in done.messages[0]
    assert json.loads(done.out)["refused"] in done.messages[0]
    assert cases["refused"].run.complete


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


@pytest.mark.long
@pytest.mark.parametrize("where", ["closed_pipe", "full_device"])
def test_a_report_that_nobody_can_read_does_not_lose_the_run(
    hotloop: Callable, project: Path, where: str, request: pytest.FixtureRequest
) -> None:
    nowhere = request.getfixturevalue(where)
    done = hotloop("benchmark", "loops.py:two_stages", *BRIEFLY, cwd=project, stdout=nowhere)
    assert "Traceback" not in done.err
    assert Case(done, project).run.complete
    assert done.code != 0


@pytest.mark.long
def test_a_terminal_without_our_characters_does_not_lose_the_run(
    hotloop: Callable, project: Path
) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    done = hotloop("benchmark", "loops.py:two_stages", *BRIEFLY, cwd=project, **ascii_only)
    assert Case(done, project).run.complete
