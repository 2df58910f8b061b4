"""Another system than Linux: refused in one sentence, before anything else fails there."""

import subprocess
import sys

import pytest

ELSEWHERE = "import sys; sys.platform = {!r}\n"


def on(system: str, code: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python that takes its system for another one. before: what it imports as on this one."""
    words = [sys.executable, "-c", before + ELSEWHERE.format(system) + code]
    return subprocess.run(words, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(("system", "name"), [("darwin", "macOS"), ("win32", "Windows")])
@pytest.mark.parametrize("verb", ["benchmark", "train", "report", "doctor"])
def test_a_command_is_refused_in_one_sentence(system: str, name: str, verb: str) -> None:
    code = f"from hotloop.cli.main import main; sys.exit(main([{verb!r}, 'x']))"
    done = on(system, code)
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"hotloop: expected Linux, got {name}, where nothing of hotloop is ")


@pytest.mark.parametrize(
    "package",
    ["loop", "ops", "populations", "envs", "rollout", "data", "sim.runner", "learn.ppo", "watch"],
)
def test_a_package_is_refused_when_it_is_imported(package: str) -> None:
    # What torch imports elsewhere is not there on this system.
    before = "import torch\n" if package.startswith(("sim", "learn")) else ""
    done = on("darwin", f"import hotloop.{package}", before)
    assert done.returncode == 1
    assert "PlatformError: expected Linux, got macOS" in done.stderr.splitlines()[-1]


def test_help_and_the_plugin_of_pytest_do_no_harm_there() -> None:
    done = on("darwin", "from hotloop.cli.main import main; sys.exit(main(['--help']))")
    assert done.returncode == 0
    done = on("darwin", "import hotloop.integrations.pytest_gate", "import pytest\n")
    assert (done.returncode, done.stderr) == (0, "")
