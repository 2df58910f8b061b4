"""The plugin of pytest: which tests become gates, what each exit code becomes, what is refused."""

import importlib.metadata
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hotloop.integrations import pytest_gate
from support.git import git

pytest_plugins = ["pytester"]

# By its entry point where hotloop is installed with it, else by its module.
_POINTS = importlib.metadata.entry_points(group="pytest11")
NAME = "hotloop_gate" if "hotloop_gate" in _POINTS.names else pytest_gate.__name__
STRICT = "[pytest]\nfilterwarnings = error\naddopts = --strict-markers --strict-config\n"
USER = """
import pytest

@pytest.fixture
def expensive():
    raise AssertionError("a gate sets up no fixture")

def test_plain():
    pass

@pytest.mark.parametrize("n", [1, 2], ids=["one", "and two"])
def test_measured(benchmark, expensive, n):
    raise AssertionError("a gate does not run the test")

class TestGroup:
    def test_inside(self, benchmark):
        raise AssertionError("a gate does not run the test")

@pytest.mark.skip(reason="not here")
def test_skipped(benchmark):
    pass
"""
Answer = tuple[int, str, str]
Run = Callable[..., pytest.RunResult]


class Gates:
    """In place of the command: it notes the calls, and answers as it was told to."""

    def __init__(self, answer: Answer = (0, "passed  …\n", "")) -> None:
        self.answer = answer
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], folder: Path) -> Answer:
        self.commands.append(command)
        return self.answer

    @property
    def tests(self) -> list[str]:
        return [command[command.index("gate") + 1] for command in self.commands]


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> Gates:
    made = Gates()
    monkeypatch.setattr(pytest_gate, "_run", made)
    return made


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Runs pytest in this process on a user's tests, with the plugin."""
    pytester.makeini(STRICT)
    pytester.makepyfile(test_user=USER)

    def run_pytest(*words: str) -> pytest.RunResult:
        # It is imported already, by these tests.
        imported = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
        words = ("-p", NAME, *imported, *words)
        return pytester.runpytest_inprocess(*words, no_reraise_ctrlc=True)

    return run_pytest


def test_tests_that_use_the_fixture_are_compared_and_the_others_run(run: Run, gates: Gates) -> None:
    done = run("--hotloop-gate=main")
    done.assert_outcomes(passed=4, skipped=1)
    done.stdout.fnmatch_lines(["*tests that use `benchmark` are compared with main"])
    assert gates.tests == [
        "'test_user.py::test_measured[one]'",
        "'test_user.py::test_measured[and two]'",
        "test_user.py::TestGroup::test_inside",
    ]
    for command in gates.commands:
        assert command[command.index("--baseline") + 1] == "main"
        assert "--worse" not in command


def test_only_selected_tests_are_compared(run: Run, gates: Gates) -> None:
    run("--hotloop-gate=main", "-k", "inside").assert_outcomes(passed=1, deselected=4)
    assert gates.tests == ["test_user.py::TestGroup::test_inside"]


def test_settings_reach_the_gate(run: Run, gates: Gates) -> None:
    words = ("--hotloop-gate-worse=5%", "--hotloop-gate-budget=7")
    run("--hotloop-gate=main", *words, "-k", "inside").assert_outcomes(passed=1, deselected=4)
    (command,) = gates.commands
    assert command[-4:] == ["--worse", "5%", "--budget", "7.0"]


BLOCKED = "blocked  B takes 84.5% more\nA: 1 calls/s   B: 2 calls/s\n3 launches\n"
UNKNOWN = "cannot say  whether …\nA: …\n3 launches\n"


def test_blocked_fails_with_the_answer(run: Run, gates: Gates) -> None:
    gates.answer = (3, BLOCKED, "run saved: hotloop report x.run\n")
    done = run("--hotloop-gate=main", "-k", "inside")
    done.assert_outcomes(failed=1, deselected=4)
    done.stdout.fnmatch_lines(["blocked  B takes 84.5% more", "A: 1 calls/s   B: 2 calls/s"])
    assert "Traceback" not in done.stdout.str()
    assert "pytest_gate.py" not in done.stdout.str()


def test_cannot_say_fails_or_is_skipped(run: Run, gates: Gates) -> None:
    gates.answer = (4, UNKNOWN, "")
    for words, outcome in (
        ((), "failed"),
        (("--hotloop-gate-cannot-say=fail",), "failed"),
        (("--hotloop-gate-cannot-say=pass",), "skipped"),
    ):
        done = run("--hotloop-gate=main", *words, "-k", "inside", "-rs")
        done.assert_outcomes(**{outcome: 1}, deselected=4)
        done.stdout.fnmatch_lines(["*cannot say  whether*"])


def test_a_new_test_has_nothing_to_be_compared_with(run: Run, gates: Gates) -> None:
    gates.answer = (1, "", "hotloop: A (test_user.py::x at main): no such benchmark 'x'\n")
    done = run("--hotloop-gate=main", "-k", "inside", "-rs")
    done.assert_outcomes(skipped=1, deselected=4)
    done.stdout.fnmatch_lines(["*nothing to compare with at main: A (*"])


@pytest.mark.parametrize(
    "said",
    ["B (test_user.py::x as it is): no such benchmark 'x'", "A (x at main): the test failed: x"],
)
def test_any_other_failure_is_one(said: str, run: Run, gates: Gates) -> None:
    gates.answer = (1, "", f"hotloop: {said}\n")
    done = run("--hotloop-gate=main", "-k", "inside")
    done.assert_outcomes(failed=1, deselected=4)
    assert said in done.stdout.str()


def test_a_baseline_that_is_none_ends_the_run(run: Run, gates: Gates) -> None:
    gates.answer = (2, "", "hotloop: --baseline: no commit 'maim' in /x; did you mean 'main'?\n")
    done = run("--hotloop-gate=maim")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert len(gates.commands) == 1
    assert "hotloop: --hotloop-gate: no commit 'maim'" in done.stdout.str() + done.stderr.str()


def test_an_interrupted_gate_interrupts_the_run(run: Run, gates: Gates) -> None:
    gates.answer = (130, "", "hotloop: interrupted\n")
    assert run("--hotloop-gate=main").ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--hotloop-gate-worse=3%",), "--hotloop-gate-worse: expected --hotloop-gate=REF, too"),
        (("--hotloop-gate-budget=3",), "--hotloop-gate-budget: expected --hotloop-gate=REF, too"),
        (("--hotloop-gate-cannot-say=pass",), "--hotloop-gate-cannot-say: expected --hotloop-gate"),
        (("--hotloop-gate=",), "--hotloop-gate: expected a commit, a branch or a tag, got nothing"),
        (("--hotloop-gate=x", "--hotloop-gate-worse=3"), "--hotloop-gate-worse: expected a share"),
        (("--hotloop-gate=x", "--hotloop-gate-budget=0"), "expected a number above 0, got 0.0"),
        (("--hotloop-gate=x", "-n", "2"), "gates must not run beside each other"),
    ],
)
def test_what_does_not_fit_is_refused(
    words: Sequence[str], message: str, run: Run, gates: Gates
) -> None:
    done = run(*words)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert message in done.stderr.str()
    assert gates.commands == []


def test_one_worker_switched_off_is_fine(run: Run, gates: Gates) -> None:
    run("--hotloop-gate=x", "-n0", "-k", "inside").assert_outcomes(passed=1, deselected=4)


def test_a_limit_for_the_test_is_none_for_its_gate(
    pytester: pytest.Pytester, run: Run, gates: Gates
) -> None:
    pytester.makepyfile(
        test_user="import pytest\n@pytest.mark.timeout(7)\ndef test_x(benchmark): pass\n",
        conftest="def pytest_runtest_call(item):\n"
        "    print('limits', [m.args for m in item.iter_markers('timeout')][0])\n",
    )
    done = run("--hotloop-gate=x", "-s")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["*limits (0,)*"])


def test_without_the_option_it_does_nothing(run: Run, gates: Gates) -> None:
    done = run()
    assert gates.commands == []
    # Neither a header nor a fixture.
    assert "hotloop gate" not in done.stdout.str()
    done.stdout.fnmatch_lines(["*fixture 'benchmark' not found*"])


def test_it_loads_nothing_that_measures() -> None:
    code = (
        "import sys; before = set(sys.modules); import hotloop.integrations.pytest_gate; "
        "import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    heavy = {"numpy", "numba", "torch", "gymnasium", "rich", "tyro", "psutil"}
    assert heavy & {name.partition(".")[0] for name in loaded} == set()
    ours = {name for name in loaded if name.startswith("hotloop")}
    assert ours == {
        "hotloop",
        "hotloop.errors",
        "hotloop.integrations",
        "hotloop.integrations.pytest_gate",
    }


def test_it_is_declared() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    points = declared["project"]["entry-points"]["pytest11"]
    assert points == {"hotloop_gate": pytest_gate.__name__}


def test_the_command_ends_with_the_test(tmp_path: Path) -> None:
    class Enough(BaseException):
        pass

    class Impatient(subprocess.Popen):
        def communicate(self, *words: object, **more: object) -> object:
            if not more:
                raise Enough
            return super().communicate(*words, **more)

    started: list[Impatient] = []

    def start(*words: object, **more: object) -> Impatient:
        started.append(Impatient(*words, **more))
        return started[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytest_gate.subprocess, "Popen", start)
        with pytest.raises(Enough):
            pytest_gate._run([sys.executable, "-c", "import time; time.sleep(1000)"], tmp_path)
    (process,) = started
    assert process.returncode == -15


def test_a_gate_is_not_traced_for_coverage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COV_CORE_SOURCE", "x")
    monkeypatch.setenv("COVERAGE_PROCESS_START", "x")
    code = "import os; print([name for name in os.environ if name.startswith('COV')])"
    assert pytest_gate._run([sys.executable, "-c", code], tmp_path) == (0, "[]\n", "")


SPIN = "def spin():\n    return sum(range({turns}))\n"
MEASURED = "from work import spin\n\n\ndef test_spin(benchmark):\n    assert benchmark(spin) > 0\n"
ADDED = "\n\ndef test_added(benchmark):\n    benchmark(spin)\n\n\ndef test_plain():\n    pass\n"


@pytest.mark.slow
def test_a_repository_whose_code_has_become_slower(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(STRICT + "pythonpath = .\n")
    (tmp_path / "work.py").write_text(SPIN.format(turns=20_000))
    (tmp_path / "test_work.py").write_text(MEASURED)
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "fast")
    (tmp_path / "work.py").write_text(SPIN.format(turns=600_000))
    (tmp_path / "test_work.py").write_text(MEASURED + ADDED)
    words = ["-p", NAME, "--hotloop-gate=main", "--hotloop-gate-budget=300", "-rs"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "1 failed, 1 passed, 1 skipped" in done.stdout
    assert "blocked  B takes " in done.stdout
    assert "nothing to compare with at main: A (test_work.py::test_added at main)" in done.stdout
