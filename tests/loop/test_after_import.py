"""Calling back when a module is imported."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from hotloop.loop.after_import import after_import


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules named late_…, which are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("late_")]:
        del sys.modules[name]


def test_a_module_that_is_there_is_called_with_at_once() -> None:
    calls: list[ModuleType] = []
    remove = after_import("pathlib", calls.append)
    assert calls == [sys.modules["pathlib"]]
    remove()


def test_each_of_two_is_called_once_when_the_module_has_run(folder: Path) -> None:
    (folder / "late_one.py").write_text("value = 1\n")
    calls: list[tuple[str, int]] = []
    finders = list(sys.meta_path)
    for name in ("first", "second"):
        after_import("late_one", lambda module, name=name: calls.append((name, module.value)))
    assert importlib.util.find_spec("late_one") is not None
    assert calls == []
    module = importlib.import_module("late_one")
    assert sorted(calls) == [("first", 1), ("second", 1)]
    assert "exec_module" not in vars(module.__loader__)
    assert sys.meta_path == finders
    importlib.reload(module)
    assert len(calls) == 2


def test_nothing_is_called_after_giving_up(folder: Path) -> None:
    (folder / "late_two.py").write_text("")
    calls: list[ModuleType] = []
    remove = after_import("late_two", calls.append)
    spec = importlib.util.find_spec("late_two")
    remove()
    remove()
    importlib.import_module("late_two")
    assert spec is not None
    assert calls == []


def test_an_import_that_fails_is_waited_for_again(folder: Path) -> None:
    (folder / "late_three.py").write_text("raise ValueError\n")
    calls: list[ModuleType] = []
    after_import("late_three", calls.append)
    with pytest.raises(ValueError):  # noqa: PT011
        importlib.import_module("late_three")
    assert calls == []
    (folder / "late_three.py").write_text("value = 'now it works'\n")
    importlib.invalidate_caches()
    importlib.import_module("late_three")
    assert len(calls) == 1
