"""Whether a script uses hotloop is read from its text, before it runs."""

import sys
from pathlib import Path

import pytest

from hotloop.results.mentions import Mentions, mentions

NOTHING, NAME_ONLY = Mentions(False, False, False), Mentions(True, False, False)
STAGES, MARKED = Mentions(True, True, False), Mentions(True, False, True)


def found(folder: Path, **files: str) -> Mentions:
    """What `main` and the modules beside it mention."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return mentions(folder / "main.py", [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("print('nothing')", NOTHING),
        ("import hotloop", NAME_ONLY),
        ("# to be measured with hotloop", NAME_ONLY),
        ("import hotloop\nhotloop.state(1)", NAME_ONLY),
        ("from hotloop import state", NAME_ONLY),
        ("import hotloop\nhotloop.make_vec('CartPole-v1', 2)", NAME_ONLY),
        ("import hotloop\nwith hotloop.watch(): pass", NAME_ONLY),
        ("from hotloop.watch.lightning import WatchCallback", NAME_ONLY),
        ("from hotloop.envs import make_vec", NAME_ONLY),
        ("from hotloop.loop import Loop, stage", STAGES),
        ("from hotloop.loop import iterations", MARKED),
        ("from hotloop import envs, rollout", STAGES),
        ("import hotloop\nhotloop.stage('s', len)", STAGES),
        ("import hotloop as h\nfor x in h.iterations([]): pass", MARKED),
        ("from hotloop import iterations, state", MARKED),
        ("import hotloop as h\nh.iterations([h.stage('s', len)])", Mentions(True, True, True)),
        ("from hotloop import stage as s", STAGES),
        ("from hotloop import *", STAGES),
        ("import hotloop.rollout", STAGES),
        ("from hotloop.rollout import StepCollector", STAGES),
        ("import hotloop; this is no Python", STAGES),
        ("this is no Python", NOTHING),
    ],
)
def test_a_script_says_what_it_uses(tmp_path: Path, text: str, expected: Mentions) -> None:
    assert found(tmp_path, main=text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "import tools",
        "from tools import act",
        "def f():\n    import tools",
        "import between",
        "import package.inner",
        "from package import inner",
        "from package.inner import act",
        "from package import relative",
    ],
)
def test_the_users_own_modules_are_read_too(tmp_path: Path, text: str) -> None:
    staged = "import hotloop\nact = hotloop.stage('act', len)"
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()
    (tmp_path / "package/inner.py").write_text(staged)
    (tmp_path / "package/relative.py").write_text("from .inner import act")
    assert found(tmp_path, main=text, tools=staged, between="import tools") == STAGES


def test_modules_in_a_circle_are_read_once(tmp_path: Path) -> None:
    assert found(tmp_path, main="import one", one="import two", two="import one") == NOTHING


def test_installed_packages_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import numpy, rich, gymnasium.vector, json, missing_one")
    assert mentions(tmp_path / "main.py", sys.path) == NOTHING
