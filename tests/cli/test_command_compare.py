"""`hotloop compare`: real processes in turns. Clear cases only, as any machine must know them."""

import contextlib
import json
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from support.git import git
from support.wait import wait_until

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
PYTHON = sys.executable
BUSY = "sum(n * n % 7 for n in range({}))"


@pytest.fixture
def sides_left(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[psutil.Process]]:
    """Finds the processes of this test's comparisons that are still there."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv("MARK_OF_THE_TEST", mark)

    def find() -> list[psutil.Process]:
        found = []
        for each in psutil.process_iter(["cmdline"]):
            with contextlib.suppress(psutil.Error):
                is_side = "hotloop.cli.side" in (each.info["cmdline"] or [])
                if is_side and each.environ().get("MARK_OF_THE_TEST") == mark:
                    found.append(each)
        return found

    return find


def compared(hotloop: Callable, project: Path, *words: object, budget: float = 200) -> dict:
    done = hotloop("compare", *words, "--budget", budget, "--json", cwd=project)
    assert done.code == 0, done.err
    return json.loads(done.out)


# --- the answers ----------------------------------------------------------------------------


@pytest.mark.long
def test_twice_the_work_is_slower(hotloop: Callable, project: Path) -> None:
    done = hotloop("compare", "sides.py:make", "sides.py:slow", "--budget", 200, cwd=project)
    assert done.code == 0, done.err
    first, second, third = done.out.splitlines()
    assert first.startswith("slower  B takes ")
    assert "A: " in second
    assert "samples/s  sides.py:slow" in second
    assert "launches of both in" in third
    again = hotloop("report", *(project / ".hotloop").glob("*.run"), cwd=project)
    assert again.out == done.out


@pytest.mark.slow
def test_settings_and_the_environment_make_sides(hotloop: Callable, project: Path) -> None:
    found = compared(
        hotloop, project, "sides.py:make amount=5000", "AMOUNT=2000 sides.py:from_environment"
    )
    assert found["verdict"] == "faster"
    assert found["ratio"]["value"] < 0.8
    assert found["unit"] == "samples"
    assert found["rate_b"] > 1.4 * found["rate_a"]


@pytest.mark.slow
def test_equal_sides_are_the_same_within_a_wide_margin(hotloop: Callable, project: Path) -> None:
    found = compared(hotloop, project, "sides.py:make", "sides.py:make", "--margin", "90%")
    assert found["verdict"] == "same"
    assert found["bound_by_processor"]


@pytest.mark.long
def test_too_short_a_time_cannot_say(hotloop: Callable, project: Path) -> None:
    found = compared(hotloop, project, "sides.py:make", "sides.py:make", budget=0.5)
    assert found["verdict"] == "cannot say"
    assert found["needed_s"] > found["seconds"]


@pytest.mark.slow
def test_a_script_that_ends_is_started_again(hotloop: Callable, project: Path) -> None:
    found = compared(hotloop, project, "side_script.py 4000", "side_script.py 6000", budget=1)
    assert found["launches"] >= 1
    assert found["unit"] == "iterations"


@pytest.mark.long
def test_whole_commands_are_compared(hotloop: Callable, project: Path) -> None:
    quick, slow = (f'{PYTHON} -c "{BUSY.format(n)}"' for n in (10, 5_000_000))
    found = compared(hotloop, project, quick, slow)
    assert found["verdict"] == "slower"
    assert found["unit"] == "runs"


# --- versions -------------------------------------------------------------------------------


@pytest.fixture
def repository(project: Path) -> Path:
    """A repository whose second commit does twice the work of the first."""
    git(project, "init", "-q", "-b", "main")
    (project / "amount.py").write_text("AMOUNT = 2_000\n")
    (project / "version.py").write_text(
        "from amount import AMOUNT\nfrom sides import make as made\n"
        "def make():\n    return made(AMOUNT)\n"
    )
    (project / ".gitignore").write_text(".hotloop\n__pycache__\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "one")
    git(project, "tag", "quick")
    (project / "amount.py").write_text("AMOUNT = 6_000\n")
    git(project, "commit", "-qam", "two")
    return project


def only_the_working_tree(repository: Path) -> bool:
    return len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.long
def test_a_commit_is_compared_with_the_working_tree(hotloop: Callable, repository: Path) -> None:
    (repository / "amount.py").write_text("AMOUNT = 9_000\n")
    found = compared(hotloop, repository, "version.py:make", "--before", "HEAD")
    assert found["verdict"] == "slower"
    assert found["ratio"]["value"] < 3  # 1.5 and not 4.5: HEAD and not the first commit
    assert only_the_working_tree(repository)


@pytest.mark.slow
def test_two_commits_are_compared(hotloop: Callable, repository: Path) -> None:
    done = hotloop(
        *("compare", "version.py:make", "--before", "main", "--after", "quick", "--budget", 200),
        cwd=repository,
    )
    assert done.out.startswith("faster"), done.err
    assert "version.py:make at quick" in done.out
    assert only_the_working_tree(repository)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--before", "nosuch"), "no commit 'nosuch'"),
        (("--before", "quik"), "did you mean 'quick'?"),
        (("--before", "--help"), "--before"),
        (("--before", "HEAD~1", "--after", ""), "--after"),
    ],
)
def test_a_version_that_does_not_exist_is_refused(
    hotloop: Callable, repository: Path, words: tuple[str, ...], says: str
) -> None:
    done = hotloop("compare", "version.py:make", *words, cwd=repository)
    assert done.code == WRONG_USAGE
    assert says in done.err
    assert "Traceback" not in done.err
    assert only_the_working_tree(repository)


def test_changes_that_a_commit_does_not_have_are_not_forgotten(
    hotloop: Callable, repository: Path
) -> None:
    (repository / "amount.py").write_text("AMOUNT = 9_000\n")
    words = ("--before", "quick", "--after", "main")
    done = hotloop("compare", "version.py:make", *words, cwd=repository)
    assert done.code == WRONG_USAGE
    assert "has changes that are not in main" in done.err


def test_code_of_the_working_tree_is_not_taken_for_that_of_a_commit(
    hotloop: Callable, repository: Path
) -> None:
    (repository / "version.py").write_text(
        f"import sys\nsys.path.insert(0, {str(repository)!r})\n"
        "from amount import AMOUNT\nfrom sides import make as made\n"
        "def make():\n    return made(AMOUNT)\n"
    )
    git(repository, "commit", "-qam", "three")
    done = hotloop("compare", "version.py:make", "--before", "HEAD", cwd=repository)
    assert done.code == FAILED
    assert "A (version.py:make at HEAD) imports amount, sides from the working tree" in done.err
    assert only_the_working_tree(repository)


def test_no_repository_has_no_versions(hotloop: Callable, project: Path) -> None:
    done = hotloop("compare", "sides.py:make", "--before", "HEAD", cwd=project)
    assert done.code == WRONG_USAGE
    assert "in no git repository" in done.err


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "code", "says"),
    [
        ("sides.py:make", "sides.py:make unit=rows", FAILED, "A counts samples and B counts rows"),
        ("sides.py:make", "sides.py:that_dies", FAILED, "B (sides.py:that_dies) exited with 7"),
        ("sides.py:make breaks_after=50", "sides.py:make", FAILED, "ValueError: no more data"),
        ("sides.py:make", "sides.py:make ends_after=5", FAILED, "ended after"),
        ("side_script.py 5", "side_script.py 5", FAILED, "ended before one block"),
        ("sides.py:make amuont=5", "sides.py:make", FAILED, "did you mean 'amount'?"),
        ("sides.py:READY amount=5", "sides.py:make", FAILED, "READY: expected no settings, got am"),
        ("sides.py:nosuch", "sides.py:make", FAILED, "no function 'nosuch'"),
        ("sides.py:make 5", "sides.py:make", WRONG_USAGE, "settings as name=value"),
        ("sides.py:make", "true", WRONG_USAGE, "is a whole command"),
        ("false", "true", FAILED, "A (false) exited with 1"),
        ("'", "true", WRONG_USAGE, "cannot be read"),
        ("", "true", WRONG_USAGE, "names no target"),
    ],
)
def test_what_cannot_be_compared_is_one_message(
    hotloop: Callable, project: Path, a: str, b: str, code: int, says: str
) -> None:
    done = hotloop("compare", a, b, "--budget", 5, cwd=project)
    assert done.code == code
    assert says in done.err
    assert len(done.messages) == 1
    assert "Traceback" not in done.err


@pytest.mark.parametrize("files", [["__init__.py"], ["__init__.py", "cli/__init__.py"]])
def test_a_side_with_an_older_hotloop_is_one_message(
    hotloop: Callable, project: Path, files: list[str]
) -> None:
    for name in files:
        place = project / "older/hotloop" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    older = f"PYTHONPATH={project / 'older'} sides.py:make"
    done = hotloop("compare", "sides.py:make", older, "--budget", 5, cwd=project)
    assert done.code == FAILED
    (message,) = done.messages
    assert " sides.py:make): expected this version of hotloop where" in message
    assert "got an older one or none; install it there" in message


def test_one_side_alone_is_refused(hotloop: Callable, project: Path) -> None:
    done = hotloop("compare", "sides.py:make", cwd=project)
    assert done.code == WRONG_USAGE
    assert "--before and --after" in done.err


# --- interrupts -----------------------------------------------------------------------------


@pytest.mark.long
def test_an_interrupt_keeps_what_was_measured(
    start: Callable, project: Path, sides_left: Callable
) -> None:
    command = start("compare", "sides.py:that_says_when", "sides.py:make", cwd=project)
    command.wait_for("measuring")
    turns: list[int] = []

    def have_taken_turns() -> bool:
        stopped = [
            each.pid
            for each in psutil.Process(command.process.pid).children()
            if each.status() == psutil.STATUS_STOPPED
        ]
        if len(stopped) == 1 and stopped != turns[-1:]:
            turns.extend(stopped)
        return len(turns) > 8

    wait_until(have_taken_turns, "the sides take turns")
    command.process.send_signal(signal.SIGINT)
    done = command.end()
    assert done.code == INTERRUPTED
    assert done.messages == ["hotloop: interrupted"]
    assert "partial run saved" in done.err
    assert done.out.startswith("cannot say")
    assert sides_left() == []


@pytest.mark.long
def test_nothing_is_left_of_a_killed_comparison(
    start: Callable, repository: Path, sides_left: Callable
) -> None:
    words = ("compare", "sides.py:that_says_when", "--before", "HEAD")
    command = start(*words, cwd=repository)
    wait_until(lambda: len(sides_left()) == 2, "both sides are there")
    command.process.kill()
    wait_until(lambda: not sides_left(), "no side is there")
    wait_until(lambda: only_the_working_tree(repository), "the worktree is gone")
