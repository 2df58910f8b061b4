"""What a gate shows: three lines, a page, a JUnit file, a comment for a code review."""

import dataclasses
import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from rich.console import Console

from hotloop.errors import RunError
from hotloop.loop.run import Run
from hotloop.repeat.gate import GateSettings
from hotloop.report.gate import GATE
from hotloop.report.gate_files import markdown, marker, write_junit, write_markdown
from hotloop.report.html import render
from hotloop.results.saved import open_run
from support.comparisons import about, record_of

BLOCKED, PASSED, UNKNOWN = (0.5, 0.0001), (0.0, 0.0001), (0.015, 0.05)
STRANGE = "a\x00b\x1b[31m<&>\"'`|--> é \ud800 🙂 x.py:f"


def run_of(
    case: tuple[float, float], *, target: str = "loop.py:make", complete: bool = True
) -> Run:
    record = record_of(about(*case, 6))
    return Run(
        verb="gate",
        target=f"{target} against itself at main",
        settings=dataclasses.asdict(GateSettings()),
        facts=record.facts() | {"sides": [f"{target} at main", f"{target} as it is"]},
        arrays=record.arrays(),
        complete=complete,
    )


def junit_of(run: Run, path: Path, *, may_pass: bool = False) -> ElementTree.Element:
    write_junit(path, GATE.summarize(run), run, may_pass=may_pass)
    return ElementTree.parse(path).getroot()


@pytest.mark.parametrize(
    ("case", "begin"),
    [
        (BLOCKED, "blocked  B takes 50.0% [49."),
        (PASSED, "passed  less than 3% slower: B's time differs by +0.0% [-0."),
        (UNKNOWN, "cannot say  B's time differs by +1.5% [-"),
    ],
)
def test_three_lines_the_decision_first(case: tuple[float, float], begin: str) -> None:
    run = run_of(case)
    console = Console(file=io.StringIO(), width=120)
    GATE.print(console, GATE.summarize(run), run)
    first, second, third = console.file.getvalue().splitlines()
    assert first.startswith(begin)
    assert ("--budget" in first) == (case == UNKNOWN)
    assert "loop.py:make at main" in second
    assert third.startswith("6 launches of both in 6 s")


def test_a_saved_one_is_drawn_again(tmp_path: Path) -> None:
    run = run_of(BLOCKED, complete=False)
    again = open_run(run.save(tmp_path / "a.run"))
    assert GATE.summarize(again) == GATE.summarize(run)
    page = render([again])
    assert "Is it slower than its baseline" in page
    assert "it was interrupted" in page


def test_a_blocked_gate_is_a_failure_in_junit(tmp_path: Path) -> None:
    root = junit_of(run_of(BLOCKED), tmp_path / "j.xml", may_pass=True)
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("1", "1", "0")
    (failure,) = root.iter("failure")
    assert failure.get("type") == "slower"
    assert "blocked: B takes 50.0%" in failure.get("message", "")


def test_a_passed_gate_is_a_plain_test_case(tmp_path: Path) -> None:
    root = junit_of(run_of(PASSED), tmp_path / "j.xml")
    (case,) = root.iter("testcase")
    assert [child.tag for child in case] == ["system-out"]
    assert case.get("name") == "loop.py:make against itself at main"
    assert (root[0].get("failures"), root[0].get("skipped")) == ("0", "0")


def test_cannot_say_is_skipped_or_a_failure_of_its_own_type(tmp_path: Path) -> None:
    root = junit_of(run_of(UNKNOWN), tmp_path / "pass.xml", may_pass=True)
    assert [e.get("message", "")[:10] for e in root.iter("skipped")] == ["cannot say"]
    assert (root[0].get("failures"), root[0].get("skipped")) == ("0", "1")
    root = junit_of(run_of(UNKNOWN), tmp_path / "fail.xml", may_pass=False)
    assert [e.get("type") for e in root.iter("failure")] == ["cannot say"]
    assert (root[0].get("failures"), root[0].get("skipped")) == ("1", "0")


def test_strange_characters_make_valid_files(tmp_path: Path) -> None:
    run = run_of(BLOCKED, target=STRANGE)
    root = junit_of(run, tmp_path / "j.xml")
    (case,) = root.iter("testcase")
    assert case.get("name", "").startswith("a\ufffdb\ufffd[31m<&>\"'`|--> é \ufffd 🙂 x.py:f")
    write_markdown(tmp_path / "m.md", GATE.summarize(run), run)
    text = (tmp_path / "m.md").read_text(encoding="utf-8")
    hidden, answer, *rows = text.splitlines()
    assert hidden == marker(run)
    assert hidden.count("-->") == 1
    assert answer.startswith("**hotloop gate: blocked: B takes 50.0%")
    for row in rows:
        if row.startswith("|"):
            assert row.replace("\\|", "").count("|") == 4


def test_the_comment_has_the_figures() -> None:
    run = run_of(BLOCKED)
    text = markdown(GATE.summarize(run), run)
    assert "| what | `loop.py:make at main` | `loop.py:make as it is` |" in text
    assert "| calls/s | 100 | 66.7 |" in text
    assert "| launches of both |  | 6 |" in text


def test_the_hidden_line_is_the_same_for_another_baseline_and_not_for_another_target() -> None:
    one, other = run_of(BLOCKED), run_of(PASSED)
    other.facts["sides"][0] = "loop.py:make at v2"
    assert marker(one) == marker(other)
    assert marker(one) != marker(run_of(BLOCKED, target="loop.py:other"))


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = run_of(BLOCKED)
    with pytest.raises(RunError, match="--junit"):
        write_junit(tmp_path / "file/j.xml", GATE.summarize(run), run, may_pass=False)
    with pytest.raises(RunError, match="--markdown"):
        write_markdown(tmp_path / "file/m.md", GATE.summarize(run), run)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("side", 2.0, "side: expected 0 for A or 1 for B"),
        ("launch", 0.5, "launch: expected numbers from 0 up"),
        ("cpu_ns", 0.0, "expected time and units of both sides in each launch"),
        ("units", 0.0, "expected time and units of both sides in each launch"),
        ("ended_s", 9.0, "ended_s: expected times that grow"),
    ],
)
def test_blocks_that_cannot_be_are_refused(
    name: str, value: float, why: str, tmp_path: Path
) -> None:
    run = run_of(BLOCKED)
    run.arrays[name][2] = value
    with pytest.raises(RunError, match=why):
        open_run(run.save(tmp_path / "a.run"))


def test_two_sides_are_expected(tmp_path: Path) -> None:
    run = run_of(BLOCKED)
    run.facts["sides"] = ["a"]
    with pytest.raises(RunError, match="sides: expected two, got 1"):
        open_run(run.save(tmp_path / "a.run"))
