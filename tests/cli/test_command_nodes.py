"""`hotloop benchmark ENV --simulate-nodes`: its table, its run as points, what it refuses."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from hotloop.cli.benchmark import run as benchmark
from hotloop.cli.plan import run as plan
from hotloop.errors import HotloopError, RefusedError, SettingError, TargetError
from hotloop.loop.run import Run, load


def nodes_run(busy: float = 0.3) -> Run:
    """A run as the command saves it."""
    cells = [
        (2, 0.1, "batched", None, 900.0),
        (2, 0.01, "batched", None, 7_300.0),
        (8, 0.01, "batched", None, 21_900.0),
        (2, 0.1, "fragments", 10, 955.0),
        (8, 0.01, "fragments", 100, 37_000.0),
    ]
    names = ("nodes", "step_s", "mode", "fragment_steps", "sps")
    points = [
        dict(zip(names, cell, strict=True)) | {"cores_per_node": 48, "busy": busy} for cell in cells
    ]
    settings = {"nodes": [2, 8], "step_s": [0.1, 0.01], "cores_per_node": 48, "seconds": 3.0}
    return Run("nodes", "CartPole-v1", settings, {"points": points})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    nodes_run().save(tmp_path / "nodes.run")
    return tmp_path


@pytest.mark.long
def test_its_run_is_drawn_again_and_stands_in_a_page(folder: Path, hotloop: Callable) -> None:
    done = hotloop("report", "nodes.run", cwd=folder)
    assert done.code == 0, done.err
    assert done.out.startswith("CartPole-v1  on simulated nodes")
    assert "best  8 nodes, steps of 0.01 s: fragments, 37k SPS, 96.4% of the ideal" in done.out
    assert hotloop("report", "nodes.run", "--html", "page.html", cwd=folder).code == 0
    assert "CartPole-v1 on simulated nodes" in (folder / "page.html").read_text()


def test_its_run_is_the_points_of_a_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["nodes.run", "--nodes", "16", "--step-s", "0.01", "--mode", "fragments", "--json"]
    assert plan(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert [model["mode"] for model in found["models"]] == ["batched", "fragments"]
    (prediction,) = found["predictions"]
    assert prediction["sps"] == pytest.approx(74_000, rel=0.1)


def test_points_of_a_busy_machine_are_refused(folder: Path) -> None:
    nodes_run(busy=0.95).save(folder / "busy.run")
    with pytest.raises(RefusedError, match="all 5 points were measured while at least 90%"):
        plan(["busy.run"])


def test_runs_of_other_kinds_are_refused(folder: Path) -> None:
    plan(["nodes.run", "--save", "plan.run"])
    with pytest.raises(SettingError, match=r"plan\.run is a plan run; expected one of"):
        plan(["plan.run"])


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ("CartPole-v1 --simulate-nodes 2", SettingError, "expected --step-s beside it"),
        ("CartPole-v1 --step-s 0.1", SettingError, "--step-s: expected --simulate-nodes beside"),
        ("CartPole-v1 --simulate-nodes x --step-s 1", SettingError, "whole numbers with commas"),
        ("CartPole-v1 --simulate-nodes 0 --step-s 1", SettingError, "simulate_nodes: expected a"),
        ("CartPole-v1 --simulate-nodes 2 --step-s -1", SettingError, "step_s: expected a number"),
        (
            "CartPole-v1 --simulate-nodes 2 --step-s 1 --backends all",
            SettingError,
            "expected without --simulate-nodes",
        ),
        (
            "CartPole-v1 --simulate-nodes 2 --step-s 1 --iterations 3",
            SettingError,
            "--iterations: expected without --simulate-nodes",
        ),
        ("ppo:CartPole-v1 --simulate-nodes 2 --step-s 1", SettingError, "names a loop"),
        ("CartPol-v1 --simulate-nodes 2 --step-s 1", TargetError, "did you mean 'CartPole-v1'"),
    ],
)
def test_bad_input_is_refused(
    arguments: str,
    kind: type[HotloopError],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as raised:
        benchmark(arguments.split())
    assert words in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_nodes_are_simulated_on_ray(hotloop: Callable, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    options = ("--simulate-nodes", "1,2", "--step-s", "0.05", "--cores-per-node", 4)
    done = hotloop("benchmark", "CartPole-v1", *options, "--seconds", "0.5", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    cells = json.loads(done.out)["cells"]
    assert [(c["nodes"], c["mode"]) for c in cells] == [
        (nodes, mode) for nodes in (1, 2) for mode in ("batched", "send-recv", "fragments")
    ]
    assert all(0 < cell["efficiency"] <= 1.05 for cell in cells)


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_measured(
    start: Callable, hotloop: Callable, project: Path
) -> None:
    pytest.importorskip("ray")
    options = ("--simulate-nodes", 1, "--step-s", "0.001", "--cores-per-node", 2)
    command = start(
        "benchmark",
        "slow_envs:Slow-v0",
        *options,
        "--seconds",
        1000,
        "--save",
        "n.run",
        cwd=project,
    )
    command.wait_for("measuring")
    command.process.send_signal(signal.SIGINT)
    done = command.end()
    assert done.code == 130
    assert done.messages[-1] == "hotloop: interrupted"
    assert command.alive() == []
    assert not (project / "n.run").exists() or not load(project / "n.run").complete
