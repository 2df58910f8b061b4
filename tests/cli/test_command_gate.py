"""`hotloop gate`: what is compared with what, the exit codes, the files, and what is refused.

Where it does not matter what is measured, it is a whole command of a few hundredths of a second,
twice as slow as the other or twice as fast, so that a busy machine cannot change the answer.
"""

import contextlib
import importlib.util
import json
import re
import signal
import socket
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from hotloop.loop.run import load
from hotloop.repeat.channel import Channel
from hotloop.results.side import run_side
from support.git import git
from support.wait import wait_until

PASSED, FAILED, WRONG_USAGE, BLOCKED, CANNOT_SAY, INTERRUPTED = 0, 1, 2, 3, 4, 130
WORK = "print(sum(range({turns})))"
LITTLE, MUCH = 2_000_000, 8_000_000
ENOUGH = ("--worse", "80%", "--budget", "90")
LONG = ("--worse", "80%", "--budget", "300")
TESTS = """
import time

import pytest


def spin(turns):
    return sum(range(turns))


@pytest.mark.parametrize("turns", [20_000, 600_000], ids=["a few", "many"])
def test_spin(benchmark, turns):
    assert benchmark(spin, turns) > 0


@pytest.mark.parametrize("turns, pause", [(200_000, 0), (20_000, 0.005)], ids=["many", "few"])
def test_setup(benchmark, turns, pause):
    def setup():
        time.sleep(pause)
        return (turns,), {}

    assert benchmark.pedantic(spin, setup=setup, rounds=5) > 0


def test_decorator(benchmark):
    @benchmark
    def result():
        return 3

    assert result == 3
    benchmark.extra_info["note"] = benchmark.group = "any"
    assert not benchmark.stats


class TestMethods:
    def test_method(self, benchmark):
        assert not hasattr(self, "done")
        self.done = benchmark(spin, 3)


def test_without(): pass
def test_wrong_result(benchmark): assert benchmark(spin, 3) == 4
def test_never(benchmark): pass
def test_stats(benchmark): benchmark(spin, 3); assert benchmark.stats.stats.mean < 1
def test_twice(benchmark): benchmark(spin, 3); benchmark(spin, 3)
def test_weave(benchmark): benchmark.weave(spin)
def test_rounds(benchmark): benchmark.pedantic(spin, setup=lambda: ((3,), {}), iterations=2)
@pytest.mark.skip(reason="not here")
def test_skipped(benchmark): benchmark(spin, 3)
"""


def python(turns: int) -> str:
    """A command that does so much."""
    return f"{sys.executable} -S -c '{WORK.format(turns=turns)}'"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose working tree does a quarter of what its branch `before` does."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "--quiet", "--initial-branch", "before")
    (folder / "work.py").write_text(WORK.format(turns=MUCH))
    (folder / ".gitignore").write_text(".hotloop/\n")
    (folder / "inside").mkdir()
    (folder / "inside/kept").write_text("")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "much")
    (folder / "work.py").write_text(WORK.format(turns=LITTLE))
    git(folder, "commit", "--quiet", "-am", "little")
    git(folder, "branch", "after")
    git(folder, "branch", "--force", "start", "HEAD~1")
    return folder


WORK_PY = f"{sys.executable} -S work.py"


@pytest.mark.long
def test_a_slower_version_is_blocked(hotloop: Callable, tmp_path: Path) -> None:
    done = hotloop(
        "gate", python(MUCH), "--baseline", python(LITTLE), *ENOUGH, "--junit", "j.xml",
        *("--markdown", "new/m.md"), cwd=tmp_path,
    )  # fmt: skip
    assert done.code == BLOCKED, done.err
    first, second, third = done.out.splitlines()
    assert first.startswith("blocked  B takes ")
    assert f"range({LITTLE})" in second.split("   B: ")[0]
    assert "runs of both in" in third
    assert [e.get("type") for e in ElementTree.parse(tmp_path / "j.xml").iter("failure")] == [
        "slower"
    ]
    assert "**hotloop gate: blocked: " in (tmp_path / "new/m.md").read_text()
    assert f"written: {tmp_path / 'j.xml'}" in done.err
    (saved,) = (tmp_path / ".hotloop").glob("*-gate-*.run")
    again = hotloop("report", saved, cwd=tmp_path)
    assert (again.code, again.out) == (0, done.out)


@pytest.mark.long
def test_a_version_that_is_not_slower_passes(hotloop: Callable, tmp_path: Path) -> None:
    done = hotloop(
        "gate", python(LITTLE), "--baseline", python(MUCH), *ENOUGH, "--json", cwd=tmp_path
    )
    assert done.code == PASSED, done.err
    found = json.loads(done.out)
    assert found["verdict"] == "passed"
    assert found["slowdown"]["high"] < found["worse"] == 0.8
    assert found["needed_s"] is None


@pytest.mark.parametrize(("policy", "code"), [("fail", CANNOT_SAY), ("pass", PASSED)])
def test_too_little_time_counts_as_neither(
    policy: str, code: int, hotloop: Callable, tmp_path: Path
) -> None:
    done = hotloop(
        "gate", python(LITTLE), "--baseline", python(LITTLE), "--budget", "0.01",
        *("--cannot-say", policy, "--junit", "j.xml"), cwd=tmp_path,
    )  # fmt: skip
    assert done.code == code, done.err
    assert done.out.startswith("cannot say  ")
    assert "--budget" in done.out.splitlines()[0]
    (suite,) = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert (suite.get("failures"), suite.get("skipped")) == (
        ("1", "0") if policy == "fail" else ("0", "1")
    )


@pytest.mark.long
def test_a_commit_is_measured_as_it_was(hotloop: Callable, repository: Path) -> None:
    done = hotloop("gate", WORK_PY, "--baseline", "HEAD~1", *ENOUGH, cwd=repository)
    assert done.code == PASSED, done.err
    a, b = done.out.splitlines()[1].split("   B: ")
    assert a.endswith(f"{WORK_PY} at HEAD~1")
    assert b.endswith(f"{WORK_PY} as it is")
    listed = subprocess.run(
        ["git", "worktree", "list"], cwd=repository, capture_output=True, text=True, check=True
    )
    assert len(listed.stdout.splitlines()) == 1


@pytest.mark.long
def test_the_folder_of_another_checkout_is_a_baseline(
    hotloop: Callable, repository: Path, tmp_path: Path
) -> None:
    git(repository, "worktree", "add", "--quiet", "--detach", str(tmp_path / "other"), "start")
    try:
        done = hotloop("gate", WORK_PY, "--baseline", tmp_path / "other", *ENOUGH, cwd=repository)
    finally:
        git(repository, "worktree", "remove", "--force", str(tmp_path / "other"))
    assert done.code == PASSED, done.err
    assert f"in {tmp_path / 'other'}" in done.out


@pytest.mark.long
def test_what_names_a_commit_is_one_also_if_there_is_such_a_folder_or_command(
    hotloop: Callable, repository: Path
) -> None:
    for name in ("inside", "true"):
        git(repository, "branch", "--force", name, "start")
        done = hotloop("gate", WORK_PY, "--baseline", name, *ENOUGH, cwd=repository)
        assert done.code == PASSED, done.err
        assert f"{WORK_PY} at {name}" in done.out


@pytest.mark.parametrize(
    ("baseline", "message"),
    [
        ("befor", "--baseline: no commit 'befor' in .*; did you mean 'before'.* Expected a commit"),
        ("inside", "--baseline: inside is a folder of this checkout. Expected"),
        ("", "--baseline: expected a commit, a branch or a tag, got ''. Expected"),
        ("work.py", "B .* is a whole command and A .work.py. a loop: expected two of one kind"),
        ("/", "--baseline: / is in no git repository"),
    ],
)
def test_a_baseline_that_is_none_is_refused(
    baseline: str, message: str, hotloop: Callable, repository: Path
) -> None:
    if baseline == "inside":
        subprocess.run(["git", "branch", "-D", "inside"], cwd=repository, capture_output=True)
    done = hotloop("gate", WORK_PY, "--baseline", baseline, cwd=repository)
    assert done.code == WRONG_USAGE
    (said,) = done.messages
    assert re.search(message, said), said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--worse", "3"), "--worse: expected a share above 0, such as 3% or 0.03, got '3'"),
        (("--budget", "0"), "budget: expected a number above 0"),
        (("--junit", "."), "--junit: . is a folder; name a file in it"),
        (("--markdown", "work.py/m.md"), "--markdown: work.py/m.md cannot be written"),
        (("--junit", "x", "--markdown", "./x"), "--markdown: x is the file of --junit, too"),
    ],
)
def test_other_settings_are_refused_before_anything_runs(
    words: tuple[str, ...], message: str, hotloop: Callable, repository: Path
) -> None:
    done = hotloop("gate", "touch started", "--baseline", "true", *words, cwd=repository)
    assert done.code == WRONG_USAGE
    (said,) = done.messages
    assert message in said
    assert not (repository / "started").exists()


def test_a_side_that_crashes_is_a_failure(hotloop: Callable, tmp_path: Path) -> None:
    crash = f"""{sys.executable} -S -c 'raise SystemExit("no such device")'"""
    done = hotloop("gate", crash, "--baseline", python(LITTLE), cwd=tmp_path)
    assert done.code == FAILED
    assert "B (" in done.messages[0]
    assert "no such device" in done.err


@pytest.mark.long
def test_an_interrupt_keeps_what_was_measured(start: Callable, tmp_path: Path) -> None:
    noted = "import pathlib; pathlib.Path(f'runs').open('a').write('.')"
    (tmp_path / "work.py").write_text(f"{noted}\n{WORK.format(turns=1000)}")
    command = start(
        "gate", WORK_PY, "--baseline", f"{sys.executable} -S -u work.py", "--worse", "0.0001%",
        *("--budget", "1000", "--junit", "j.xml"), cwd=tmp_path,
    )  # fmt: skip
    runs = tmp_path / "runs"
    wait_until(lambda: runs.exists() and runs.stat().st_size > 12, "the sides have run")
    command.process.send_signal(signal.SIGINT)
    done = command.end()
    assert done.code in (INTERRUPTED, BLOCKED)
    (saved,) = (tmp_path / ".hotloop").glob("*.run")
    assert load(saved).complete == (done.code == BLOCKED)
    if done.code == INTERRUPTED:
        assert done.messages == ["hotloop: interrupted"]
        assert "note  it was interrupted" in done.out
        assert not (tmp_path / "j.xml").exists()


@pytest.fixture(scope="module")
def tests_of_a_user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tests")
    (folder / "test_user.py").write_text(TESTS)
    (folder / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\naddopts = -n 2 --benchmark-sort mean --hotloop-gate=x\n"
    )
    # As an installed package declares its plugin, in contrast to one that is being worked on.
    installed = folder / "installed_hotloop-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: installed-hotloop\nVersion: 1\n"
    )
    (installed / "RECORD").write_text("hotloop/__init__.py,,\n")
    (installed / "entry_points.txt").write_text(
        "[pytest11]\nhotloop_gate = hotloop.integrations.pytest_gate\n"
    )
    return folder


@pytest.mark.slow
def test_a_test_that_uses_the_fixture_is_a_side(hotloop: Callable, tests_of_a_user: Path) -> None:
    many, few = (f"'test_user.py::test_spin[{name}]'" for name in ("many", "a few"))
    done = hotloop("gate", many, "--baseline", few, *LONG, cwd=tests_of_a_user)
    assert done.code == BLOCKED, done.err
    assert " calls/s " in done.out


@pytest.mark.slow
def test_the_time_of_a_setup_is_left_out(hotloop: Callable, tests_of_a_user: Path) -> None:
    few, many = "test_user.py::test_setup[few]", "test_user.py::test_setup[many]"
    done = hotloop("gate", many, "--baseline", few, *LONG, cwd=tests_of_a_user)
    assert done.code == BLOCKED, done.err


UNFIT = {
    "test_without": "no such benchmark: test_without does not use the fixture `benchmark`",
    "test_wrong_result": "the test failed: assert 3 == 4",
    "test_never": "test_never did not call hotloop's fixture `benchmark`",
    "test_stats": "benchmark.stats: there are none in a comparison",
    "test_twice": "the fixture `benchmark` was called twice; expected once",
    "test_weave": "benchmark.weave does not exist in a comparison",
    "test_rounds": "benchmark.pedantic: expected iterations=1 beside a setup, got 2",
    "test_skipped": "the test was skipped: Skipped: not here",
    "test_spim": "no such benchmark 'test_spim'; did you mean 'test_",
    "test_spin": "test_spin has several cases: name one of 'test_spin[a few]', 'test_spin[many]'",
}
FIT = ("test_decorator", "test_setup[many]", "test_spin[a few]", "TestMethods::test_method")
RUN_ALL = """
import json, sys
from hotloop.results.pytest_side import run_test
def measure(call):
    print("calls", [call.body() for _ in range(2)][0] > 0)
print(json.dumps({name: run_test(f"test_user.py::{name}", measure) for name in sys.argv[1:]}))
"""


@pytest.fixture(scope="module")
def problems(tests_of_a_user: Path) -> dict[str, str | None]:
    """Why each of the tests cannot be measured: all asked for in one process."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, *UNFIT, *FIT],
        cwd=tests_of_a_user,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", UNFIT)
def test_a_test_that_cannot_be_measured_says_why(
    name: str, problems: dict[str, str | None]
) -> None:
    assert UNFIT[name] in (problems[name] or "")


@pytest.mark.parametrize("name", FIT)
def test_a_test_that_can_be_measured_is(name: str, problems: dict[str, str | None]) -> None:
    assert problems[name] is None


@pytest.mark.long
def test_why_a_test_cannot_be_measured_is_one_message(
    hotloop: Callable, tests_of_a_user: Path
) -> None:
    done = hotloop(
        "gate", "test_user.py::test_wrong_result", "--baseline", "test_user.py::test_decorator",
        cwd=tests_of_a_user,
    )  # fmt: skip
    assert done.code == FAILED
    (said,) = done.messages
    assert said.startswith("hotloop: B (test_user.py::test_wrong_result): the test failed: ")
    assert re.search(r"test_user\.py:\d+$", done.err.strip())


def test_a_missing_pytest_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    ours, theirs = socket.socketpair()
    with contextlib.closing(Channel(ours)) as here, contextlib.closing(Channel(theirs)) as there:
        order = {"kind": "test", "target": "test_user.py::x", "arguments": [], "settings": {}}
        here.send(order)
        run_side(there)
        (ended,) = here.receive().values()
    assert ended["text"] == f"a test needs pytest: {sys.executable} -m pip install pytest"
