"""Metrics for TensorBoard and Weights & Biases: one sink, live and final."""

import math
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from hotloop.errors import SettingError
from hotloop.loop.sinks import Sinks, WandbSink, open_sinks
from hotloop.results.send import send
from support.every_run import MAKERS


class Recorded:
    """Stands in for a run of Weights & Biases, and keeps what it is given."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.logged: list[dict[str, float]] = []
        self.axes: dict[str, Any] = {}
        self.texts: dict[str, str] = {}
        self.config = types.SimpleNamespace(update=lambda new, **_: self.texts.update(new))
        self.summary: dict[str, float] = {}
        self.finished = 0

    def define_metric(self, name: str, **settings: Any) -> None:
        self.axes[name] = settings

    def log(self, values: dict[str, float]) -> None:
        self.logged.append(values)

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Recorded]:
    """The runs that were begun at a stand-in for the package."""
    runs: list[Recorded] = []
    module = types.ModuleType("wandb")

    def init(**settings: Any) -> Recorded:
        runs.append(Recorded(**settings))
        return runs[-1]

    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    return runs


def test_live_values_and_final_ones_have_places_of_their_own(begun: list[Recorded]) -> None:
    sinks = open_sinks(wandb="speed", name="ppo")
    assert sinks is not None
    sinks.scalars({"charts/SPS": 120.0, "losses/none": math.nan}, 256)
    sinks.scalars({"charts/greedy_return": 7.0}, 128)  # of an earlier step, reported late
    sinks.final({"seconds": 3.0}, 256)
    sinks.close()
    sinks.close()
    [run] = begun
    assert run.settings == {"project": "speed", "name": "ppo"}
    assert run.axes["*"] == {"step_metric": WandbSink.STEP}
    assert run.logged == [
        {"charts/SPS": 120.0, "step": 256},
        {"charts/greedy_return": 7.0, "step": 128},
    ]
    assert run.summary == {"seconds": 3.0, "step": 256}
    assert run.finished == 1


def test_both_are_written_by_one_call(begun: list[Recorded], tmp_path: Path) -> None:
    accumulating = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    sinks = open_sinks(tmp_path, "speed")
    assert sinks is not None
    sinks.scalars({"a": 1.0}, 1)
    sinks.final({"b": 2.0}, 3)
    sinks.close()
    events = accumulating.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("a")] == [(1, 1.0)]
    assert [(e.step, e.value) for e in events.Scalars("final/b")] == [(3, 2.0)]
    assert begun[0].logged == [{"a": 1.0, "step": 1}]


def test_a_sink_that_fails_is_given_up_and_the_others_go_on(
    begun: list[Recorded], caplog: pytest.LogCaptureFixture
) -> None:
    sinks = Sinks([WandbSink("first", "", setting="--wandb"), WandbSink("second", "", setting="")])

    def broken(_values: object) -> None:
        raise RuntimeError("the service is gone")

    begun[0].log = broken  # type: ignore[method-assign]
    for step in range(3):
        sinks.scalars({"a": 1.0}, step)
    assert caplog.text.count("the service is gone") == 1
    assert "the project first of Weights & Biases" in caplog.text
    assert len(begun[1].logged) == 3
    assert not sinks.stopped


def test_without_the_package_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SettingError, match=r"^--wandb needs .*pip install 'hotloop\[wandb\]'$"):
        open_sinks(wandb="speed")


def test_a_service_that_refuses_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("wandb")

    def init(**_settings: Any) -> None:
        raise OSError("no API key configured")

    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    with pytest.raises(SettingError, match=r"no API key configured; .*WANDB_MODE=offline"):
        open_sinks(wandb="speed")


def test_nothing_asked_for_is_nothing() -> None:
    assert open_sinks() is None


@pytest.mark.parametrize("verb", ["benchmark", "simplify", "train", "compare"])
def test_the_figures_of_a_saved_run_are_sent(verb: str, begun: list[Recorded]) -> None:
    send(MAKERS[verb](), "a", None, "speed")
    [run] = begun
    assert set(run.summary) - {"step"}
    assert run.texts["target"].startswith(f"{verb} of ")
    assert all(math.isfinite(value) for value in run.summary.values())
    assert run.finished == 1


OFFLINE = """
from hotloop.loop.sinks import open_sinks
sinks = open_sinks(wandb="speed", name="a")
sinks.scalars({"charts/SPS": 1.0}, 5)
sinks.scalars({"charts/greedy_return": 1.0}, 3)
sinks.text("target", "benchmark")
sinks.final({"rate": 2.0}, 5)
sinks.close()
"""


def test_the_package_itself_takes_them_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    env = os.environ | {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "could not be written" not in done.stderr
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
