"""action.yml: its steps, run one after the other as a build server would, without one."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.git import git

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")
WORK = "print(sum(range({turns})))"
LITTLE, MUCH = 1_000_000, 8_000_000
# Notes what it was called with; prints the ids of earlier comments; fails if it is told to.
GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$GH_LOG"
case "$*" in
  *"--method"*) cat "${{GH_BODY:-/dev/null}}" > /dev/null; exit "${{GH_CODE:-0}}" ;;
  *) printf '%s' "$GH_EARLIER" ;;
esac
"""
# An interpreter that only notes what it is asked to install.
PYTHON = """#!/bin/sh
case "$*" in
  "-m pip "*) printf '%s\\n' "$*" >> "$PIP_LOG" ;;
  *) exec {python} "$@" ;;
esac
"""


@dataclass
class Ended:
    """What the steps of the action have left."""

    code: int = 0
    log: str = ""
    summary: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    gh: list[str] = field(default_factory=list)
    pip: list[str] = field(default_factory=list)


class Runner:
    """Runs the steps of the action in a repository: what `act` does, of what is needed here."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "repository"
        self._temp, self._programs = folder / "temp", folder / "programs"
        for each in (self.repository, self._temp, self._programs):
            each.mkdir()
        for name, text in (
            ("gh", GH.format()),
            ("python", PYTHON.format(python=shlex.quote(sys.executable))),
        ):
            (self._programs / name).write_text(text)
            (self._programs / name).chmod(0o755)

    def git(self, *words: str, folder: Path | None = None) -> str:
        return git(folder or self.repository, *words)

    def commit(self, turns: int) -> None:
        """Commit a program that does so much."""
        if not (self.repository / ".git").exists():
            self.git("init", "--quiet", "--initial-branch", "main")
        (self.repository / "work.py").write_text(WORK.format(turns=turns))
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", f"{turns} turns")

    def run(
        self,
        *,
        github: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        **inputs: str,
    ) -> Ended:
        """Run the action. github: what expressions that begin with `github.` are."""
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        unknown = set(given) - set(ACTION["inputs"])
        assert unknown == set()
        known = {
            f"inputs.{name}": given.get(name, entry.get("default", ""))
            for name, entry in ACTION["inputs"].items()
        }
        known |= {"github.action_path": str(ROOT), "github.token": "token"} | dict(github or {})
        ended = Ended()
        files = {
            name: self._temp / name.lower()
            for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GH_LOG", "PIP_LOG")
        }
        for file in files.values():
            file.write_text("")
        environment = {
            **{name: value for name, value in os.environ.items() if name[:4] not in ("GIT_",)},
            **{name: str(file) for name, file in files.items()},
            **{"RUNNER_TEMP": str(self._temp), "OMP_NUM_THREADS": "1"},
            "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}",
            **(variables or {}),
        }
        for step in ACTION["runs"]["steps"]:
            files["GITHUB_OUTPUT"].write_text("")
            done = self._step(step, known, environment)
            ended.log += done.stdout + done.stderr
            ended.code = done.returncode
            for line in files["GITHUB_OUTPUT"].read_text().splitlines():
                name, _, value = line.partition("=")
                known[f"steps.{step['id']}.outputs.{name}"] = value
            if ended.code:
                break
        ended.outputs = {
            name: _filled(entry["value"], known) for name, entry in ACTION["outputs"].items()
        }
        ended.summary = files["GITHUB_STEP_SUMMARY"].read_text()
        ended.gh = files["GH_LOG"].read_text().splitlines()
        ended.pip = files["PIP_LOG"].read_text().splitlines()
        return ended

    def _step(
        self, step: Mapping[str, Any], known: Mapping[str, str], environment: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        assert step["shell"] == "bash"
        script = self._temp / "step.sh"
        script.write_text(step["run"])
        own = {name: _filled(value, known) for name, value in step.get("env", {}).items()}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.repository / _filled(step.get("working-directory", "."), known),
            env={**environment, **own},
            capture_output=True,
            text=True,
        )


def _filled(text: str, known: Mapping[str, str]) -> str:
    """A text whose expressions are replaced; what is not known is empty, as on the server."""
    return EXPRESSION.sub(lambda found: known.get(found[1], ""), text)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


COMMAND = f"{sys.executable} -S work.py"
PLAIN = {"target": COMMAND, "install": "false", "worse": "80%", "budget": "90"}
PULL = {
    "github.event.pull_request.number": "7",
    "github.repository": "owner/name",
}


@pytest.mark.long
def test_a_slower_version_fails_and_says_so_everywhere(runner: Runner) -> None:
    runner.commit(LITTLE)
    base = runner.git("rev-parse", "HEAD")
    runner.commit(LITTLE + 1)  # the branch has two commits: the one before is not the base
    runner.commit(MUCH)
    done = runner.run(github=PULL | {"github.event.pull_request.base.sha": base}, **PLAIN)
    assert done.code == 3, done.log
    assert done.outputs["verdict"] == "blocked"
    assert float(done.outputs["slowdown"]) > 0
    marker, answer, *_ = done.summary.splitlines()
    assert marker.startswith("<!-- hotloop-gate ")
    assert answer.startswith("**hotloop gate: blocked: B takes ")
    assert f"at {base}" in done.summary
    assert answer in done.log
    assert done.pip == []
    asked, posted = done.gh
    assert asked.startswith("api --paginate repos/owner/name/issues/7/comments")
    assert posted.startswith("api --silent --method POST repos/owner/name/issues/7/comments")


@pytest.mark.long
def test_a_version_that_is_not_slower_passes(runner: Runner) -> None:
    runner.commit(MUCH)
    runner.commit(LITTLE)
    done = runner.run(**PLAIN)  # no pull request: the commit before this one
    assert done.code == 0, done.log
    assert done.outputs["verdict"] == "passed"
    assert float(done.outputs["slowdown"]) < 0
    assert "**hotloop gate: passed: less than 80% slower" in done.summary
    assert "at HEAD~1" in done.summary
    assert done.gh == []


@pytest.mark.long
@pytest.mark.parametrize(("cannot_say", "code"), [("pass", 0), ("fail", 4)])
def test_too_little_time_is_neither(cannot_say: str, code: int, runner: Runner) -> None:
    runner.commit(LITTLE)
    runner.commit(LITTLE + 1)
    done = runner.run(**PLAIN | {"budget": "0.01", "cannot_say": cannot_say})
    assert done.code == code, done.log
    assert done.outputs == {"verdict": "cannot say", "slowdown": ""}
    assert "**hotloop gate: cannot say: " in done.summary


@pytest.mark.long
def test_an_earlier_comment_is_replaced(runner: Runner) -> None:
    runner.commit(MUCH)
    runner.commit(LITTLE)
    done = runner.run(github=PULL, variables={"GH_EARLIER": "41\n42\n"}, **PLAIN)
    assert done.code == 0, done.log
    _, patched = done.gh
    assert patched.startswith("api --silent --method PATCH repos/owner/name/issues/comments/41 ")


@pytest.mark.long
def test_a_comment_that_cannot_be_written_changes_no_answer(runner: Runner) -> None:
    runner.commit(MUCH)
    runner.commit(LITTLE)
    done = runner.run(github=PULL, variables={"GH_CODE": "1"}, **PLAIN)
    assert (done.code, done.outputs["verdict"]) == (0, "passed"), done.log
    assert "::warning::hotloop gate: the comment could not be written" in done.log


@pytest.mark.long
def test_comments_can_be_switched_off_and_hotloop_installed(runner: Runner) -> None:
    runner.commit(MUCH)
    runner.commit(LITTLE)
    done = runner.run(github=PULL, **PLAIN | {"comment": "false", "install": "true"})
    assert done.code == 0, done.log
    assert done.gh == []
    assert done.pip == [f"-m pip install --quiet --disable-pip-version-check {ROOT}"]


@pytest.mark.long
def test_a_checkout_of_one_commit_fetches_the_other(runner: Runner, tmp_path: Path) -> None:
    origin = runner.repository
    runner.commit(MUCH)
    base = runner.git("rev-parse", "HEAD")
    runner.git("branch", "older")
    runner.commit(LITTLE)
    runner.git("config", "uploadpack.allowAnySHA1InWant", "true")
    for baseline in ("", base, "older", "origin/older"):
        runner.repository = tmp_path / f"shallow-{baseline.replace('/', '-')}"
        words = ("clone", "--quiet", "--depth=1", f"file://{origin}", str(runner.repository))
        runner.git(*words, folder=tmp_path)
        done = runner.run(**PLAIN | {"baseline": baseline})
        assert (done.code, done.outputs["verdict"]) == (0, "passed"), done.log


@pytest.mark.long
def test_wrong_usage_fails_with_the_message_of_the_command(runner: Runner) -> None:
    runner.commit(LITTLE)
    done = runner.run(github=PULL, **PLAIN | {"baseline": "maim"})
    assert done.code == 2
    assert "--baseline: no commit 'maim'" in done.log
    assert done.outputs == {"verdict": "", "slowdown": ""}
    assert done.summary == ""
    assert done.gh == []


@pytest.mark.long
def test_inputs_are_never_run(runner: Runner) -> None:
    runner.commit(LITTLE)
    evil = '"; touch injected; echo "$(touch injected)`touch injected`\' ; touch injected #'
    for name in ("target", "baseline", "worse", "budget", "cannot_say", "comment", "install"):
        inputs = PLAIN | {"budget": "0.01", "target": "true", "baseline": "true", name: evil}
        runner.run(github=PULL, **inputs)
        assert list(runner.repository.glob("**/injected")) == [], name


def test_no_script_holds_an_expression() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"], step["name"]


def test_its_defaults_are_those_of_the_command() -> None:
    from hotloop.cli.gate import Options

    for name in ("worse", "budget", "cannot_say"):
        default = ACTION["inputs"][name.replace("_", "-")]["default"]
        assert type(getattr(Options, name))(default) == getattr(Options, name)


LOOP = """import hotloop


def spin():
    return sum(range({turns}))


def make():
    def body():
        spin()
        return 1

    return hotloop.Loop(body=body, unit="turns")
"""


@pytest.mark.slow
def test_a_loop_in_a_folder_of_its_own(runner: Runner) -> None:
    runner.commit(LITTLE)
    folder = runner.repository / "loops"
    folder.mkdir()
    for turns in (20_000, 600_000):
        (folder / "loop.py").write_text(LOOP.format(turns=turns))
        runner.git("add", ".")
        runner.git("commit", "--quiet", "-m", "loop")
    inputs = PLAIN | {"target": "loop.py:make", "working_directory": "loops", "budget": "300"}
    done = runner.run(**inputs)
    assert (done.code, done.outputs["verdict"]) == (3, "blocked"), done.log
    assert "| turns/s |" in done.summary
