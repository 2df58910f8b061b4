"""`hotloop report`: every report can be drawn again, and a bad file is refused in a sentence."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hotloop.loop.run import FORMAT, Run, load

COMMANDS = {
    "benchmark": ("benchmark", "loops.py:two_stages", "--seconds", "0.5"),
    "simplify": ("simplify", "loops.py:two_stages", "--budget", "1"),
    "refused": ("simplify", "loops.py:two_stages", "--budget", "0.001"),
    "script": ("benchmark", "plain.py"),
}


@pytest.fixture(scope="module")
def runs(hotloop: Callable, shared_project: Path) -> dict[str, Any]:
    """What each command printed when it saved `NAME.run`."""
    return {
        name: hotloop(*command, "--save", f"{name}.run", cwd=shared_project)
        for name, command in COMMANDS.items()
    }


@pytest.mark.parametrize("verb", ["benchmark", "simplify", "refused"])
def test_it_is_byte_for_byte_what_the_verb_printed(
    hotloop: Callable, shared_project: Path, runs: dict[str, Any], verb: str
) -> None:
    again = hotloop("report", f"{verb}.run", cwd=shared_project)
    assert again.code == 0, again.err
    assert again.out
    assert again.out == runs[verb].out


def test_it_is_what_was_printed_after_the_scripts_own_output(
    hotloop: Callable, shared_project: Path, runs: dict[str, Any]
) -> None:
    again = hotloop("report", "script.run", cwd=shared_project)
    words = runs["script"].out.removesuffix(again.out)
    assert words.startswith("the script's own words")
    assert words.endswith("the script has ended True\n")


def test_a_training_is_drawn_again(hotloop: Callable, shared_project: Path) -> None:
    pytest.importorskip("torch")
    trained = hotloop(
        "train",
        "ppo:CartPole-v1",
        "--total-steps",
        "256",
        "--num-envs",
        "2",
        "--hidden-size",
        "8",
        "--save",
        "train.run",
        cwd=shared_project,
    )
    assert trained.code == 1, trained.err  # not solved
    again = hotloop("report", "train.run", cwd=shared_project)
    assert again.out == trained.out
    assert again.out


def test_two_benchmarks_are_compared(
    hotloop: Callable, shared_project: Path, runs: dict[str, Any]
) -> None:
    done = hotloop("report", "benchmark.run", "benchmark.run", cwd=shared_project)
    assert done.code == 0, done.err
    assert done.out.startswith(runs["benchmark"].out * 2)
    assert "against the first" in done.out


@pytest.mark.parametrize("names", [("benchmark",), ("simplify",), ("benchmark", "simplify")])
def test_json_is_valid_and_alone(
    hotloop: Callable, shared_project: Path, runs: dict[str, Any], names: tuple[str, ...]
) -> None:
    done = hotloop("report", *(f"{name}.run" for name in names), "--json", cwd=shared_project)
    assert done.code == 0, done.err
    json.loads(done.out)


@pytest.fixture
def good(runs: dict[str, Any], shared_project: Path) -> Path:
    return shared_project / "benchmark.run"


def rewritten(run: Path, into: Path, **header: object) -> Path:
    """A copy of a run with other words in its header."""
    with zipfile.ZipFile(run) as before, zipfile.ZipFile(into, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            if name == "run.json":
                content = json.dumps(json.loads(content) | header).encode()
            after.writestr(name, content)
    return into


def check_refused(hotloop: Callable, path: Path, *words: str) -> None:
    done = hotloop("report", path, cwd=path.parent)
    assert done.code == 1
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    for word in words:
        assert word in done.err


def test_a_file_cut_short_gives_one_sentence(hotloop: Callable, good: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.run"
    cut.write_bytes(good.read_bytes()[:-100])
    check_refused(hotloop, cut, "cut.run", "cut short")


def test_a_file_of_a_newer_version_gives_one_sentence(
    hotloop: Callable, good: Path, tmp_path: Path
) -> None:
    newer = rewritten(good, tmp_path / "newer.run", hotloop_run=FORMAT + 1)
    check_refused(hotloop, newer, "newer hotloop", f"format {FORMAT + 1}")


def test_a_file_that_is_not_ours_gives_one_sentence(hotloop: Callable, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("nothing to see here\n")
    check_refused(hotloop, notes, "is no hotloop run")


def test_a_file_that_is_not_there_gives_one_sentence(hotloop: Callable, tmp_path: Path) -> None:
    check_refused(hotloop, tmp_path / "gone.run", "no such run")


def test_a_run_of_a_verb_we_do_not_know_gives_one_sentence(
    hotloop: Callable, good: Path, tmp_path: Path
) -> None:
    other = rewritten(good, tmp_path / "other.run", verb="juggle")
    check_refused(hotloop, other, "juggle")


def test_a_run_without_its_samples_gives_one_sentence(hotloop: Callable, tmp_path: Path) -> None:
    path = Run("benchmark", "x.py", settings={}).save(tmp_path / "bare.run")
    assert load(path).arrays == {}
    check_refused(hotloop, path, "bare.run")


def test_one_bad_file_does_not_hide_which(hotloop: Callable, good: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("nothing to see here\n")
    done = hotloop("report", good, notes, cwd=tmp_path)
    assert done.code == 1
    assert "notes.txt" in done.err
