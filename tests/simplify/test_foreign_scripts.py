"""The benchmark of scripts that nobody adapted: its table, its memory, and what its page says."""

import ast
import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FOREIGN = sorted((BENCHMARKS / "foreign").glob("*.py"))


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("foreign_scripts")
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("foreign_scripts", "foreign_page", "foreign_table", "league"):
            del sys.modules[name]


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.stem)
def test_a_script_parses_and_knows_nothing_of_hotloop(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    assert "hotloop" not in path.read_text()


def test_the_table_names_every_script_and_its_group(harness: ModuleType) -> None:
    files = {harness.Place(name, Path("venvs")).file for name in harness.TABLE}
    assert files == {path.name for path in FOREIGN}
    for entry in harness.TABLE.values():
        assert entry.stage in entry.stages
        assert entry.steps[0] < entry.steps[1]
        requirements = " ".join(harness.GROUPS[entry.group])
        assert entry.package.split("-")[0] in requirements
    assert {entry.group for entry in harness.TABLE.values()} == set(harness.GROUPS)


def test_the_fix_is_an_option_of_each_script_that_gets_it(harness: ModuleType) -> None:
    for name, entry in harness.TABLE.items():
        text = (BENCHMARKS / "foreign" / harness.Place(name, Path("venvs")).file).read_text()
        assert ('"--fix"' in text) == ("--fix" in entry.fix)
        assert entry.fix != entry.without


def test_a_verb_gets_the_target_and_the_script_its_arguments(
    harness: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(harness, "run_command", lambda command, *_, **__: commands.append(command))
    zoo = harness.Place("rl_zoo3", Path("venvs"))
    zoo.measured("simplify", ["--json"], 1.0, fixed=False)
    zoo.plain(7, fixed=True)
    ranks = harness.Place("ddp", Path("venvs"))
    ranks.measured("benchmark", [], 1.0, fixed=True)
    program, *words = commands[0]
    assert program == "venvs/torchrl/bin/hotloop"
    assert words[:5] == ["simplify", "-m", "rl_zoo3.train", "--json", "--"]
    assert words[-2:] == ["-params", "env_wrapper:'zoo_wrapper.Ranked'"]
    assert commands[1][-2:] == ["-n", "7"]
    script = str(BENCHMARKS / "foreign" / "ddp.py")
    assert commands[2][-5:] == ["--nproc-per-node", "2", script, "1000000", "--fix"]


def test_what_the_results_hold_is_not_measured_again(harness: ModuleType, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    facts = {"script": "ddp", "package": "torch 1", "text": "a"}
    asked: list[int] = []

    def find() -> dict[str, Any]:
        asked.append(1)
        return {"plain_s": len(asked)}

    for _ in range(2):
        answers = harness.Answers(results, facts, again=False)
        assert answers.of("pair", find, pair=0)["plain_s"] == 1
    assert answers.of("pair", find, pair=1)["plain_s"] == 2
    changed = harness.Answers(results, facts | {"text": "b"}, again=False)
    assert changed.of("pair", find, pair=0)["plain_s"] == 3
    assert harness.Answers(results, facts, again=True).of("pair", find, pair=0)["plain_s"] == 4


def test_a_refusal_is_a_sentence_of_hotloop_or_of_the_process(harness: ModuleType) -> None:
    own = harness.Ended(1, "", "hotloop: no stage here\nbye", 1.0)
    assert harness._why(own) == "no stage here"
    assert (
        harness._why(harness.Ended(1, "", "KeyError: 3", 1.0)) == "ended with code 1: KeyError: 3"
    )
    assert "within 9 s" in harness._why(harness.Ended(None, "", "", 9.0))
    printed = harness.Ended(0, 'progress {3}\n{\n "rows": []\n}\nbye', "", 1.0)
    assert harness._json_of(printed) == {"rows": []}
    assert harness._json_of(own) == {}


@pytest.mark.long
def test_commands_take_turns_and_only_their_own_time_counts(
    harness: ModuleType, tmp_path: Path
) -> None:
    run_in_turns = importlib.import_module("league.process").run_in_turns
    # Each notes the time of the clock whenever it goes on, in steps much shorter than a turn.
    code = (
        "import sys, time\n"
        "with open(sys.argv[1], 'w') as out:\n"
        "    for _ in range(int(sys.argv[2])):\n"
        "        begin = time.process_time()\n"
        "        while time.process_time() < begin + 0.005: pass\n"
        "        print(time.monotonic(), file=out)\n"
        "print('done')\n"
    )
    files = [tmp_path / "long", tmp_path / "short"]
    commands = [
        [sys.executable, "-c", code, str(file), count]
        for file, count in zip(files, ("200", "100"), strict=True)
    ]
    long, short = run_in_turns(commands, 60.0, turn_s=0.2)
    assert (long.refused, short.refused) == ("", "")
    assert long.out == "done\n"
    assert long.wall_s >= 1.0
    assert short.wall_s >= 0.5
    times = [[float(line) for line in file.read_text().split()] for file in files]
    both = sorted([(at, 0) for at in times[0]] + [(at, 1) for at in times[1]])
    changes = sum(first[1] != second[1] for first, second in itertools.pairwise(both))
    # They take turns, and within a turn there are many steps of one alone.
    assert 2 <= changes <= 100


@pytest.mark.long
def test_a_command_that_does_not_end_is_killed_and_the_other_goes_on(harness: ModuleType) -> None:
    run_in_turns = importlib.import_module("league.process").run_in_turns
    endless = "import subprocess, sys; subprocess.run(['sleep', '1000.25'])"
    commands = [[sys.executable, "-c", endless], [sys.executable, "-c", "import sys; sys.exit(3)"]]
    killed, failed = run_in_turns(commands, 1.0, turn_s=0.05)
    assert "did not end" in killed.refused
    assert failed.code == 3
    running = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
    assert not any("1000.25" in command for command in running)


# --- the page ------------------------------------------------------------------------------------


MACHINE = {"processor": "Test", "cores": 2}


def lines_of(gain: float, pairs: list[tuple[float, float]], left: float = 0.0) -> list[Any]:
    """Answers about torch_images: data has half of the time; pairs: seconds of both versions."""
    head = {"script": "torch_images", "package": "torch 1", "text": "a", "machine": MACHINE}
    half = {"share": 0.5, "ns_per_iteration": 1e6}
    interval = {"value": gain, "low": gain - 0.02, "high": gain + 0.02}
    row = half | {"verdict": "fix", "gain": interval}
    verdict = {"refused": None, "unit": "samples", "fix": ["data"], "ties": [], "warnings": []}
    rest = {"share": left / (1 + left), "ns_per_iteration": left * 1e6}
    found: list[dict[str, Any]] = [
        {"what": "plain", "plain_s": 1.0, "fixed_s": 1.0},
        {"what": "verdict", "wall_s": 70.0, "rows": {"data": row, "backward": row}} | verdict,
        *({"what": "left", "turn": turn} | left_of(half, rest) for turn in range(3)),
    ]
    for number, (plain, fixed) in enumerate(pairs):
        took = {"plain_s": [5.0, 5.0 + plain], "fixed_s": [5.0, 5.0 + fixed]}
        found.append({"what": "pair", "pair": number} | took)
    return [head | line for line in found]


def left_of(plain: dict[str, float], fixed: dict[str, float]) -> dict[str, Any]:
    return {"plain": {"data": plain}, "fixed": {"data": fixed}}


def found_of(harness: ModuleType, lines: list[Any]) -> Any:
    found = sys.modules["foreign_page"].Found("torch_images")
    for line in lines:
        found.take(line)
    return found


PAIRS = [(10.0, 5.0), (10.2, 5.1), (9.9, 4.9)]


def test_a_gain_that_comes_true_did_what_was_said(harness: ModuleType) -> None:
    found = found_of(harness, lines_of(0.5, PAIRS))
    assert found.true[0] == pytest.approx(0.5, abs=0.01)
    assert found.did_what_was_said is True
    assert found.names_the_bottleneck
    assert found.unit_is_right
    assert found.missing == ["forward", "optimiser step"]


def test_a_gain_that_does_not_come_true_did_not(harness: ModuleType) -> None:
    assert found_of(harness, lines_of(0.8, PAIRS)).did_what_was_said is False


def test_a_prediction_is_read_at_what_the_fix_leaves(harness: ModuleType) -> None:
    found = found_of(harness, lines_of(0.5, PAIRS, left=0.4))
    assert found.left == pytest.approx((0.4, 0.0))
    assert found.predicted[0] == pytest.approx(0.3)
    assert found.did_what_was_said is False


def test_where_there_is_hardly_a_rest_its_time_says_what_is_left(harness: ModuleType) -> None:
    lines = lines_of(0.99, PAIRS, left=0.5)
    for line, left in zip(lines[2:5], (0.4, 0.5, 0.6), strict=True):
        line |= left_of(
            {"share": 0.999, "ns_per_iteration": 2e6},
            {"share": 0.999, "ns_per_iteration": 2e6 * left},
        )
    # The t of two degrees of freedom is 4.303.
    assert found_of(harness, lines).left == pytest.approx((0.5, 4.303 * 0.1 / 3**0.5), rel=1e-3)


def test_what_is_missing_is_said_and_not_judged(harness: ModuleType) -> None:
    lines = lines_of(0.5, PAIRS)
    assert found_of(harness, lines[:6]).did_what_was_said is None
    assert found_of(harness, lines[:2]).predicted.startswith("what the fix leaves is not known")
    refused = [*lines[:1], {**lines[1], "rows": {}, "refused": "no stage"}]
    assert found_of(harness, refused).predicted == "no verdict: no stage"
    del lines[1]["rows"]["data"]
    assert found_of(harness, lines).predicted == "data was not recognised"


def test_answers_about_an_older_text_of_a_script_do_not_count(harness: ModuleType) -> None:
    lines = lines_of(0.5, PAIRS)
    newer = lines[0] | {"package": "torch 2", "text": "b"}
    found = found_of(harness, [*lines, newer])
    assert found.did_what_was_said is None
    assert list(found.answers) == ["plain"]


def test_answers_of_another_kind_of_machine_do_not_count(
    harness: ModuleType, tmp_path: Path
) -> None:
    lines = lines_of(0.5, PAIRS)
    elsewhere = lines[0] | {"machine": {"processor": "Test", "cores": 1}}
    assert list(found_of(harness, [*lines, elsewhere]).answers) == ["plain"]
    results = tmp_path / "results.jsonl"
    harness.append(results, "", elsewhere)
    facts = {name: elsewhere[name] for name in ("script", "package", "text")}
    answers = harness.Answers(results, facts, again=False)
    assert answers.of("plain", lambda: {"plain_s": 3.0})["plain_s"] == 3.0


def test_the_page_says_all_of_it(harness: ModuleType, tmp_path: Path) -> None:
    results, markdown = tmp_path / "results.jsonl", tmp_path / "page.md"
    for line in lines_of(0.5, PAIRS):
        harness.append(results, "", line | {"machine": harness.host_facts()})
    sys.modules["foreign_page"].write(results, markdown)
    page = markdown.read_text()
    assert "1 of 1 did what was said" in page
    row = next(line for line in page.splitlines() if line.startswith("| torch_images | torch 1"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[3:8] == ["2 of 4", "right", "70", "data", "data"]
    assert cells[-1] == "yes"
    assert "| torch_images | not recognised | forward, optimiser step |" in page
