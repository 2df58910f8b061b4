"""The benchmark of a card does all of its parts, goes on, keeps to its time, and tells failures."""

import importlib
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from hotloop.errors import CapacityError
from support.fake_card import fake_card

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
KINDS = ["tests", "bits", "backward", "copies", "ladder of 3 days", "floors", "ensembles"]
SMALL = ["--sizes=300", "--days=3", "--turns=2", "--replicates=2"]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    made = importlib.import_module("population_gpu")
    monkeypatch.setattr(made, "DAYS", 6)
    monkeypatch.setattr(made, "SEEDS", (0, 1))
    yield made
    for name in set(sys.modules) - before:  # the scripts' own names are common ones
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(BENCHMARKS)):
            del sys.modules[name]


@pytest.fixture
def marked(tmp_path):
    path = tmp_path / "test_marked.py"
    path.write_text(
        "import pytest\n@pytest.mark.gpu\ndef test_card(): pass\ndef test_other(): assert 0\n"
    )
    return path


@pytest.fixture
def no_tests(script, monkeypatch):
    """Without a pytest of its own, which takes as long as all the rest."""
    row = {"name": "tests", "exit": 0, "last": "none", "problems": []}
    monkeypatch.setattr(script, "marked_tests", lambda _options: [row])


@pytest.fixture
def run(script, marked, tmp_path, capsys):
    """Run the script; returns its page and the lines of its results."""

    def run(*arguments, device="cpu"):
        page, results = tmp_path / "page.md", tmp_path / "results.jsonl"
        script.main(
            [
                f"--device={device}", *SMALL, f"--tests={marked}", f"--results={results}",
                f"--markdown={page}", *arguments,
            ]
        )  # fmt: skip
        printed = capsys.readouterr().out
        assert printed == page.read_text() + "\n", "the page is printed once, at the end"
        return page.read_text(), [json.loads(line) for line in results.read_text().splitlines()]

    return run


def rows_of(lines, kind):
    return next(line["rows"] for line in lines if line["kind"] == kind)


def test_all_parts_are_done_and_written(run, script) -> None:
    page, lines = run()
    assert [line["kind"] for line in lines] == KINDS
    assert "Nothing was left out." in page
    assert "a stand-in of CPU tensors" in page
    assert "1/2 tests collected" in page
    assert "**Equal bit for bit.**" in page
    assert "The gradients agree." in page
    assert "DIFFER" not in page
    ladder = rows_of(lines, "ladder of 3 days")
    assert [row["name"] for row in ladder] == [
        "substeps, a call a day", "substeps, all days in a call", "captured graph",
        "captured graph, mixed precision", script.CPU,
    ]  # fmt: skip
    assert all(len(row["ms"]) == 2 and min(row["ms"]) > 0 for row in ladder)
    floors = {row["name"]: row for row in rows_of(lines, "floors")}
    assert set(floors) == {"captured graph", "copy", "gather of 4 bytes", "gather of 1 byte"}
    assert floors["copy"]["moved"] > floors["copy"]["floor"] > 0
    copies = rows_of(lines, "copies")
    assert [row["copied"] > 300 * 5 for row in copies] == [False, True, True] * 2
    bits = rows_of(lines, "bits")
    assert [row["name"] for row in bits] == ["seed 0", "seed 1"]
    assert bits[1]["infected"] > 10
    assert [row["agents"] for row in rows_of(lines, "ensembles")] == [600] * 4
    gradients = [row["gradient"] for row in rows_of(lines, "backward")]
    assert all(gradient == gradients[0] and gradient[0] > 0 for gradient in gradients)
    for name in ladder + copies:
        assert f"| {name['name']} |" in page


@pytest.mark.slow
@pytest.mark.usefixtures("no_tests")
def test_a_run_that_was_broken_off_goes_on(run, tmp_path) -> None:
    _, lines = run()
    results = tmp_path / "results.jsonl"
    kept = [json.dumps(line) for line in lines[:5]]
    other = json.dumps({**lines[6], "key": {"card": "another"}})
    results.write_text("\n".join([*kept, other]) + '\n{"job": "brok')
    page, again = run()
    assert again[:5] == lines[:5], "what was done is not done again"
    assert [line["kind"] for line in again[6:]] == KINDS[5:]
    assert "Nothing was left out." in page
    assert run()[1] == again


def test_time_leaves_out_the_largest_first(run, script, monkeypatch) -> None:
    """Every job takes a second for each 300 agents on this clock, of which 12 are there."""
    now = [0.0]
    plan = script.planned

    def timed(job):
        def work():
            now[0] += job.size / 300
            return [{"name": "a way", "ms": [1.0, 1.0], "agents": job.size, "peak": 0}]

        return replace(job, run=work)

    def ladders(*given):
        return [timed(job) for job in plan(*given) if job.kind.startswith("ladder")]

    monkeypatch.setattr(script, "planned", ladders)
    monkeypatch.setattr(script, "Session", partial(script.Session, clock=lambda: now[0]))
    page, lines = run("--sizes=300,600,900,3000", f"--minutes={12 / 60 / script.USED_SHARE}")
    assert [line["size"] for line in lines] == [300, 600, 900]
    assert "**Left out**" in page
    assert "- ladder of 3 days 3,000 agents: about 10 s needed, 6 s left" in page
    assert run("--sizes=300,3000", "--minutes=1")[1][-1]["size"] == 3000


@pytest.mark.slow
@pytest.mark.usefixtures("no_tests")
def test_a_size_that_does_not_fit_is_reported_in_its_row(run, script, monkeypatch) -> None:
    made, probes = script.made, script.Ladder._probes

    def too_large(data, days, **settings):
        if settings.get("replicates") == 2 and settings.get("precision") == "mixed":
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore")
        if settings.get("record"):
            raise CapacityError("out of memory: this run needs about 9 GB")
        return made(data, days, **settings)

    def broken(_self, _network):
        raise RuntimeError("a probe broke")

    monkeypatch.setattr(script, "made", too_large)
    monkeypatch.setattr(script.Ladder, "_probes", broken)
    page, lines = run()
    ensembles = rows_of(lines, "ensembles")
    assert ["ms" in row for row in ensembles] == [True, True, False, True]
    assert "captured graph, mixed precision | out of memory: CUDA out of memory. Tried" in page
    assert "copies in the computing stream | out of memory: out of memory: this run" in page
    assert "RuntimeError: a probe broke" in page
    assert [line["kind"] for line in lines] == KINDS
    monkeypatch.setattr(script, "made", made)
    monkeypatch.setattr(script.Ladder, "_probes", probes)
    _, again = run()
    assert [line["kind"] for line in again[len(lines) :]] == ["floors"], "tried again"


@pytest.mark.slow
def test_failing_tests_are_reported_and_run_again(run, script, marked, monkeypatch) -> None:
    plan = script.planned
    monkeypatch.setattr(script, "planned", lambda *given: plan(*given)[:1])
    marked.write_text("import nothing_of_this_name\n")
    page, _ = run()
    assert "pytest ended with" in page
    assert "ERROR" in page
    marked.write_text("import pytest\n@pytest.mark.gpu\ndef test_card(): pass\n")
    page, lines = run()
    assert "1 test collected" in page
    assert "all well" in page
    assert [line["kind"] for line in lines] == ["tests", "tests"]


@pytest.mark.slow
def test_a_card_is_asked_as_it_can_be(run, monkeypatch) -> None:
    """The part for CUDA, on a card of CPU memory: events, streams, lanes, captures, memory."""
    with fake_card(monkeypatch):
        page, lines = run(device="cuda")
    assert [line["kind"] for line in lines] == KINDS
    assert "card A card of cardboard, memory 8 GiB, driver" in page
    assert "1 passed, 1 deselected" in page
    assert "**Equal bit for bit.**" in page
    assert "The gradients agree." in page
    problems = [row for line in lines for row in line["rows"] if "error" in row]
    assert problems == []
    assert rows_of(lines, "ladder of 3 days")[0]["peak"] == 2**20


def test_without_a_card_it_ends_at_once(script, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    results = tmp_path / "results.jsonl"
    with pytest.raises(SystemExit) as ended:
        script.main([f"--results={results}"])
    assert str(ended.value.code).startswith("population_gpu.py: torch sees no CUDA card")
    assert "\n" not in ended.value.code
    assert not results.exists()
