"""The version of the code: its commit, and a hash of what is not committed."""

import shutil
from pathlib import Path

import pytest

from hotloop.repeat.code_version import CodeVersion, code_version
from support.git import git

# Stands for git on the path, and counts how often it is called.
COUNTING = '#!/bin/sh\necho call >> "{log}"\nexec "{git}" "$@"\n'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.py").write_text("x = 1\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each call of git."""
    log, folder = tmp_path / "calls", tmp_path / "bin"
    folder.mkdir()
    script = folder / "git"
    script.write_text(COUNTING.format(log=log, git=shutil.which("git")))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return log


def test_a_clean_tree_has_its_commit_alone(repository: Path, calls: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    calls.unlink()
    assert code_version(repository) == CodeVersion(commit)
    assert calls.read_text().count("call") == 1


def test_a_changed_file_gives_a_hash_in_two_calls(repository: Path, calls: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    (repository / "a.py").write_text("x = 2\n")
    calls.unlink()
    found = code_version(repository)
    assert calls.read_text().count("call") == 2
    assert found.commit == commit
    assert found.diff_hash is not None


def test_the_same_change_has_the_same_hash_and_another_has_another(repository: Path) -> None:
    hashes = []
    for text in ("x = 2\n", "x = 3\n", "x = 2\n"):
        (repository / "a.py").write_text(text)
        hashes.append(code_version(repository).diff_hash)
    assert hashes[0] == hashes[2] != hashes[1]


def test_what_is_staged_counts_as_changed(repository: Path) -> None:
    (repository / "a.py").write_text("x = 2\n")
    loose = code_version(repository)
    git(repository, "add", "a.py")
    assert code_version(repository) == loose


def test_a_file_that_is_touched_but_the_same_is_no_change(repository: Path) -> None:
    (repository / "a.py").write_text("x = 1\n")
    assert code_version(repository).diff_hash is None


def test_a_folder_below_has_the_version_of_its_repository(repository: Path) -> None:
    (repository / "below").mkdir()
    assert code_version(repository / "below") == code_version(repository)


def test_nothing_is_known_outside_of_a_repository(tmp_path: Path) -> None:
    assert code_version(tmp_path) == CodeVersion()


def test_nothing_is_known_before_the_first_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert code_version(tmp_path) == CodeVersion()


def test_nothing_is_known_without_git(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))
    assert code_version(repository) == CodeVersion()


def test_variables_of_a_hook_do_not_lead_to_another_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    assert code_version(tmp_path) == CodeVersion()
