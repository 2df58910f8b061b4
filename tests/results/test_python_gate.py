"""Gates from Python: the result, and what an error leaves of it."""

import sys
from pathlib import Path

import pytest

import hotloop
from hotloop.errors import SettingError, SideError

WORK = "{python} -S -c 'sum(range({turns}))'"


def command(turns: int) -> str:
    return WORK.format(python=sys.executable, turns=turns)


def test_a_gate_returns_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = hotloop.run_gate(command(1_000_000), command(8_000_000), worse=0.8, budget=90)
    assert isinstance(result, hotloop.GateResult)
    assert result.verdict.verdict == "passed"
    assert result.to_dict()["verdict"] == "passed"
    assert repr(result).startswith("passed  less than 80% slower: B's time")
    assert result.run.settings == {"budget": 90, "worse": 0.8, "seed": 0}
    assert result.save("a.run") == Path("a.run")
    assert not Path(".hotloop").exists()


def test_what_was_measured_before_a_crash_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Four runs are fine: the first of either side is not counted.
    (tmp_path / "crash.py").write_text(
        "import pathlib, sys\n"
        "runs = pathlib.Path('runs')\n"
        "runs.write_text((runs.read_text() if runs.exists() else '') + '.')\n"
        "sys.exit(len(runs.read_text()) > 5)\n"
    )
    crash = f"{sys.executable} -S crash.py"
    with pytest.raises(SideError, match="exited with 1") as raised:
        hotloop.run_gate(crash, command(1), worse=1e-9, budget=1000)
    partial = raised.value.result  # type: ignore[attr-defined]
    assert partial.verdict.verdict in ("cannot say", "blocked")
    assert partial.verdict.launches >= 3
    assert not partial.run.complete


def test_a_baseline_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match="Expected a commit"):
        hotloop.run_gate(command(1), "maim")
    with pytest.raises(SettingError, match="worse: expected a number above 0"):
        hotloop.run_gate(command(1), command(1), worse=0)
