"""`hotloop optimize`: real processes, clear gains, and every way in which a trial can fail."""

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from support.wait import wait_until

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


BUDGETS_S = (10, 20, 60)  # a machine that does much else needs more time for the same search


def optimized(
    hotloop: Callable, project: Path, *words: object, reasons: Sequence[str] = ()
) -> dict:
    """What a search finds that has had time for it: a best choice, and these failed ones."""
    for budget in BUDGETS_S:
        done = hotloop("optimize", *words, "--budget", budget, "--no-advice", "--json", cwd=project)
        assert done.code == 0, done.err
        found: dict = json.loads(done.out)
        problems = " ".join(each["problem"] for each in found["trials"] if each["problem"])
        if found["best"] and all(reason in problems for reason in reasons):
            return found
    raise AssertionError(f"expected {reasons} in {problems!r}, and a best choice: {found}")


@pytest.mark.long
def test_the_best_settings_are_kept_in_a_file_that_other_verbs_read(
    hotloop: Callable, project: Path
) -> None:
    reasons = ("no such mode here", "exited with 7", "memory")
    words = ("levered.py:make", "--write", "best.yaml")
    found = optimized(hotloop, project, *words, reasons=reasons)
    assert found["best"] == {"chunk": 4}
    assert found["gain"]["low"] > 1
    saved = yaml.safe_load((project / "best.yaml").read_text())
    assert saved == {"target": "levered.py:make", "settings": {}, "levers": {"chunk": 4}}
    for words, is_set in (((), False), (("--settings-from", "best.yaml"), True)):
        (project / "tried").unlink(missing_ok=True)
        done = hotloop("benchmark", "levered.py:make", *words, "--seconds", 0.2, cwd=project)
        assert done.code == 0, done.err
        assert (project / "tried").exists() == is_set


@pytest.mark.long
def test_a_second_search_starts_from_what_the_first_one_has_written(
    hotloop: Callable, project: Path
) -> None:
    saved = {"target": "levered.py:make", "settings": {}, "levers": {"chunk": 4}}
    (project / "first.yaml").write_text(yaml.safe_dump(saved))
    words = ("levered.py:make", "--settings-from", "first.yaml", "--budget", 10, "--no-advice")
    done = hotloop("optimize", *words, "--json", cwd=project)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert {each["name"]: each["before"] for each in found["levers"]}["chunk"] == 4
    slower = [each for each in found["trials"] if each["changes"] == {"chunk": 1}]
    assert all(each["ratio"] < 0.8 for each in slower if each["ratio"] is not None)
    assert found["best"] == {}, "it was the best already"


@pytest.mark.long
def test_a_lever_that_the_loop_is_made_with_has_a_process_for_each_option(
    hotloop: Callable, project: Path
) -> None:
    words = ("levered.py:made", "size=1", "--write", "best.yaml")
    found = optimized(hotloop, project, *words, reasons=["exited with 3"])
    assert found["best"] == {"size": 4}
    assert yaml.safe_load((project / "best.yaml").read_text())["settings"] == {"size": "4"}


@pytest.mark.long
def test_the_journal_notes_the_change_and_the_report_draws_it_again(
    hotloop: Callable, project: Path
) -> None:
    optimized(hotloop, project, "levered.py:made", "--save", "one.run")
    again = hotloop("report", "one.run", "--html", "page.html", cwd=project)
    assert again.code == 0, again.err
    assert "The fastest settings" in (project / "page.html").read_text()
    overview = hotloop("repeat", "--json", cwd=project)
    assert overview.code == 0, overview.err
    assert "size=4" in overview.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("levered.py:without",), FAILED, "it has no levers"),
        (("levered.py:made", "siz=4"), FAILED, "did you mean 'size'"),
        (("levered.py:made", "size"), WRONG_USAGE, "expected a setting as name=value"),
        (("levered.py:made", "--budget", "1"), WRONG_USAGE, "5 seconds or more"),
        (("levered.py:made", "--settings-from", "none.yaml"), WRONG_USAGE, "cannot be read"),
        (("levered.py:mad",), FAILED, "did you mean 'made'"),
    ],
)
def test_bad_input_is_one_clear_message(
    hotloop: Callable, project: Path, words: tuple, code: int, message: str
) -> None:
    done = hotloop("optimize", *words, "--no-advice", cwd=project)
    assert done.code == code, done.err
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("levers: {chnk: 4}", "did you mean 'chunk'"),
        ("lever: {chunk: 4}", "did you mean 'levers'"),
        ("levers: {chunk: 3}", "expected one of [1, 4]"),
        ("levers: [chunk]", "expected names with values"),
        ("target: other.py:make", "are of other.py:make"),
        ("levers: {chunk: [4]}", "expected a number"),
        ("{", "expected YAML"),
    ],
)
def test_a_settings_file_with_a_mistake_is_refused(
    hotloop: Callable, project: Path, content: str, message: str
) -> None:
    (project / "best.yaml").write_text(content)
    done = hotloop("benchmark", "levered.py:make", "--settings-from", "best.yaml", cwd=project)
    assert done.code == WRONG_USAGE, done.err
    assert message in done.err


@pytest.mark.long
def test_an_interrupt_keeps_the_best_so_far(start: Callable, project: Path) -> None:
    command = start("optimize", "levered.py:make", "--budget", 300, "--no-advice", cwd=project)
    wait_until((project / "tried").exists, "a choice was tried")
    command.process.send_signal(signal.SIGINT)
    done = command.end()
    assert done.code == INTERRUPTED
    assert "hotloop: interrupted" in done.messages
    assert "partial run saved" in done.err
