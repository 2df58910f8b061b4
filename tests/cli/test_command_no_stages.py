"""Scripts in which there is nothing to replace are answered soon; slow ones are waited for."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hotloop.errors import LoopError
from hotloop.loop.run import load
from hotloop.results import session, simplify
from hotloop.results.simplify import run_simplify

LONG = ("--budget", "50")


def written(folder: Path, text: str) -> Path:
    (folder / "own.py").write_text(text)
    return folder / "own.py"


@pytest.mark.long
def test_a_script_that_uses_nothing_that_is_known_is_stopped_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "NO_LIBRARY_S", 0.5)
    path = written(tmp_path, "import time\nwhile True:\n    time.sleep(0.01)\n")
    with pytest.raises(LoopError) as raised:
        run_simplify(str(path), budget=50)
    message = str(raised.value)
    assert "own.py" in message
    assert "had imported no library that is known" in message
    assert "hotloop.stage(" in message
    assert "docs/stages.md" in message


@pytest.mark.long
def test_time_spent_in_imports_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "NO_LIBRARY_S", 0.5)
    (tmp_path / "slow_import.py").write_text("import time\ntime.sleep(2)\n")
    path = written(tmp_path, "import slow_import\nprint('imported')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LoopError, match="no iterations were found"):
        run_simplify(str(path), budget=1)
    assert "imported" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("verb", [("simplify", "--budget"), ("benchmark", "--seconds")])
def test_a_script_that_loads_for_longer_than_the_time_asked_for_is_not_cut_off(
    hotloop: Callable, project: Path, verb: tuple[str, str]
) -> None:
    staged = (project / "staged.py").read_text()
    head, begin = staged.split("train = ")
    written(project, f"{head}import time\ntime.sleep(7)\ntrain = {begin}")
    done = hotloop(verb[0], "own.py", verb[1], "1.5", "--save", "v.run", cwd=project)
    assert load(project / "v.run").facts["iterations_marked_by"] == "each start of stage 'load'"
    assert "stopped" not in done.err


def test_stages_that_are_called_too_seldom_are_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simplify, "LEAST_WATCHED_S", 1.5)
    path = written(
        tmp_path,
        "import hotloop, time\nonce = hotloop.stage('once', len, effect='pure')\nonce([])\n"
        "while True:\n    time.sleep(0.01)\n",
    )
    with pytest.raises(LoopError, match="no stage had been called 4 times"):
        run_simplify(str(path), budget=1)


def test_a_script_is_stopped_in_a_thread_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "NO_LIBRARY_S", 0.5)
    path = written(tmp_path, "import time\nwhile True:\n    time.sleep(0.01)\n")
    raised: list[BaseException] = []

    def measure() -> None:
        try:
            run_simplify(str(path), budget=50)
        except LoopError as error:
            raised.append(error)

    thread = threading.Thread(target=measure, daemon=True)
    thread.start()
    thread.join(30)
    assert "had imported no library that is known" in str(raised[0])
