"""Scripts in which there is nothing to replace are answered soon; slow ones are waited for."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hotloop.errors import LoopError
from hotloop.loop.run import load
from hotloop.results import simplify
from hotloop.results.simplify import run_simplify

LONG = ("--budget", "50")


def written(folder: Path, text: str) -> Path:
    (folder / "own.py").write_text(text)
    return folder / "own.py"


def test_a_script_without_hotloop_is_not_run_at_all(hotloop: Callable, project: Path) -> None:
    done = hotloop("simplify", "endless.py", *LONG, cwd=project)
    assert done.code == 1
    (message,) = done.messages
    assert "endless.py" in message
    assert "hotloop.stage(" in message
    assert "docs/stages.md" in message
    assert not (project / ".hotloop").exists()


def test_a_script_that_makes_no_stage_is_stopped_soon(hotloop: Callable, project: Path) -> None:
    written(project, "import hotloop, time\nwhile True:\n    time.sleep(0.01)\n")
    begin = time.monotonic()
    done = hotloop("simplify", "own.py", *LONG, cwd=project)
    assert time.monotonic() - begin < 40
    assert done.code == 1
    (message,) = done.messages
    assert "no stage had been made" in message
    assert "hotloop.iterations(" in message


def test_time_spent_in_imports_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simplify, "NO_STAGES_S", 0.5)
    (tmp_path / "slow_import.py").write_text("import time\ntime.sleep(2)\n")
    path = written(
        tmp_path, "import hotloop, pathlib\nimport slow_import\npathlib.Path('imported').touch()\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LoopError, match="marks no iterations"):
        run_simplify(str(path), budget=1)
    assert (tmp_path / "imported").exists()


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
    monkeypatch.setattr(simplify, "NO_STAGES_S", 0.5)
    path = written(tmp_path, "import hotloop, time\nwhile True:\n    time.sleep(0.01)\n")
    raised: list[BaseException] = []

    def measure() -> None:
        try:
            run_simplify(str(path), budget=50)
        except LoopError as error:
            raised.append(error)

    thread = threading.Thread(target=measure, daemon=True)
    thread.start()
    thread.join(30)
    assert "no stage had been made" in str(raised[0])
