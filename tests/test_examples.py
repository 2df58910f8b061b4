"""Every example runs as its first lines say, and shows what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hotloop.loop.run import load

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
# Only against hanging: an example that takes a minute alone may take several on a busy machine.
DEADLINE_S = 500
# How much is measured is asked for in iterations, and the warm-up ends with its first window: in
# seconds, a slow machine would not come to an iteration, and a fast one would come to the
# example's end before the warm-up's.
HOTLOOP = """
import sys
from hotloop.benchmark import benchmark
from hotloop.cli.main import main
benchmark.WARM_UP_SHARE = 0.0
sys.exit(main())
"""
STEADY = 2


MOST_LINES = 60

# The others show what tests elsewhere prove; `make test-all` runs all of them.
SLOW_SCRIPTS = ("08", "15", "17", "18", "19", "20", "21", "22")


def commands() -> list[tuple[str, str]]:
    """(verb, target) of every hotloop command in the examples' first lines."""
    return [
        (match[1], match[2] + (match[3] or ""))
        for path in sorted(EXAMPLES.glob("*.py"))
        for line in path.read_text().splitlines()
        if (match := re.fullmatch(r"\s+hotloop (\w+)\s+examples/(\S+).*?( -- .*)?", line))
    ]


def first_often(verb: str) -> list[Any]:
    """The targets of a verb: the first as it is, the others as slow ones."""
    targets = [target for of, target in commands() if of == verb]
    return [pytest.param(t, marks=[pytest.mark.slow] if n else []) for n, t in enumerate(targets)]


def scripts() -> list[Path]:
    """The examples that only run by themselves."""
    measured = {re.split("[: ]", target)[0] for _, target in commands()}
    return [path for path in sorted(EXAMPLES.glob("*.py")) if path.name not in measured]


def test_an_example_is_read_at_a_glance() -> None:
    for path in EXAMPLES.glob("*.py"):
        lines = len(path.read_text().splitlines())
        assert lines < MOST_LINES, f"{path.name}: {lines} lines"


def test_the_examples_say_how_to_run_them() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert re.search(rf"^    (hotloop \w+|python) examples/{path.name}", path.read_text(), re.M)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] if path.name.startswith(SLOW_SCRIPTS) else [])
        for path in scripts()
    ],
    ids=lambda path: path.name,
)
def test_an_example_runs_by_itself(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def run_command(verb: str, target: str, *options: str, cwd: Path) -> subprocess.CompletedProcess:
    """Run the command of an example to its end, and check that it saved a run and a report."""
    place, *passed_on = target.split(" ", 1)
    done = subprocess.run(
        [
            *(sys.executable, "-c", HOTLOOP, verb, str(EXAMPLES / place)),
            *(*options, "--save", "example.run", *"".join(passed_on).split()),
        ],
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k != "HOTLOOP_CONTROL"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert "run saved" in done.stderr, done.stderr
    assert place.split(":")[0] in done.stdout
    return done


@pytest.mark.parametrize(
    "target", first_often([t for verb, t in commands() if verb == "benchmark"])
)
def test_a_benchmark_of_an_example_runs(target: str, tmp_path: Path) -> None:
    done = run_command("benchmark", target, "--iterations", str(STEADY), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    measured = load(tmp_path / "example.run").arrays["duration_ns"]
    assert len(measured) == (0 if target.endswith("--unmarked") else STEADY)


@pytest.mark.long
@pytest.mark.parametrize("target", first_often("simplify"))
def test_a_simplification_of_an_example_runs(target: str, tmp_path: Path) -> None:
    # A script has to show its stages within the budget, a function has them before it begins.
    budget = "4" if ":" in target else "10"
    done = run_command("simplify", target, "--budget", budget, cwd=tmp_path)
    # So short an experiment may be refused a verdict, which is not the example's fault.
    assert done.returncode == 0 or "no verdict" in done.stderr, done.stderr
    assert load(tmp_path / "example.run").complete


@pytest.mark.parametrize("name", ["02_stages.py", "03_script.py"])
def test_a_script_with_stages_runs_alone(name: str, tmp_path: Path) -> None:
    source = (EXAMPLES / name).read_text()
    short = tmp_path / name
    short.write_text(re.sub(r"\b(8000|1500)\b", "20", source))
    done = subprocess.run([sys.executable, str(short)], check=True, capture_output=True, text=True)
    assert re.search(r"(loss|total) [\d.]+", done.stdout)
