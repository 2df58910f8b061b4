"""Every example runs as its first lines say, and shows what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SHORT = {"benchmark": ["--seconds", "1.5"], "simplify": ["--budget", "4"]}


def commands() -> list[tuple[str, str]]:
    """(verb, target) of every hotloop command in the examples' first lines."""
    return [
        (match[1], match[2] + (match[3] or ""))
        for path in sorted(EXAMPLES.glob("*.py"))
        for line in path.read_text().splitlines()
        if (match := re.fullmatch(r"\s+hotloop (\w+)\s+examples/(\S+).*?( -- .*)?", line))
    ]


def scripts() -> list[Path]:
    """The examples that only run by themselves."""
    measured = {re.split("[: ]", target)[0] for _, target in commands()}
    return [path for path in sorted(EXAMPLES.glob("*.py")) if path.name not in measured]


def test_the_examples_say_how_to_run_them() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert re.search(rf"^    (hotloop \w+|python) examples/{path.name}", path.read_text(), re.M)


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.name)
def test_an_example_runs_by_itself(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(("verb", "target"), commands())
def test_a_command_of_an_example_runs(verb: str, target: str, tmp_path: Path) -> None:
    place, *passed_on = target.split(" ", 1)
    environment = {k: v for k, v in os.environ.items() if k != "HOTLOOP_BOARD"}
    arguments = [verb, str(EXAMPLES / place), *SHORT[verb]]
    done = subprocess.run(
        [sys.executable, "-m", "hotloop.cli.main", *arguments, *"".join(passed_on).split()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
    )
    # So short an experiment may be refused a verdict, which is not the example's fault.
    assert done.returncode == 0 or "no verdict" in done.stderr, done.stderr
    assert "run saved" in done.stderr
    assert place.split(":")[0] in done.stdout


@pytest.mark.parametrize("name", ["02_stages.py", "03_script.py"])
def test_a_script_with_stages_runs_alone(name: str, tmp_path: Path) -> None:
    source = (EXAMPLES / name).read_text()
    short = tmp_path / name
    short.write_text(re.sub(r"\b(3000|1500)\b", "20", source))
    done = subprocess.run([sys.executable, str(short)], check=True, capture_output=True, text=True)
    assert re.search(r"(loss|total) [\d.]+", done.stdout)
