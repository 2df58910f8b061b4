"""Reading what a user writes for a side."""

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
