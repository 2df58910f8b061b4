"""Reading what a user writes for a side."""

from pathlib import Path

import pytest

from hotloop.errors import SettingError
from hotloop.repeat.sides import COMMAND, LOOP, TEST, parse_side


@pytest.mark.parametrize(
    ("text", "kind", "words", "settings", "variables"),
    [
        ("ppo:CartPole-v1", LOOP, ("ppo:CartPole-v1",), {}, {}),
        ("ppo:CartPole-v1 num_envs=16", LOOP, ("ppo:CartPole-v1",), {"num_envs": "16"}, {}),
        ("loops.py:make", LOOP, ("loops.py:make",), {}, {}),
        ("train.py --lr 1e-3 a=b", LOOP, ("train.py", "--lr", "1e-3", "a=b"), {}, {}),
        ("'my train.py' x", LOOP, ("my train.py", "x"), {}, {}),
        ("OMP_NUM_THREADS=2 loops.py:f", LOOP, ("loops.py:f",), {}, {"OMP_NUM_THREADS": "2"}),
        ("A=1 B='x y' true -v", COMMAND, ("true", "-v"), {}, {"A": "1", "B": "x y"}),
        ("tests/test_it.py::test_fast", TEST, ("tests/test_it.py::test_fast",), {}, {}),
        ("t.py::test_it[a=b]", TEST, ("t.py::test_it[a=b]",), {}, {}),
        ("covid:astoria", LOOP, ("covid:astoria",), {}, {}),
        ("model.yaml", LOOP, ("model.yaml",), {}, {}),
    ],
)
def test_a_side_is_what_it_looks_like(
    text: str,
    kind: str,
    words: tuple[str, ...],
    settings: dict[str, str],
    variables: dict[str, str],
) -> None:
    side = parse_side("A", text)
    assert (side.kind, side.words) == (kind, words)
    assert (dict(side.settings), dict(side.variables)) == (settings, variables)
    assert side.text == text


@pytest.fixture
def best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of settings in the working folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "best.yaml"
    path.write_text("target: train.py\nsettings: {}\nlevers: {fused_optimiser: true}\n")
    return path


@pytest.mark.parametrize("option", ["--settings-from best.yaml", "--settings-from=best.yaml"])
def test_a_script_has_the_levers_of_a_file_and_its_own_arguments(best: Path, option: str) -> None:
    side = parse_side("A", f"X=1 train.py {option} --lr 1e-3")
    assert side.words == ("train.py", "--lr", "1e-3")
    assert dict(side.levers) == {"fused_optimiser": True}


def test_what_is_written_behind_a_target_counts_more_than_its_file(best: Path) -> None:
    best.write_text("target: loops.py:make\nsettings: {a: 1, b: 2}\n")
    side = parse_side("A", "loops.py:make --settings-from best.yaml b=3")
    assert dict(side.settings) == {"a": "1", "b": "3"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.py --settings-from", "expected a file behind it"),
        ("train.py --settings-from none.yaml", "cannot be read"),
        ("other.py --settings-from best.yaml", "are of train.py, not of other.py"),
        ("t.py::test --settings-from best.yaml", "expected nothing behind a test"),
        ("loops.py:make a=1 --settings-from best.yaml", "directly behind the target"),
    ],
)
def test_a_file_that_does_not_fit_a_side_is_refused(best: Path, text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        parse_side("B", text)


def test_the_arguments_of_a_command_are_its_own(best: Path) -> None:
    side = parse_side("A", "true --settings-from best.yaml")
    assert side.words == ("true", "--settings-from", "best.yaml")


def test_variables_reach_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOTLOOP_CONTROL", "3,4")
    monkeypatch.setenv("KEPT", "yes")
    found = parse_side("A", "LEVEL=7 loops.py:make").environment()
    assert found["LEVEL"] == "7"
    assert found["KEPT"] == "yes"
    assert "HOTLOOP_CONTROL" not in found


@pytest.mark.parametrize("text", ["", "  ", "A=1", "'open", "loops.py:make fast", "t.py::test x"])
def test_what_is_no_side_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="B: "):
        parse_side("B", text)
