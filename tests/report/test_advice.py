"""Advice in the terminal: the sentence, the place, the figures with units, and what to do."""

import io
from pathlib import Path

from rich.console import Console

from hotloop.loop.figures import Interval, Unknown
from hotloop.optimize.advice import Advice, Evidence, HotLine
from hotloop.report.advice import print_advice


def printed(*found: Advice) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_advice(console, found)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_piece_of_advice_is_printed_with_its_place_and_figures(tmp_path: Path) -> None:
    source = tmp_path / "train[1].py"
    source.write_text("x = 1\ntotal = [f(row) for row in batch]\n")
    share = Interval(0.25, 0.2, 0.3)
    text = printed(
        Advice(
            "python loop",
            "a Python loop goes over axis 0 of batch (64 × 8, float32)",
            str(source),
            2,
            "main",
            (
                Evidence("passes", 64.0),
                Evidence("memory", 2048.0, "bytes"),
                Evidence("pause", 0.0021, "s"),
                Evidence("hit rate", Interval(0.5, 0.4, 0.6), "share"),
            ),
            "write its body for the whole array",
            share,
            (HotLine(str(source), 2, "main", share),),
        )
    )
    assert "a Python loop goes over axis 0" in text
    assert f"{source}:2 main" in text
    assert "at most 25.0% [20.0, 30.0] of the time" in text
    assert "passes 64, memory 2 KiB, pause 2.1 ms, hit rate 50.0% [40.0, 60.0]" in text
    assert "do write its body" in text
    assert "25.0%  2: total = [f(row) for row in batch]" in text


def test_an_unknown_share_says_why() -> None:
    text = printed(Advice("d", "it grows", "a.py", 1, "f", (), "stop", Unknown("it is memory")))
    assert "share of the time unknown: it is memory" in text


def test_no_advice_is_said() -> None:
    assert "none: no fault" in printed()
