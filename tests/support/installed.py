"""hotloop built and installed as a user has it: wheels, sdists, and environments of their own.

An environment made here holds the wheel and what its metadata asks for, and nothing else: the
packages are links to those of this interpreter, so that no registry is asked and nothing is copied.
What the metadata forgets cannot be imported there.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
# Only against hanging.
DEADLINE_S = 500
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: Mapping[str, list[str]] = PROJECT["optional-dependencies"]
# What each extra is for, as Python that only runs with it.
SERVES: Mapping[str, str] = {
    "torch": "import hotloop.learn.ppo, hotloop.sim.runner",
    "ray": "import hotloop.envs.ray",
    "tianshou": "import hotloop.integrations.tianshou",
    "torchrl": "import hotloop.integrations.torchrl",
    "stable-baselines3": "import hotloop.integrations.stable_baselines3",
    "pettingzoo": "import hotloop.integrations.pettingzoo, pettingzoo",
    "envpool": "import hotloop.integrations.envpool, envpool",
    "atari": "import hotloop.integrations.atari, ale_py, cv2",
    "populations": "import hotloop.populations.tables, pyarrow.parquet",
    "plan": "import hotloop.plan.simulation, simpy",
    "plot": "import hotloop.report.picture, matplotlib.figure",
    "optimize": "import hotloop.optimize.proposals, optuna",
    "tensorboard": "import tensorboard",
    "wandb": "import wandb",
    "profile": "import hotloop.profile.profile, memray, perfetto, pyinstrument",
    "docs": "import mkdocs, material, mkdocstrings",
    "peers": "import envpool, torchrl, minigrid",
    "dev": "import torch, ray, pytest, ruff, hypothesis, mypy",
}
# Warnings of packages that are imported, which are theirs.
FOREIGN = "import warnings; warnings.simplefilter('ignore')\n"
(LOOP,) = re.findall(r"```python\n(import hotloop\n.*?)```", (ROOT / "README.md").read_text(), re.S)
"""The loop that the README shows."""
_NOT_SOURCE = ("__pycache__", "*.egg-info", "build")
_HOOK = "import sys; from setuptools import build_meta; build_meta.{hook}(sys.argv[1])"


def copied_sources(into: Path) -> Path:
    """Copy what a build reads into a folder: a build in the checkout would leave files there."""
    into.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, into)
    for folder in ("src", "tests"):
        ignored = shutil.ignore_patterns(*_NOT_SOURCE)
        shutil.copytree(ROOT / folder, into / folder, ignore=ignored)
    return into


def build(tree: Path, into: Path, hook: str) -> Path:
    """Build a tree by a hook of the build backend, build_wheel or build_sdist; returns the file."""
    into.mkdir(exist_ok=True)
    words = [sys.executable, "-c", _HOOK.format(hook=hook), str(into)]
    subprocess.run(words, cwd=tree, check=True, capture_output=True, timeout=DEADLINE_S)
    (made,) = into.glob("*.whl" if hook == "build_wheel" else "*.tar.gz")
    return made


def needed(extras: Iterable[str]) -> set[str]:
    """The names of all distributions that hotloop with these extras asks for, directly or not.

    Raises: metadata.PackageNotFoundError for one that this interpreter lacks.
    """
    found: dict[str, set[str]] = {}
    todo = [("hotloop", frozenset(extras))]
    while todo:
        name, wanted = todo.pop()
        new = (wanted | {""}) - found.get(name, set())
        if new:
            found.setdefault(name, set()).update(new)
            todo += _asked_by(name, new)
    return set(found) - {"hotloop"}


def _asked_by(name: str, extras: Iterable[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for line in metadata.requires(name) or ():
        asked = Requirement(line)
        if asked.marker is None or any(asked.marker.evaluate({"extra": e}) for e in extras):
            yield canonicalize_name(asked.name), frozenset(asked.extras)


class Environment:
    """A virtual environment with the packages that were asked for, and an empty home folder."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin/python"
        self.home = folder / "home"
        self.home.mkdir()
        (self.packages,) = folder.glob("lib/python*/site-packages")

    def install(self, wheel: Path) -> None:
        """Install a wheel, without what it depends on."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet"]
        subprocess.run(
            [*pip, "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)],
            check=True,
            capture_output=True,
            timeout=DEADLINE_S,
        )

    def link(self, distributions: Iterable[str]) -> None:
        """Link packages of this interpreter, by the names of their distributions."""
        for name in distributions:
            files = metadata.distribution(name)
            for top in {file.parts[0] for file in files.files or ()} - {"..", "__pycache__"}:
                place = self.packages / top
                if not place.exists():
                    place.symlink_to(Path(str(files.locate_file(top))).resolve())

    def variables(self) -> dict[str, str]:
        """The environment of its processes: nothing of this one but where programs are."""
        return {
            "HOME": str(self.home),
            "PATH": os.pathsep.join([str(self.python.parent), "/usr/bin", "/bin"]),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "120",
            "PYTHONWARNINGS": "error",
        }

    def run(self, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in a folder."""
        return subprocess.run(
            [str(self.python.parent / words[0]), *words[1:]],
            cwd=cwd,
            env=self.variables(),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
