"""`hotloop gate TARGET --baseline REF`: is a version slower than its baseline?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from hotloop.cli.compare import progress_bar
from hotloop.cli.files import check_place
from hotloop.cli.finish import finish
from hotloop.cli.output import consoles, parse, show_result
from hotloop.errors import SettingError, parsed_share
from hotloop.repeat.gate import BLOCKED, PASSED, GateSettings
from hotloop.report.gate_files import write_junit, write_markdown
from hotloop.results.gate import GateResult, gate_sides, measure_gate

SLOWER, UNKNOWN = 3, 4  # exit codes


@dataclass(frozen=True)
class Options:
    """Measure whether a target in the working tree is slower than its baseline. Exit code 0: by
    less than --worse; 3: it is slower; 4: cannot say within the budget.
    """

    target: tyro.conf.Positional[str]
    """What is measured, as `hotloop compare` takes it: a target, a script, a test that uses the
    fixture `benchmark`, or a whole command."""
    baseline: str
    """What it is measured against: a commit, a branch or a tag, or the folder of another checkout,
    where the same target runs; or another target, test or command."""
    worse: Annotated[str, tyro.conf.arg(metavar="SHARE")] = "3%"
    """The slowdown that must not pass: 3% or 0.03."""
    budget: float = GateSettings.budget
    """Time for the whole gate, in seconds; clear cases need less."""
    cannot_say: Literal["pass", "fail"] = "fail"
    """What the exit code is where the budget was not enough to decide: 0 for pass, 4 for fail."""
    shared_environment: bool = False
    """Run a commit that declares other dependencies with what is installed here."""
    seed: int = GateSettings.seed
    """Of the order of the blocks, and of Python's hashes."""
    junit: Path | None = None
    """Write the answer here as a JUnit file."""
    markdown: Path | None = None
    """Write the answer here as a comment for a code review."""
    json: bool = False
    """Print the answer as JSON."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    options = parse(Options, arguments, "gate")
    settings = GateSettings(
        budget=options.budget, worse=parsed_share("--worse", options.worse), seed=options.seed
    )
    _check_files(options)
    console, errors = consoles(options.json)
    with (
        gate_sides(
            options.target, options.baseline, shared_environment=options.shared_environment
        ) as sides,
        progress_bar(errors, "gate") as bar,
    ):
        task = bar.add_task(options.target, total=1.0)
        ending = measure_gate(sides, settings, lambda share: bar.update(task, completed=share))
    result = ending.result

    def show() -> None:
        show_result(console, result, json=options.json)

    finish(errors, result.run, ending.error, options.save, show)
    _write_files(errors, options, result)
    return _exit_code(result.verdict.verdict, options.cannot_say == "pass")


def _exit_code(verdict: str, may_pass: bool) -> int:
    known = {PASSED: 0, BLOCKED: SLOWER}
    return known.get(verdict, 0 if may_pass else UNKNOWN)


def _check_files(options: Options) -> None:
    """Refuse files that could not be written. Raises: SettingError."""
    files = {
        "--junit": options.junit,
        "--markdown": options.markdown,
        "--save": options.save,
    }
    taken: dict[Path, str] = {}
    for option, path in files.items():
        check_place(option, path)
        if path is not None and (other := taken.setdefault(path.resolve(), option)) != option:
            raise SettingError(f"{option}: {path} is the file of {other}, too; name another one")


def _write_files(errors: Console, options: Options, result: GateResult) -> None:
    """Write the files that were asked for, and name each. Raises: RunError."""
    if options.junit is not None:
        may_pass = options.cannot_say == "pass"
        write_junit(options.junit, result.verdict, result.run, may_pass=may_pass)
    if options.markdown is not None:
        write_markdown(options.markdown, result.verdict, result.run)
    for path in filter(None, (options.junit, options.markdown)):
        line = f"written: {path.resolve()}"
        errors.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
