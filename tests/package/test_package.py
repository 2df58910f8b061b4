"""The package as it is built: what is in it, and what it does in an environment of its own."""

import tarfile
import zipfile
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

import pytest

from support.installed import (
    EXTRAS,
    FOREIGN,
    LOOP,
    PROJECT,
    SERVES,
    Environment,
    build,
    copied_sources,
    needed,
)

# They load torch once more, which the extra of that name does.
LARGE = ("tianshou", "torchrl", "stable-baselines3", "dev")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied_sources(tmp_path_factory.mktemp("built") / "tree")


@pytest.fixture(scope="module")
def sdist(tree: Path) -> Path:
    return build(tree, tree.parent / "sdist", "build_sdist")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as `python -m build` does it."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    return build(unpacked, folder / "wheel", "build_wheel")


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with hotloop and no extra."""
    made = Environment(tmp_path_factory.mktemp("plain") / "environment")
    made.install(wheel)
    made.link(needed(()))
    return made


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.long
def test_the_wheel_has_every_source_and_nothing_else(wheel: Path, tree: Path) -> None:
    source = tree / "src"
    files = {
        path.relative_to(source).as_posix(): path.read_bytes()
        for path in (source / "hotloop").rglob("*")
        if path.is_file()
    }
    built = contents(wheel)
    assert {name: text for name, text in built.items() if ".dist-info/" not in name} == files
    assert any(name.endswith(".jinja") for name in files)


@pytest.mark.long
def test_the_wheel_is_the_same_from_the_checkout_and_from_the_sdist(
    wheel: Path, tree: Path, tmp_path: Path
) -> None:
    assert contents(build(tree, tmp_path / "wheel", "build_wheel")) == contents(wheel)


def test_the_metadata_say_what_a_page_of_packages_shows(wheel: Path) -> None:
    built = contents(wheel)
    (name,) = (name for name in built if name.endswith(".dist-info/METADATA"))
    found = message_from_bytes(built[name])
    assert found["Requires-Python"] == ">=3.11"
    assert found["License-Expression"] == "MIT"
    assert set(found.get_all("Provides-Extra")) == set(EXTRAS)
    assert found.get_payload().startswith("# hotloop")
    assert "Operating System :: POSIX :: Linux" in found.get_all("Classifier")


@pytest.mark.long
def test_without_an_extra_nothing_heavy_is_installed_or_loaded(
    plain: Environment, tmp_path: Path
) -> None:
    code = (
        "import sys, importlib.util, hotloop\n"
        "for name in hotloop.__all__: getattr(hotloop, name)\n"
        "print([m for m in ('torch', 'ray', 'pandas', 'scipy') if m in sys.modules])\n"
        "print([m for m in ('torch', 'ray', 'pandas', 'scipy') if importlib.util.find_spec(m)])"
    )
    done = plain.run("python", "-c", code, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n[]\n", "")


def test_help_and_version_need_no_extra(plain: Environment, tmp_path: Path) -> None:
    for words in (["hotloop", "--help"], ["python", "-m", "hotloop", "--help"]):
        done = plain.run(*words, cwd=tmp_path)
        assert done.returncode == 0
        assert done.stdout.startswith("usage: hotloop VERB")
    assert plain.run("hotloop", "--version", cwd=tmp_path).stdout == PROJECT["version"] + "\n"


@pytest.mark.long
def test_from_doctor_to_the_first_page_needs_no_extra(plain: Environment, tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    for words in (
        ["doctor", "--seconds", "0.2"],
        ["benchmark", "loop.py:make_loop", "--seconds", "1", "--save", "first.run"],
        ["report", "first.run", "--html", "page.html"],
    ):
        done = plain.run("hotloop", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "env steps/s" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert list(plain.home.iterdir()) == [], "something was left in the home folder"


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["train", "ppo:CartPole-v1"], "torch"),
        (["simulate", "covid:astoria"], "torch"),
        (["benchmark", "ppo:CartPole-v1"], "torch"),
        (["benchmark", "covid:astoria"], "torch"),
        (["simplify", "impala:CartPole-v1"], "torch"),
        (["benchmark", "boids"], "torch"),
        (["optimize", "apex:CartPole-v1"], "optimize"),
        (["profile", "appo:CartPole-v1", "--time"], "torch"),
        (["benchmark", "CartPole-v1", "--backends", "ray"], "ray"),
        (["benchmark", "loop.py:make_loop", "--trace", "a.perfetto"], "profile"),
        (["plan", "--points", "points.csv", "--simulate"], "plan"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_what_an_extra_is_missing_for_is_said_in_one_sentence(
    plain: Environment, tmp_path: Path, words: list[str], extra: str
) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "points.csv").write_text(
        "nodes,cores_per_node,step_s,sps\n1,8,0.01,700\n2,8,0.01,1400\n4,8,0.01,2700\n"
    )
    done = plain.run("hotloop", *words, cwd=tmp_path)
    assert done.returncode in (1, 2)
    (said,) = done.stderr.splitlines()
    assert f"pip install 'hotloop[{extra}]'" in said


def test_every_extra_is_here_with_what_it_serves() -> None:
    assert set(SERVES) == set(EXTRAS)


@pytest.mark.parametrize(
    "extra", [pytest.param(e, marks=[pytest.mark.slow] if e in LARGE else []) for e in EXTRAS]
)
def test_an_extra_brings_all_that_it_serves(
    extra: str, plain: Environment, tmp_path_factory: pytest.TempPathFactory
) -> None:
    try:
        distributions = needed([extra])
    except metadata.PackageNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed here; the slow tests install it")
    folder = tmp_path_factory.mktemp(extra)
    made = Environment(folder / "environment")
    (made.packages / "hotloop").symlink_to(plain.packages / "hotloop")
    made.link(distributions)
    done = made.run("python", "-c", FOREIGN + SERVES[extra], cwd=folder)
    assert done.returncode == 0, done.stderr
