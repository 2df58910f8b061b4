"""The benchmark of a learner's update: rungs in turns, what needs a card is named, and its page."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from hotloop.learn import optimiser_step

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SMALL = "small: CartPole, 2 x 64 units"


@pytest.fixture
def ladder(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("learner_ladder")
    monkeypatch.setattr(module, "TURN_S", 0.0)
    monkeypatch.setattr(module, "BATCH", module.BATCH | {"fragment_steps": 4})
    # What is compiled takes minutes: here there is nothing to compile with.
    monkeypatch.setattr(optimiser_step, "_COMPILERS", ())
    monkeypatch.delenv("CXX", raising=False)
    yield module
    for name in ("learner_ladder", "tables", "league.process", "league"):
        sys.modules.pop(name, None)


def test_rungs_take_turns_and_those_that_cannot_run_here_are_named(ladder):
    line = ladder.measured(SMALL, "cpu", 3600.0)
    assert line["rungs"] == ["plain", "bfloat16"]
    assert len(line["rates"]) == ladder.ROUNDS
    assert all(rate > 0 for rates in line["rates"] for rate in rates)
    assert set(line["left_out"]) == set(ladder.RUNGS) - {"plain", "bfloat16"}
    assert "has no CUDA graphs" in line["left_out"]["graph"]
    assert "expected a C++ compiler" in line["left_out"]["compile"]
    rows, epochs = 8 * 4, ladder.BATCH["epochs"]
    # Forwards, and backwards to the weights and to all layers but the first: a pair of nets each.
    forwards = 2 * 2 * (4 * 64 + 64 * 64 + 64 * 2)
    backwards = forwards + 2 * 2 * (64 * 64 + 64 * 2)
    assert line["flops"] == rows * epochs * (forwards + backwards)
    assert 0 < line["coverage"] < 1


def test_no_time_leaves_rungs_out_and_says_so(ladder):
    line = ladder.measured(SMALL, "cpu", 0.0)
    assert line["rungs"] == ["plain"]
    assert line["left_out"]["bfloat16"] == "no time was left"
    assert len(line["rates"]) == ladder.MIN_ROUNDS


def test_the_page_has_rates_ratios_and_shares_of_the_peak(ladder, tmp_path, capsys):
    peak = {"flops_per_s": 1e10, "bytes_per_s": 1e9, "device": "cpu", "how": "planted"}
    line = {
        "network": SMALL,
        "device": "cpu",
        "name": "CPU",
        "rungs": ["plain", "bfloat16"],
        "rates": [[10.0, 20.0]] * 4,
        "first_s": [0.1, 0.2],
        "flops": 1e8,
        "coverage": 0.5,
        "left_out": {"graph": "no card"},
        "machine": "Some processor, 2 cores, 2026-01-01",
        "peaks": {"float32": peak, "bfloat16": peak | {"flops_per_s": 4e10}},
    }
    results, page = tmp_path / "r.jsonl", tmp_path / "page.md"
    older = line | {"rates": [[1.0, 1.0]] * 3}
    results.write_text("".join(json.dumps(each) + "\n" for each in (older, line)))
    ladder.main(["--page-only", "--results", str(results), "--markdown", str(page)])
    text = page.read_text()
    assert capsys.readouterr().out.strip() == text.strip()
    assert "| plain | 10 |  | 10.00% | 0.1 | 4 |" in text
    assert "| bfloat16 | 20 | 2.00 [2.00, 2.00] | 5.00% | 0.2 | 4 |" in text
    assert "- graph: no card" in text
    assert "No card was measured yet." in text
    assert "\n\nSome processor, 2 cores, 2026-01-01.\n\n" in text
