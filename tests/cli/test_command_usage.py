"""What the command says before it measures anything: help, versions, wrong usage."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HEAVY = ("numpy", "torch", "ray", "rich", "tyro", "numba", "gymnasium", "psutil")
VERBS = ("benchmark", "simplify", "train", "evaluate", "simulate", "calibrate", "report", "doctor")


def modules_loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint('\\n', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=100
    )
    return set(done.stdout.splitlines()[-1].split())


def test_help_loads_nothing_heavy() -> None:
    loaded = modules_loaded_by("from hotloop.cli.main import main\nmain(['--help'])")
    assert "hotloop.cli.main" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert modules_loaded_by("import hotloop").isdisjoint(HEAVY)


def test_stages_and_loops_load_neither_torch_nor_ray() -> None:
    code = "import hotloop\nhotloop.stage('s', len)\nhotloop.Loop(body=len)"
    assert modules_loaded_by(code).isdisjoint({"torch", "ray"})


@pytest.mark.long
def test_every_module_of_a_verb_but_train_loads_neither_torch_nor_ray() -> None:
    code = "import hotloop.cli.benchmark, hotloop.cli.simplify, hotloop.cli.report"
    assert modules_loaded_by(f"{code}, hotloop.cli.doctor").isdisjoint({"torch", "ray"})


def test_help_names_every_verb_and_every_kind_of_target(hotloop: Callable, tmp_path: Path) -> None:
    done = hotloop("--help", cwd=tmp_path)
    assert done.code == 0
    assert done.err == ""
    for word in (*VERBS, "file.py:function", "module:NAME", "script.py", "ppo:CartPole-v1"):
        assert word in done.out


def test_no_verb_shows_the_help_and_is_wrong_usage(hotloop: Callable, tmp_path: Path) -> None:
    done = hotloop(cwd=tmp_path)
    assert done.code == 2
    assert "usage: hotloop" in done.out


def test_version_is_the_packages(hotloop: Callable, tmp_path: Path) -> None:
    from importlib.metadata import version

    assert hotloop("--version", cwd=tmp_path).out.strip() == version("hotloop")


def test_an_unknown_verb_suggests_the_nearest(hotloop: Callable, tmp_path: Path) -> None:
    done = hotloop("simplfy", "x.py", cwd=tmp_path)
    assert done.code == 2
    assert "did you mean 'simplify'?" in done.err
    assert done.out == ""


def test_a_verb_like_no_other_lists_them_all(hotloop: Callable, tmp_path: Path) -> None:
    done = hotloop("xyzzy", cwd=tmp_path)
    assert done.code == 2
    assert all(verb in done.err for verb in VERBS)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("benchmark", "loops.py:two_stages", "--secons", "1"), "--seconds"),
        (("benchmark", "loops.py:two_stages", "--seconds", "soon"), "soon"),
        (("benchmark",), "missing"),
        (("report",), "run"),
    ],
    ids=["unknown option", "no number", "no target", "no run"],
)
def test_wrong_options_exit_with_2_and_leave_no_trace(
    hotloop: Callable, project: Path, arguments: tuple[str, ...], word: str
) -> None:
    done = hotloop(*arguments, cwd=project)
    assert done.code == 2
    assert word in done.err.lower()
    assert "Traceback" not in done.err
    assert not (project / ".hotloop").exists()


@pytest.mark.parametrize("seconds", ["nan", "-1", "0"])
def test_a_time_that_is_none_is_wrong_usage(hotloop: Callable, project: Path, seconds: str) -> None:
    # A measurement of nan seconds would go on for ever, and be ended as one that hangs.
    done = hotloop("benchmark", "loops.py:two_stages", f"--seconds={seconds}", cwd=project)
    assert done.code == 2
    assert "seconds" in done.err


def test_doctor_says_what_the_machine_can_measure(hotloop: Callable, tmp_path: Path) -> None:
    import json

    done = hotloop("doctor", "--seconds", "0.1", "--json", cwd=tmp_path)
    assert done.code == 0
    findings = json.loads(done.out)
    assert all({"name", "value", "good", "means"} <= finding.keys() for finding in findings)
    assert not (tmp_path / ".hotloop").exists()
