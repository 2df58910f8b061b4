"""The tutorial's case: what its page says of the script and of its changes is so."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

PAGE = Path(__file__).parents[1] / "docs/tutorial.md"
FOLDER = PAGE.with_suffix("")


def module_from(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    return module_from(FOLDER / "measure.py", "tutorial_measure")


def observations(path: Path, seed: int) -> np.ndarray:
    env = module_from(path, f"rover_{seed}").Rover()
    seen = [env.reset(seed=seed)[0]]
    for step in range(60):
        seen.append(env.step((step * 7 + seed) % 3)[0])
    return np.stack(seen)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_faster_env_gives_the_same_observations(
    seed: int, measure: ModuleType, tmp_path: Path
) -> None:
    changed = Path(shutil.copy(FOLDER / "rover.py", tmp_path))
    measure.look_along_all_beams(changed)
    assert changed.read_text() != (FOLDER / "rover.py").read_text()
    before, after = observations(FOLDER / "rover.py", seed), observations(changed, seed)
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
    assert (before[:, :-2] < 1).any(), "no beam has met a wall"


def test_the_second_change_is_the_one_that_the_page_shows(
    measure: ModuleType, tmp_path: Path
) -> None:
    changed = Path(shutil.copy(FOLDER / "train.py", tmp_path))
    before = changed.read_text()
    measure.use_workers(changed)
    shown = re.findall(r"^([-+])( {4}\S.*)$", PAGE.read_text(), flags=re.M)
    assert [sign for sign, _ in shown] == ["-", "+"]
    assert shown[0][1] in before
    assert shown[1][1] in changed.read_text()


@pytest.mark.long
def test_the_training_of_the_tutorial_trains(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    module_from(FOLDER / "train.py", "tutorial_train").main(range(8))
    assert re.search(r"mean return of the last 20 episodes: -?\d", capsys.readouterr().out)
    sys.modules.pop("rover")


def test_the_page_shows_what_the_measurement_has_printed(measure: ModuleType) -> None:
    source = (FOLDER / "measure.py").read_text()
    made = set(re.findall(r'show\(folder, "(\w+)"', source))
    shown = set(re.findall(r"docs/tutorial/(\w+)\.txt", PAGE.read_text()))
    assert shown <= made == {path.stem for path in FOLDER.glob("*.txt")}
    typed = re.findall(r"^hotloop .*", PAGE.read_text(), flags=re.M)
    for command in typed:
        assert all(word in source for word in command.split()), command
