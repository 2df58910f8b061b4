"""A disk that is full: the report is printed, earlier runs stay, nothing half-written is left."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.disks import on_disk

BRIEFLY = ("--seconds", "0.5")


def tiny_disk() -> tuple[str, ...]:
    """What starts a command on a disk of two pages, which holds an earlier run."""
    return on_disk(
        size_kb=8,
        between="echo earlier > disk/earlier.run || exit 99",
        after="ls -A disk > left; cp disk/earlier.run kept",
    )


def check_unsaved(done: Any, report: str) -> None:
    assert done.code == 1
    assert report in done.out
    assert len(done.messages) == 1
    assert "could not be saved" in done.messages[0]
    assert "--save" in done.messages[0]
    assert "Traceback" not in done.err


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "report"),
    [
        (("benchmark", "loops.py:two_stages", *BRIEFLY), "samples/s"),
        (("simplify", "loops.py:two_stages", "--budget", "1"), "gain if free"),
    ],
    ids=["benchmark", "simplify"],
)
def test_the_report_is_printed_and_an_earlier_run_stays(
    hotloop: Callable, project: Path, arguments: tuple[str, ...], report: str
) -> None:
    done = hotloop(*arguments, "--save", "disk/earlier.run", cwd=project, before=tiny_disk())
    if "no verdict" not in done.err:  # a restless machine is told that instead
        check_unsaved(done, report)
        assert "No space left" in done.messages[0]
    assert (project / "kept").read_text() == "earlier\n"
    assert (project / "left").read_text().split() == ["earlier.run"]


@pytest.mark.parametrize("place", [".", "a_file/below.run"])
def test_a_place_where_nothing_can_be_saved_costs_only_the_file(
    hotloop: Callable, project: Path, place: str
) -> None:
    (project / "a_file").touch()
    before = sorted(project.rglob("*"))
    done = hotloop("benchmark", "loops.py:two_stages", *BRIEFLY, "--save", place, cwd=project)
    check_unsaved(done, "samples/s")
    after = [path for path in sorted(project.rglob("*")) if "__pycache__" not in path.parts]
    kept = [project / ".hotloop", project / ".hotloop" / "journal.db"]  # what was measured
    assert after == sorted([*before, *kept])


def test_a_failed_run_that_cannot_be_saved_either_says_both(
    hotloop: Callable, project: Path
) -> None:
    (project / "a_file").touch()
    done = hotloop(
        "benchmark",
        "broken.py:fails_midway",
        "--seconds",
        "1",
        "--iterations",
        10**6,
        "--save",
        "a_file/below.run",
        cwd=project,
    )
    assert done.code == 1
    assert "ValueError: shard 7 is empty" in done.err
    assert "could not be saved" in done.err


def test_a_target_with_a_long_name_is_saved_by_default(hotloop: Callable, project: Path) -> None:
    deep = project / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    shutil.copy(project / "loops.py", deep / "loops.py")
    done = hotloop("benchmark", f"{deep}/loops.py:two_stages", *BRIEFLY, cwd=project)
    assert done.code == 0, done.err
    assert len(list((project / ".hotloop").glob("*.run"))) == 1
