"""Other versions of the code: real repositories, worktrees and environments."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hotloop.errors import SettingError
from hotloop.repeat.worktree import Repository
from support.git import git


def wheel(folder: Path, version: str) -> str:
    """A package of one module, ready to be installed without a network."""
    name = f"planted_dependency-{version}-py3-none-any.whl"
    about = f"planted_dependency-{version}.dist-info"
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("planted_dependency.py", f"VERSION = {version!r}\n")
        archive.writestr(
            f"{about}/METADATA",
            f"Metadata-Version: 2.1\nName: planted-dependency\nVersion: {version}\n",
        )
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return name


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = tmp_path / "project with a space"
    (top / "src" / "mine").mkdir(parents=True)
    (top / "part").mkdir()
    git(top, "init", "-q", "-b", "main")
    (top / "src" / "mine" / "__init__.py").write_text("VERSION = 1\n")
    (top / "part" / "file").write_text("one")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "one")
    git(top, "tag", "first")
    (top / "src" / "mine" / "__init__.py").write_text("VERSION = 2\n")
    (top / "later").mkdir()
    (top / "later" / "file").write_text("two")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "two")
    return top


def run_in(place: object, code: str) -> str:
    done = subprocess.run(
        [place.python, "-c", code],  # type: ignore[attr-defined]
        cwd=place.folder,  # type: ignore[attr-defined]
        env=place.environment(),  # type: ignore[attr-defined]
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_commit_is_there_while_it_is_used_and_gone_afterwards(repository: Path) -> None:
    here = Repository.of(repository / "part", "--before")
    with here.at("first", "--before") as place:
        assert (place.folder / "file").read_text() == "one"
        assert place.folder.name == "part"
        assert not (place.folder.parent / "later").exists()
        assert place.about == "at first"
        assert place.python == sys.executable
        assert run_in(place, "import mine; print(mine.VERSION)") == "1"
        folder = place.folder
    assert not folder.exists()
    assert not folder.parents[1].exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert git(repository, "status", "--porcelain") == ""


def test_it_is_gone_after_an_error_too(repository: Path) -> None:
    def broken() -> None:
        with Repository.of(repository, "--before").at("first", "--before") as place:
            folders.append(place.folder)
            raise KeyboardInterrupt

    folders: list[Path] = []
    with pytest.raises(KeyboardInterrupt):
        broken()
    assert not folders[0].exists()


def test_an_editable_package_comes_from_the_other_version(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(repository / "src"))
    with Repository.of(repository, "--before").at("first", "--before") as place:
        assert str(place.folder / "src") in place.modules
        assert run_in(place, "import mine; print(mine.VERSION)") == "1"


def test_another_checkout_is_used_where_it_is(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(repository, "worktree", "add", "-q", str(other), "first")
    here = Repository.of(repository / "part", "--before")
    place = here.elsewhere(other, "--before")
    assert place.folder == other / "part"
    assert run_in(place, "import mine; print(mine.VERSION)") == "1"
    with pytest.raises(SettingError, match="has no folder later"):
        Repository.of(repository / "later", "--before").elsewhere(other, "--before")


def test_a_folder_that_a_commit_does_not_have_is_refused(repository: Path) -> None:
    here = Repository.of(repository / "later", "--before")
    with (
        pytest.raises(SettingError, match="at first there is no folder later"),
        here.at("first", "--before"),
    ):
        pass
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.long
@pytest.mark.parametrize("how", ["requirements", "project"])
def test_other_dependencies_get_an_environment_of_their_own(repository: Path, how: str) -> None:
    wheels = {version: wheel(repository, version) for version in ("1.0", "2.0")}

    def declare(version: str) -> None:
        if how == "requirements":
            (repository / "requirements.txt").write_text(f"./{wheels[version]}\n")
        else:
            place = (repository / wheels[version]).as_uri()
            (repository / "pyproject.toml").write_text(
                f'[project]\nname = "mine"\nversion = "1"\n'
                f'dependencies = ["planted-dependency @ {place}"]\n'
            )

    for version in ("1.0", "2.0"):
        declare(version)
        git(repository, "add", "-A", "-f")
        git(repository, "commit", "-qm", version)
    here = Repository.of(repository, "--before")
    with here.at("HEAD", "--before") as same:
        assert same.python == sys.executable
    with here.at("HEAD~1", "--before") as place:
        assert place.python != sys.executable
        found = run_in(place, "import planted_dependency as p, numpy; print(p.VERSION)")
        assert found == "1.0"
        assert "hotloop" in run_in(place, "import hotloop; print(hotloop.__file__)")
        environment = Path(place.python).parents[1]
    assert not environment.exists()
    with here.at("HEAD~1", "--before", own_environment=False) as shared:
        assert shared.python == sys.executable


@pytest.mark.long
def test_dependencies_that_cannot_be_installed_are_one_message(repository: Path) -> None:
    (repository / "requirements.txt").write_text("./there-is-none-1.0-py3-none-any.whl\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "three")
    (repository / "requirements.txt").unlink()
    here = Repository.of(repository, "--before")
    with pytest.raises(SettingError, match="--shared-environment"), here.at("HEAD", "--before"):
        pass
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_it_works_in_a_hook_of_git(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    with Repository.of(repository, "--before").at("first", "--before") as place:
        assert (place.folder / "part" / "file").read_text() == "one"


def test_changes_of_tracked_files_make_a_tree_dirty(repository: Path) -> None:
    here = Repository.of(repository, "--after")
    (repository / "untracked").write_text("new")
    assert not here.is_dirty()
    (repository / "part" / "file").write_text("changed")
    assert here.is_dirty()


def test_a_missing_git_is_one_message(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingError, match="git is not installed"):
        Repository.of(repository, "--before")
