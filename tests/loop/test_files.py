"""A file is written whole or not at all; where a user asked for it, a failure is one sentence."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hotloop.errors import RunError
from hotloop.loop.files import atomic_output, atomic_path


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_the_old_content_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.txt"
    with atomic_path(path) as scratch:
        scratch.write_text("first")
        assert not path.exists()
    with atomic_path(path) as scratch:
        scratch.write_text("second")
        assert path.read_text() == "first"
    assert path.read_text() == "second"
    assert names(path.parent) == ["a.txt"]


@pytest.mark.parametrize("error", [OSError("full"), ValueError("wrong"), KeyboardInterrupt()])
def test_after_an_error_the_old_content_stays_and_nothing_else(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write() -> None:
        with atomic_path(path) as scratch:
            scratch.write_text("half")
            raise error

    with pytest.raises(type(error)):
        write()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoint"
    code = (
        "import os, signal; from pathlib import Path; from hotloop.loop.files import atomic_path\n"
        f"with atomic_path(Path({str(path)!r})) as scratch:\n"
        "    scratch.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code], timeout=100)
    assert killed.returncode == -signal.SIGKILL
    [left] = names(tmp_path)
    # Others: a living process's, one of another file, one that no process has named.
    others = [f".a.checkpoint.{os.getpid()}-1", left.replace("a.", "b."), ".a.checkpoint.1-x"]
    for name in others:
        (tmp_path / name).touch()

    def write() -> set[str]:
        with atomic_path(path) as scratch:
            scratch.write_text("whole")
        return set(names(tmp_path))

    assert write() == {"a.checkpoint", left, *others}, "it may still be written, elsewhere"
    for name in (left, *others):
        os.utime(tmp_path / name, (1, 1))
    assert write() == {"a.checkpoint", *others}


def test_two_threads_do_not_share_an_unfinished_file(tmp_path: Path) -> None:
    path, both = tmp_path / "a.txt", threading.Barrier(2, timeout=60)
    used: list[Path] = []

    def write(content: str) -> None:
        with atomic_path(path) as scratch:
            used.append(scratch)
            scratch.write_text(content)
            both.wait()

    threads = [threading.Thread(target=write, args=(text * 1000,)) for text in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(used)) == 2
    assert path.read_text() in ("a" * 1000, "b" * 1000)
    assert names(tmp_path) == ["a.txt"]


def test_the_longest_name_that_a_file_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    with atomic_path(path) as scratch:
        scratch.write_text("content")
    assert path.read_text() == "content"


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with (
        pytest.raises(RunError, match=r"the table could not be written as .*taken.*--out"),
        atomic_output(tmp_path / "taken" / "a.csv", "the table could not be written", "--out"),
    ):
        raise AssertionError("never reached: the folder cannot be made")


def test_the_renaming_may_fail_too(tmp_path: Path) -> None:
    folder = tmp_path / "a.csv"
    folder.mkdir()
    with (
        pytest.raises(RunError, match=r"could not be written .*Is a directory.*--out"),
        atomic_output(folder, "the table could not be written", "--out") as scratch,
    ):
        scratch.write_text("content")
    assert names(tmp_path) == ["a.csv"]
