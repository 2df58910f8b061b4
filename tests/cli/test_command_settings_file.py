"""`--settings-from`: every verb that runs a target reads the file; the others say why not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hotloop.cli.chosen import TAKE_NONE
from hotloop.cli.main import VERBS
from hotloop.loop.run import load

pytest.importorskip("torch")
WRONG_USAGE = 2
NOTED = "levered.py:noted"
WITH = f"{NOTED} --settings-from best.yaml"
COVID = "covid:2000"
TAKE_IT = ("benchmark", "profile", "simplify", "optimize", "train", "simulate", "calibrate")


@pytest.fixture(autouse=True)
def _best(project: Path) -> None:
    (project / "best.yaml").write_text(f"target: {NOTED}\nlevers: {{quick: true}}\n")


def write(path: Path, target: str, settings: str = "", levers: str = "") -> None:
    path.write_text(f"target: {target}\nsettings: {{{settings}}}\nlevers: {{{levers}}}\n")


def set_in(project: Path) -> list[str]:
    """In whose process the lever was set."""
    return sorted(path.name for path in project.glob("set-*"))


@pytest.mark.parametrize(
    "words",
    [
        ("benchmark", "--seconds", "0.2"),
        ("profile", "--time", "--seconds", "0.3"),
        ("simplify", "--budget", "1"),
        ("optimize", "--budget", "5", "--no-advice"),
    ],
    ids=lambda words: words[0],
)
def test_a_measurement_sets_the_levers(hotloop: Callable, project: Path, words: tuple) -> None:
    verb, *rest = words
    hotloop(verb, NOTED, "--settings-from", "best.yaml", *rest, cwd=project)
    assert set_in(project) == ["set-alone"]


def test_looking_inside_a_stage_sets_them_too(hotloop: Callable, project: Path) -> None:
    words = ("--deepen", "none", "--budget", "1", "--settings-from", "best.yaml")
    hotloop("simplify", NOTED, *words, cwd=project)
    assert set_in(project) == ["set-alone"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("sides", "found"),
    [
        ((NOTED, f"SIDE=b {WITH}"), ["set-b"]),
        ((f"SIDE=a {WITH}", NOTED), ["set-a"]),
        ((f"SIDE=a {WITH}", f"SIDE=b {WITH}"), ["set-a", "set-b"]),
    ],
    ids=["after", "before", "both"],
)
def test_a_comparison_sets_them_on_the_sides_that_name_the_file(
    hotloop: Callable, project: Path, sides: tuple[str, str], found: list[str]
) -> None:
    done = hotloop("compare", *sides, "--budget", 1, "--json", cwd=project)
    assert done.code == 0, done.err
    assert set_in(project) == found


@pytest.mark.long
def test_a_gate_and_a_try_take_the_file_for_one_side(hotloop: Callable, project: Path) -> None:
    words = (f"SIDE=gate {WITH}", "--baseline", NOTED, "--budget", 1, "--cannot-say", "pass")
    done = hotloop("gate", *words, cwd=project)
    assert done.code == 0, done.err
    sides = ("--before", NOTED, "--after", f"SIDE=try {WITH}")
    done = hotloop("repeat", "try", "the best settings", *sides, "--budget", 1, cwd=project)
    assert done.code == 0, done.err
    assert set_in(project) == ["set-gate", "set-try"]


def test_a_side_says_what_is_wrong_with_its_file(hotloop: Callable, project: Path) -> None:
    write(project / "best.yaml", NOTED, levers="quik: true")
    done = hotloop("compare", NOTED, WITH, "--budget", 1, cwd=project)
    assert done.code != 0
    assert "there is no lever 'quik' here; did you mean 'quick'?" in done.err


@pytest.mark.long
def test_a_training_has_the_settings_and_sets_the_levers(hotloop: Callable, project: Path) -> None:
    target = "ppo:CartPole-v1"
    write(project / "best.yaml", target, "num_envs: 4, fragment_steps: 8, total_steps: 64")
    words = ("--settings-from", "best.yaml", "--save", "one.run", "--checkpoint-every", 0)
    done = hotloop("train", target, *words, "--fragment-steps", 16, cwd=project)
    settings = load(project / "one.run").settings
    assert (settings["num_envs"], settings["fragment_steps"]) == (4, 16), done.err
    write(project / "best.yaml", target, levers="num_envs: 16")
    done = hotloop("train", target, "--settings-from", "best.yaml", cwd=project)
    assert done.code == WRONG_USAGE
    assert "expected it under `settings`, got 16 under `levers`" in done.err


def simulated(hotloop: Callable, project: Path, *words: object) -> dict[str, Any]:
    words = ("--steps", 4, "--settings-from", "best.yaml", *words, "--save", "one.run")
    done = hotloop("simulate", COVID, *words, cwd=project, HOTLOOP_CACHE="")
    assert done.code == 0, done.err
    run = load(project / "one.run")
    (project / "one.run").unlink()
    return run.settings | {"program": run.facts["stats"]["program"]}


@pytest.mark.long
def test_a_simulation_has_the_settings_of_model_and_executor(
    hotloop: Callable, project: Path
) -> None:
    plain = "device: cpu, replicates: 3, threads: 1, active_set: auto, mortality: 0.25"
    write(project / "best.yaml", COVID, plain)
    found = simulated(hotloop, project)
    assert (found["replicates"], found["mortality"], found["active_set"]) == (3, 0.25, True)
    assert found["program"] == "fused cpu"
    assert simulated(hotloop, project, "--replicates", 2)["replicates"] == 2
    write(project / "best.yaml", COVID, "device: cpu, fused: false, active_set: false")
    found = simulated(hotloop, project)
    assert found["program"] != "fused cpu"
    assert not found["active_set"]


def test_a_calibration_begins_with_the_settings_of_the_file(
    hotloop: Callable, project: Path
) -> None:
    write(project / "best.yaml", COVID, "threads: 1, iterations: 1, mortality: 0.25", "")
    rows = "".join(f"{day},{day + 1}\n" for day in range(7))
    (project / "cases.csv").write_text("day,daily_infected\n" + rows)
    words = ("--target", "cases.csv", "--settings-from", "best.yaml", "--replicates", 4)
    words += ("--interval-replicates", 4, "--save", "one.run")
    done = hotloop("calibrate", COVID, *words, cwd=project, HOTLOOP_CACHE="")
    assert done.code == 0, done.err
    assert load(project / "one.run").settings["iterations"] == 1


@pytest.mark.parametrize(
    ("settings", "levers", "message"),
    [
        ("thread: 1", "", "there is no setting 'thread' here; did you mean 'threads'?"),
        ("", "torch_thread: 1", "did you mean 'torch_threads'?"),
        ("", "threads: 1000", "expected it under `settings`"),
        ("active_set: true", "", "active_set: expected auto or false"),
        ("capture: true", "", "there is no setting 'capture' here"),
    ],
)
def test_a_simulation_says_what_is_wrong_with_the_file(
    hotloop: Callable, project: Path, settings: str, levers: str, message: str
) -> None:
    write(project / "best.yaml", COVID, settings, levers)
    words = ("--steps", 2, "--device", "cpu", "--settings-from", "best.yaml")
    done = hotloop("simulate", COVID, *words, cwd=project, HOTLOOP_CACHE="")
    assert done.code == WRONG_USAGE
    assert message in done.err
    assert len(done.messages) == 1


def test_a_cluster_takes_no_levers(hotloop: Callable, project: Path) -> None:
    pytest.importorskip("ray")
    write(project / "best.yaml", COVID, levers="torch_threads: 1")
    words = ("--ray", "--steps", 2, "--settings-from", "best.yaml")
    done = hotloop("simulate", COVID, *words, cwd=project, HOTLOOP_CACHE="")
    assert done.code == WRONG_USAGE
    assert "--ray: expected settings without levers" in done.err


@pytest.mark.parametrize("verb", sorted(TAKE_NONE))
def test_a_verb_that_takes_no_file_says_why(hotloop: Callable, project: Path, verb: str) -> None:
    done = hotloop(*verb.split(), "--settings-from", "best.yaml", cwd=project)
    assert done.code == WRONG_USAGE
    assert done.messages == [f"hotloop: --settings-from: {TAKE_NONE[verb]}"]


def test_every_verb_takes_the_file_or_says_why_not() -> None:
    assert {*TAKE_IT, *TAKE_NONE} == {*VERBS, "repeat try"}


def test_what_a_search_has_written_is_what_the_next_verb_reads(
    hotloop: Callable, project: Path
) -> None:
    write(project / "best.yaml", "levered.py:made", "size: 4")
    words = ("levered.py:made", "--settings-from", "best.yaml", "--seconds", 0.2, "--json")
    done = hotloop("benchmark", *words, cwd=project)
    assert done.code == 0, done.err
    assert json.loads(done.out)["units_per_s"]["value"] > 0
