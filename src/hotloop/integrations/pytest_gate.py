"""A plugin of pytest: `pytest --hotloop-gate=REF` compares tests with an older version of the code.

Each selected test that uses the fixture `benchmark` is not run but compared: as it is at REF, a
commit or the folder of another checkout, against the working tree. It fails where it has become
slower. Every other test runs as usual.

Without that option the plugin does nothing. It supplies no `benchmark` either, as pytest-benchmark
does: a fixture that measures nothing would let a suite pass that seems to be measured. In a
comparison the processes that run the test supply one.

Nothing of hotloop that measures is imported here: pytest loads this whenever it starts. A gate is
the command `hotloop gate` in a process of its own.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotloop.errors import SettingError, expect_positive, parsed_share

NO_SUCH_BENCHMARK = "no such benchmark"
"""How a side says that it does not have a test, or that it does not use the fixture."""
_ENDS_S = 10.0  # for a gate that is told to end
_SLOWER, _CANNOT_SAY, _WRONG_USAGE, _INTERRUPTED = 3, 4, 2, 130
_SETTINGS = ("worse", "budget", "cannot-say")
# By these variables a coverage report is also made of processes that a test starts.
_COVERAGE = ("COV_CORE_", "COVERAGE_PROCESS_")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("hotloop", "hotloop: is a version slower than its baseline?")
    group.addoption(
        "--hotloop-gate",
        metavar="REF",
        help="compare each selected test that uses the fixture `benchmark` with how it is at a "
        "commit, branch or tag, or in the folder of another checkout, in place of running it",
    )
    group.addoption(
        "--hotloop-gate-worse",
        metavar="SHARE",
        help="the slowdown that must not pass: 3%% or 0.03 (default: 3%%)",
    )
    group.addoption(
        "--hotloop-gate-budget",
        metavar="S",
        type=float,
        help="time for each test, in seconds; clear cases need less (default: 240)",
    )
    group.addoption(
        "--hotloop-gate-cannot-say",
        choices=("pass", "fail"),
        help="whether a test is skipped or fails where the budget was not enough to decide "
        "(default: fail)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse options that do not fit; raises pytest.UsageError."""
    given = {name: _option(config, name) for name in _SETTINGS}
    if config.getoption("--hotloop-gate") is None:
        for name, value in given.items():
            if value is not None:
                raise pytest.UsageError(f"--hotloop-gate-{name}: expected --hotloop-gate=REF, too")
        return
    try:
        if not config.getoption("--hotloop-gate"):
            raise SettingError("--hotloop-gate: expected a commit, a branch or a tag, got nothing")
        if given["worse"] is not None:
            parsed_share("--hotloop-gate-worse", str(given["worse"]))
        expect_positive("--hotloop-gate-budget", given["budget"])  # type: ignore[arg-type]
    except SettingError as error:
        raise pytest.UsageError(str(error)) from None
    if config.getoption("numprocesses", None) or config.getoption("tx", None):
        raise pytest.UsageError(
            "--hotloop-gate: gates must not run beside each other, as each would slow the others: "
            "leave -n out, or add -n0 where the configuration has it"
        )
    for name in ("only", "skip"):
        if config.getoption(f"benchmark_{name}", False):
            raise pytest.UsageError(
                f"--hotloop-gate: leave --benchmark-{name} out: with it pytest-benchmark would "
                "skip the tests to compare"
            )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what is compared with what."""
    baseline = config.getoption("--hotloop-gate")
    if baseline is None:
        return None
    return f"hotloop gate: tests that use `benchmark` are compared with {baseline}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put a gate in the place of each test that uses the fixture."""
    if config.getoption("--hotloop-gate") is None:
        return
    for item in items:
        if "benchmark" in getattr(item, "fixturenames", ()):
            _replace(item)


def _replace(item: pytest.Item) -> None:
    """Let a test be a gate: its fixtures are set up in the sides, not here."""
    item.setup = lambda: None  # type: ignore[method-assign]
    item.runtest = lambda: _gate(item)  # type: ignore[method-assign]
    if item.config.pluginmanager.hasplugin("timeout"):
        # A limit for the test is none for a gate, which has its budget.
        item.add_marker(pytest.mark.timeout(0), append=False)


def _gate(item: pytest.Item) -> None:
    """Run the gate of a test, and turn its exit code into an outcome."""
    __tracebackhide__ = True
    code, out, err = _run(_command(item), item.config.invocation_params.dir)
    said = "\n".join(line for line in err.splitlines() if line.startswith("hotloop: "))
    baseline = item.config.getoption("--hotloop-gate")
    if code == 0:
        return
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
    if code == _WRONG_USAGE:
        pytest.exit(
            said.replace("--baseline", "--hotloop-gate") or err, pytest.ExitCode.USAGE_ERROR
        )
    if code == _CANNOT_SAY and _option(item.config, "cannot-say") == "pass":
        pytest.skip(_answer(out))
    if code in (_SLOWER, _CANNOT_SAY):
        pytest.fail(_answer(out), pytrace=False)
    if said.startswith("hotloop: A (") and NO_SUCH_BENCHMARK in said:
        pytest.skip(f"nothing to compare with at {baseline}: {said.removeprefix('hotloop: ')}")
    pytest.fail(err.strip() or f"hotloop gate exited with {code}", pytrace=False)


def _command(item: pytest.Item) -> list[str]:
    config = item.config
    file = os.path.relpath(item.path, config.invocation_params.dir)
    test = f"{file}::{item.nodeid.partition('::')[2]}"
    # Without -P a module of the user's folder could take the place of one that the command imports.
    command = [sys.executable, "-P", "-m", "hotloop.cli.main", "gate", shlex.quote(test)]
    command += ["--baseline", str(config.getoption("--hotloop-gate"))]
    for name in ("worse", "budget"):
        if (value := _option(config, name)) is not None:
            command += [f"--{name}", str(value)]
    return command


def _run(command: list[str], folder: Path) -> tuple[int, str, str]:
    """Run a command to its end; returns its exit code and what it printed."""
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(_COVERAGE)
    }
    with subprocess.Popen(
        command,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            out, err = process.communicate()
        except BaseException as stop:
            _end(process, told=isinstance(stop, KeyboardInterrupt))
            raise
        return process.returncode, out, err


def _end(process: "subprocess.Popen[str]", *, told: bool) -> None:
    """End a gate; it ends its own processes. told: Ctrl-C has reached it, too."""
    for end in _ways_to_end(process, told=told):
        try:
            process.communicate(timeout=end)
            return
        except subprocess.TimeoutExpired:
            continue


def _ways_to_end(process: "subprocess.Popen[str]", *, told: bool) -> Iterator[float | None]:
    """Try one way after the other; each gives how long to wait for it, in seconds."""
    if told:
        yield _ENDS_S
    process.terminate()
    yield _ENDS_S
    process.kill()
    yield None


def _option(config: pytest.Config, name: str) -> object:
    return config.getoption(f"--hotloop-gate-{name}")


def _answer(out: str) -> str:
    return out.strip()
