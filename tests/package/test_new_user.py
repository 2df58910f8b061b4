"""A new user's way to the first report: from the built wheel, from a clone, with each extra.

All of it asks a registry, so nothing of it is in the ordinary suite. How long it takes is printed
and asserted nowhere.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.git import git
from support.installed import EXTRAS, FOREIGN, LOOP, ROOT, SERVES, build, copied_sources

pytestmark = pytest.mark.slow
# Only against hanging: an extra may bring a gigabyte.
DEADLINE_S = 3000
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def environment(home: Path, *programs: Path) -> dict[str, str]:
    """The variables of a new user: an empty home folder, and how pip reaches its registry here."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_")
        or name in ("SSL_CERT_FILE", "TMPDIR", "http_proxy", "https_proxy")
    }
    path = os.pathsep.join([*map(str, programs), "/usr/local/bin", "/usr/bin", "/bin"])
    return kept | {"HOME": str(home), "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def run(words: list[str], cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        words, cwd=cwd, env=env, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    return build(copied_sources(folder / "tree"), folder / "wheel", "build_wheel")


@pytest.fixture(scope="module", autouse=True)
def registry(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip all of this where pip reaches no registry."""
    folder = tmp_path_factory.mktemp("asked")
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "mdurl"]
    if subprocess.run(words, cwd=folder, capture_output=True, timeout=DEADLINE_S).returncode:
        pytest.skip("pip reaches no registry of packages here")


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Lines that are printed at the end of the test, also where it passes."""
    lines: list[str] = []
    yield lines
    with capsys.disabled():
        for line in lines:
            print(f"\n{request.node.name}: {line}")


def interpreter(version: str) -> str:
    """A Python of a version that works, by the name that it has on the path; skips without one."""
    found = shutil.which(f"python{version}")
    asked = [found or "", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    if found and subprocess.run(asked, capture_output=True, text=True).stdout.strip() == version:
        return found
    pytest.skip(f"python{version} is not on this machine")


@pytest.mark.parametrize("version", PYTHONS)
def test_from_the_wheel_to_the_first_page(
    version: str, wheel: Path, tmp_path: Path, say: list[str]
) -> None:
    python = interpreter(version)
    (home := tmp_path / "home").mkdir()
    (work := tmp_path / "work").mkdir()
    (work / "loop.py").write_text(LOOP)
    programs = tmp_path / "environment/bin"
    env = environment(home, programs)
    begin = time.perf_counter()
    run([python, "-m", "venv", str(programs.parent)], work, env)
    constraints = str(ROOT / "constraints.txt")
    run([f"{programs}/pip", "install", "--quiet", "-c", constraints, str(wheel)], work, env)
    installed = time.perf_counter()
    hotloop = f"{programs}/hotloop"
    report = run([hotloop, "benchmark", "loop.py:make_loop", "--seconds", "3"], work, env)
    assert "env steps/s" in report
    first = time.perf_counter()
    (saved,) = (work / ".hotloop").glob("*.run")
    run([hotloop, "simplify", "loop.py:make_loop", "--budget", "10", "--save", "s.run"], work, env)
    run([hotloop, "report", str(saved), "s.run", "--html", "page.html"], work, env)
    assert (work / "page.html").stat().st_size > 10_000
    ended = time.perf_counter()
    assert [each.name for each in home.iterdir()] in ([], [".cache"])  # pip's own
    say.append(
        f"installed after {installed - begin:.0f} s, first report after {first - begin:.0f} s, "
        f"first page after {ended - begin:.0f} s"
    )


def test_from_a_clone_to_the_first_page(tmp_path: Path, say: list[str]) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    (home := tmp_path / "home").mkdir()
    git(tmp_path, "clone", "--quiet", str(ROOT), "clone")
    clone = tmp_path / "clone"
    env = environment(home, Path(sys.executable).resolve().parent)
    begin = time.perf_counter()
    run(["make", ".venv/ready", f"PYTHON={Path(sys.executable).resolve()}"], clone, env)
    installed = time.perf_counter()
    short = ["DEMO_SECONDS=3", "DEMO_BUDGET=12", "DEMO_OPTIMIZE=5"]
    run(["make", "demo", *short], clone, env)
    ended = time.perf_counter()
    page = (clone / "report.html").read_text()
    assert "ppo:CartPole-v1" in page
    assert git(clone, "status", "--porcelain") == ""
    say.append(f"installed after {installed - begin:.0f} s, page after {ended - begin:.0f} s")


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_wheel_is_installed_with_an_extra(
    extra: str, wheel: Path, tmp_path: Path, say: list[str]
) -> None:
    programs = tmp_path / "environment/bin"
    (home := tmp_path / "home").mkdir()
    env = environment(home, programs)
    begin = time.perf_counter()
    run([sys.executable, "-m", "venv", str(programs.parent)], tmp_path, env)
    wanted = f"hotloop[{extra}] @ {wheel.as_uri()}"
    constraints = str(ROOT / "constraints.txt")
    run([f"{programs}/pip", "install", "--quiet", "-c", constraints, wanted], tmp_path, env)
    run([f"{programs}/pip", "check"], tmp_path, env)
    run([f"{programs}/python", "-c", FOREIGN + SERVES[extra]], tmp_path, env)
    run([f"{programs}/hotloop", "--help"], tmp_path, env)
    say.append(f"installed and imported after {time.perf_counter() - begin:.0f} s")
    shutil.rmtree(tmp_path)  # a gigabyte each
