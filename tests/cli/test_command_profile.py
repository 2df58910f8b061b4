"""`hotloop profile` as a command: a loop, one stage of it, a script as it stands, bad input."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

LOOP = "sides.py:make"
SHORT = ("--seconds", "1")


@pytest.mark.long
def test_a_script_as_it_stands_is_profiled_and_drawn_again(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop(
        "profile", "as_told.py", "--time", "--memory", *SHORT, "--save", "it.run", cwd=project
    )
    assert done.code == 0, done.err
    for words in ("Time by stage", "Memory by stage", "Growth", "env step", "of one without it"):
        assert words in done.out
    stacks = json.loads((project / ".hotloop" / "profile.speedscope.json").read_text())
    assert "stage: env step" in {frame["name"] for frame in stacks["shared"]["frames"]}
    again = hotloop("report", "it.run", "--html", "page.html", cwd=project)
    assert again.code == 0, again.err
    page = (project / "page.html").read_text()
    assert "Flame graph" in page
    assert "Lines that allocate the most" in page
    shown = hotloop("report", "it.run", cwd=project)
    assert shown.out.count("Time by stage") == 1


@pytest.mark.long
def test_one_stage_alone(hotloop: Callable, project: Path) -> None:
    done = hotloop(
        "profile", "as_told.py", "--time", *SHORT, "--stage", "env step", "--json", cwd=project
    )
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert said["stage"] == "env step"
    assert said["profiles"]["time"]["overhead"]["slowdown"]["value"] > 0
    shown = hotloop("profile", "as_told.py", "--time", *SHORT, "--stage", "env step", cwd=project)
    rows = [line for line in shown.out.splitlines() if line.startswith(("env reset", "the rest"))]
    assert rows == []


@pytest.mark.long
def test_a_function_of_the_script_is_made_a_stage(hotloop: Callable, project: Path) -> None:
    (project / "own.py").write_text(
        "import gymnasium\n"
        "def think(n):\n"
        "    return sum(i * i for i in range(n))\n"
        "env = gymnasium.make('CartPole-v1')\n"
        "env.reset(seed=1)\n"
        "while True:\n"
        "    think(3_000)\n"
        "    if env.step(0)[2]:\n"
        "        env.reset()\n"
    )
    done = hotloop(
        "profile",
        "own.py",
        "--time",
        *SHORT,
        "--stage",
        "__main__:think",
        "--iteration",
        "env step",
        cwd=project,
    )
    assert done.code == 0, done.err
    assert "think" in done.out
    assert "own.py:3" in done.out


@pytest.mark.long
def test_bad_input_is_one_clear_message(hotloop: Callable, project: Path) -> None:
    nothing = hotloop("profile", "as_told.py", cwd=project)
    assert nothing.code == 2
    assert "expected what to profile: --time" in nothing.messages[0]
    unknown = hotloop(
        "profile", "as_told.py", "--time", *SHORT, "--stage", "env stepp", cwd=project
    )
    assert unknown.code == 1
    assert "did you mean 'env step'?" in unknown.messages[0]
    rate = hotloop("profile", "as_told.py", "--time", "--rate-per-s", "0", cwd=project)
    assert rate.code == 2
    loop_option = hotloop(
        "profile", "as_told.py", "--time", "--iteration", "nothing", *SHORT, cwd=project
    )
    assert loop_option.code != 0
    assert (
        not list((project / ".hotloop").glob("*.run")) if (project / ".hotloop").exists() else True
    )
