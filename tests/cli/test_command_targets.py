"""The ways in from the command line, and the options that every measurement has."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hotloop.loop.run import load

BRIEFLY = ("--seconds", "0.5")


@pytest.fixture(scope="module")
def benchmarked(hotloop: Callable, shared_project: Path) -> Any:
    return hotloop(
        "benchmark",
        "loops.py:two_stages",
        *BRIEFLY,
        "--price-per-hour",
        "3.6",
        "--save",
        "kept/here.run",
        cwd=shared_project,
    )


def test_a_function_in_a_file_is_benchmarked(benchmarked: Any) -> None:
    assert benchmarked.code == 0, benchmarked.err
    assert "samples/s" in benchmarked.out
    for stage in ("load", "train"):
        assert stage in benchmarked.out
    assert "Traceback" not in benchmarked.err


def test_the_price_gives_a_cost(benchmarked: Any, shared_project: Path) -> None:
    assert "at 3.6 an hour" in benchmarked.out
    assert load(shared_project / "kept/here.run").settings["price_per_hour"] == 3.6


def test_a_run_is_saved_where_asked_and_nowhere_else(
    benchmarked: Any, shared_project: Path
) -> None:
    run = load(shared_project / "kept/here.run")
    assert run.complete
    assert run.verb == "benchmark"
    assert len(run.arrays["duration_ns"]) > 2
    assert [path.name for path in (shared_project / ".hotloop").iterdir()] == ["journal.db"]
    assert [path.name for path in (shared_project / "kept").iterdir()] == ["here.run"]


def test_the_command_that_draws_a_run_again_can_be_pasted(hotloop: Callable, project: Path) -> None:
    done = hotloop(
        "benchmark", "loops.py:two_stages", *BRIEFLY, "--save", "my [best] run.run", cwd=project
    )
    command = shlex.split(done.err.strip().removeprefix("run saved: "))
    assert command == ["hotloop", "report", "my [best] run.run"]


def test_json_is_all_there_is_on_standard_output(hotloop: Callable, project: Path) -> None:
    done = hotloop("benchmark", "loops:two_stages", *BRIEFLY, "--json", cwd=project)
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert summary["unit"] == "samples"
    assert [stage["name"] for stage in summary["stages"]] == ["load", "train"]
    low, value, high = (summary["units_per_s"][key] for key in ("low", "value", "high"))
    assert 0 < low <= value <= high
    saved = list((project / ".hotloop").glob("*.run"))
    assert len(saved) == 1
    assert "benchmark-loops-two_stages" in saved[0].name


def test_a_script_as_it_stands_runs_to_its_end_with_its_arguments(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("benchmark", "plain.py", "--", "--fast", "-n", "3", cwd=project)
    assert done.code == 0, done.err
    assert """the script's own words, given ["__main__", "--fast", "-n", "3"]""" in done.out
    assert "the script has ended True" in done.out
    # It was a throw-away copy: the first line said so, and nothing that it wrote is there.
    assert "throw-away" in done.err.splitlines()[0]
    assert not (project / "arguments.json").exists()
    assert not (project / "ended").exists()
    assert "whole process" in done.out


def test_json_stays_alone_when_a_script_prints(hotloop: Callable, project: Path) -> None:
    done = hotloop("benchmark", "plain.py", "--json", cwd=project)
    assert done.code == 0, done.err
    assert json.loads(done.out)["target"] == "plain.py"


@pytest.mark.long
def test_a_script_without_iterations_is_stopped_soon(hotloop: Callable, project: Path) -> None:
    done = hotloop("benchmark", "endless.py", "--seconds=0.5", cwd=project)
    assert done.code == 0, done.err
    assert not (project / "ended").exists()


def test_a_script_with_iterations_is_measured_between_them(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("benchmark", "marked.py", *BRIEFLY, "--save", "m.run", cwd=project)
    assert done.code == 0, done.err
    assert "samples/s" in done.out
    assert "past the loop" not in done.out
    run = load(project / "m.run")
    assert run.facts["iterations_marked_by"] == "hotloop.iterations"
    assert set(run.arrays["units"]) == {10.0}


@pytest.mark.long
def test_a_script_with_stages_alone_shows_its_iterations_by_them(
    hotloop: Callable, project: Path
) -> None:
    # Stages are watched for a second before one of them is chosen.
    done = hotloop("benchmark", "staged.py", "--seconds", "2", "--save", "s.run", cwd=project)
    assert done.code == 0, done.err
    run = load(project / "s.run")
    assert "'load'" in run.facts["iterations_marked_by"]
    assert {stage["name"] for stage in run.facts["stages"]} == {"load", "train"}
    assert len(run.arrays["duration_ns"]) > 2


def test_a_loop_with_two_stages_gets_a_verdict_as_json(hotloop: Callable, project: Path) -> None:
    done = hotloop(
        "simplify", "loops.py:two_stages", "--budget", "1", "--json", "--save", "v.run", cwd=project
    )
    verdict = json.loads(done.out)
    assert {row["name"] for row in verdict["rows"]} == {"load", "train"}
    # A restless machine may be refused a verdict; then the exit code says so.
    assert done.code == (0 if verdict["refused"] is None else 1)
    assert load(project / "v.run").complete


@pytest.mark.long
def test_a_script_with_stages_can_be_simplified(hotloop: Callable, project: Path) -> None:
    done = hotloop("simplify", "staged.py", "--budget", "2", "--save", "v.run", cwd=project)
    assert "delayed only" in done.out  # the effectful source
    assert load(project / "v.run").complete
    assert done.code in (0, 1)
    assert "Traceback" not in done.err
