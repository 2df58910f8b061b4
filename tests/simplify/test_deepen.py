"""Looking inside a stage: its children become stages, and nothing of that remains."""

import time

import pytest

from hotloop.errors import StageError
from hotloop.loop import Loop, drive, stage
from hotloop.loop.control import process_control
from hotloop.simplify.deepen import Deepening
from hotloop.simplify.settings import SimplifySettings
from support.loops import assert_near, busy


def tokenize() -> None:
    busy(0.0030)


class Model:
    """Something whose method is called inside the stage."""

    def embed(self) -> None:
        """Spends its time in two places."""
        self.look_up()
        busy(0.0005)

    def look_up(self) -> None:
        """The part that matters."""
        busy(0.0015)


def tiny() -> None:
    busy(0.000002)


@pytest.fixture
def model_loop() -> Loop:
    model = Model()

    def prepare() -> None:
        tokenize()
        model.embed()
        for _ in range(20):
            tiny()

    prepare_stage = stage("prepare", prepare, effect="pure")
    rest = stage("deepen rest", lambda: time.sleep(0.0005), effect="pure")
    return Loop(body=lambda: (prepare_stage(), rest()) and 1)


def look(loop: Loop, name: str, budget: float) -> Deepening:
    control = process_control()
    deepening = Deepening(control, SimplifySettings(budget=budget, aa_pairs=1), name, "planted")
    drive(loop, deepening.run(loop), control)
    return deepening


@pytest.mark.slow
def test_the_children_that_matter_become_stages_and_the_best_is_looked_into(
    model_loop: Loop,
) -> None:
    originals = (tokenize, Model.embed, Model.look_up)
    deepening = look(model_loop, "prepare", budget=16.0)
    first = deepening.levels[0]
    assert set(first.children) == {"prepare/tokenize", "prepare/embed"}
    assert first.verdict is not None
    gains = {row.name: row.gain for row in first.verdict.rows}
    # Of about 5.7 ms: 3 ms in one child, 2 ms in the other.
    assert_near(gains["prepare/tokenize"], 0.52)
    assert_near(gains["prepare/embed"], 0.35)
    if first.verdict.refused is None:  # else the machine was too restless to go on
        second = deepening.levels[1]
        assert second.stage == "prepare/tokenize"
        assert deepening.levels[-1].stopped is not None, "the last level says why it is the last"
    assert originals == (tokenize, Model.embed, Model.look_up), "everything is put back"
    assert any("test_deepen" in file or "loops" in file for file, *_ in first.hot_lines)


def test_a_stage_that_does_not_exist_is_named_with_those_that_do(model_loop: Loop) -> None:
    with pytest.raises(StageError, match=r"no such stage.*prepare"):
        look(model_loop, "a stage that nobody makes", budget=20.0)


def test_native_code_cannot_be_looked_into() -> None:
    sleep = stage("native sleep", time.sleep, effect="pure")
    with pytest.raises(StageError, match="native code"):
        look(Loop(body=lambda: sleep(0.001) or 1), "native sleep", budget=3.0)
